//! The audit log tells calls that have changed something from those that have not, and a flood of the latter does not fill it.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use proto::inventory::v1::inventory_service_server::InventoryServiceServer;
use runtime::{identity::Caller, metrics::Metrics};
use scheduler::{
    admission::{self, CallMetrics, Limit, Limits},
    api::Inventory,
    call_rules::{Call, Callers},
    error::Error,
    ledger::{Fence, SitePosition},
    term::Terms,
};
use tonic::{Code, Status, body::Body, server::NamedService, service::Routes};

use crate::{
    audit::{audited, listen, until_audited, warnings},
    fixtures::{Served, agent, apply, operator, reader},
    raw::send_request,
};

/// Time between two notices in these tests.
const NOTICES: Duration = Duration::from_secs(1);

/// A text in a line, by its name.
fn text<'a>(line: &'a str, name: &str) -> &'a str {
    let begins = format!(" {name}=\"");
    let (_, rest) = line.split_once(&begins).unwrap_or_default();
    rest.split_once('"').unwrap_or_default().0
}

/// A number in a line, by its name.
fn number(line: &str, name: &str) -> u64 {
    let mut words = line.split_whitespace();
    let found = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    found.unwrap().parse().unwrap()
}

/// Lines about an identity that begin with this word.
fn lines(identity: &Caller, word: &str) -> Vec<String> {
    let begins = format!(" {word} identity=");
    let mut lines = audited(&identity.to_string());
    lines.retain(|line| line.contains(&begins));
    lines
}

/// Waits until notices about an identity say that so many lines were withheld; returns how many notices there are.
async fn until_noticed(identity: &Caller, kind: &str, count: u64) -> usize {
    let begun = Instant::now();
    loop {
        let notices = lines(identity, "withheld");
        let withheld: u64 = notices.iter().map(|line| number(line, kind)).sum();
        if withheld == count {
            return notices.len();
        }
        assert!(
            withheld < count && begun.elapsed() < Duration::from_secs(10),
            "{withheld} of {count} {kind}: {notices:?}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn noticing() -> Served {
    Served::limited(Limits::default().notices(NOTICES)).await
}

#[tokio::test]
async fn every_change_and_export_has_a_complete_line() {
    listen();
    let served = Served::start().await;
    let _reports = served.report("row").await;
    let (site, person) = (agent("row", "cluster"), operator("row"));
    for call in Call::ALL {
        let caller = match call.descriptor().who {
            Callers::ClusterAgent => &site,
            Callers::Agents | Callers::Readers | Callers::People | Callers::Operators | Callers::Everyone => {
                &person
            }
        };
        // Calls that fail are audited as well.
        let _ = send_request(&served.channel(caller), call, "row").await;
        if call.descriptor().audited {
            let says = format!("call=\"{}\"", call.name());
            until_audited(&caller.to_string(), &says).await;
        }
    }
    until_audited(&person.to_string(), " exported identity=").await;
    for (caller, word, call) in [
        (&site, "changed", Call::ApplyCluster),
        (&person, "changed", Call::ResetSiteFence),
        (&person, "opened", Call::ExportLedger),
        (&person, "exported", Call::ExportLedger),
    ] {
        let lines = lines(caller, word);
        let of_call = lines.iter().filter(|line| text(line, "call") == call.name());
        assert_eq!(of_call.count(), 1, "{word} {call:?}: {lines:?}");
    }
    let lines = [site, person].map(|caller| audited(&caller.to_string())).concat();
    for line in &lines {
        let call = Call::ALL
            .into_iter()
            .find(|call| call.name() == text(line, "call"));
        assert!(call.unwrap().descriptor().audited, "{line}");
        for name in ["identity", "address", "object", "outcome", "request_id"] {
            assert!(!text(line, name).is_empty(), "{name}: {line}");
        }
        let changed = line.contains(" changed identity=");
        assert!(!changed || number(line, "changes") > 0, "{line}");
    }
}

#[tokio::test]
async fn a_repeated_change_is_audited_as_no_change() {
    listen();
    let served = Served::start().await;
    let _reports = served.report("repeated").await;
    let caller = agent("repeated", "cluster");
    let mut client = served.placements(&caller);
    for _ in 0..2 {
        client
            .apply_cluster(apply("repeated", "one", 1, 1))
            .await
            .unwrap();
    }
    let of_apply = |word: &str| {
        let mut lines = lines(&caller, word);
        lines.retain(|line| text(line, "call") == "ApplyCluster");
        lines
    };
    let (changed, called) = (of_apply("changed"), of_apply("called"));
    let ([first], [again]) = (&*changed, &*called) else {
        panic!("{changed:?} {called:?}")
    };
    for (line, changes) in [(first, 1), (again, 0)] {
        assert_eq!(number(line, "changes"), changes, "{line}");
        assert_eq!(text(line, "outcome"), "OK", "{line}");
        assert_eq!(text(line, "object"), "repeated: cluster tenant/one uid", "{line}");
    }
}

#[tokio::test]
async fn a_dropped_stream_of_reports_is_audited_with_its_changes() {
    listen();
    let served = Arc::new(Served::start().await);
    let caller = agent("left", "cluster");
    // The caller's connection ends with its runtime.
    let client = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let called = Arc::clone(&served);
    let reports = client.spawn(async move { called.report("left").await });
    let reports = reports.await.unwrap();
    let opened = lines(&caller, "opened");
    let [opened] = &*opened else { panic!("{opened:?}") };
    assert_eq!(text(opened, "outcome"), "OPEN", "{opened}");
    assert_eq!(
        number(opened, "changes"),
        1,
        "the first reporter of the site: {opened}"
    );
    client.shutdown_background();
    drop(reports);
    until_audited(&caller.to_string(), "outcome=\"CANCELLED\"").await;
    let changed = lines(&caller, "changed");
    let [changed] = &*changed else {
        panic!("{changed:?}")
    };
    for name in ["call", "object", "request_id"] {
        assert_eq!(text(changed, name), text(opened, name), "{changed}");
    }
    assert!(number(changed, "changes") > 0, "{changed}");
}

/// A service whose `GetPlacement` changes site `a`, and whose other calls are refused by the limit on exports.
#[derive(Clone)]
struct Unusual(Terms);

impl NamedService for Unusual {
    const NAME: &'static str = "sip.placement.v1.PlacementService";
}

impl tower::Service<http::Request<Body>> for Unusual {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let changes = request.uri().path() == Call::GetPlacement.descriptor().path;
        let region = self.0.region().unwrap();
        Box::pin(async move {
            if changes {
                region.reset_fence("a", "reader/any").await.unwrap();
                return Ok(Status::ok("").into_http());
            }
            let refused = Error::Limited {
                identity: "reader/any".to_owned(),
                limit: Limit::Exports,
                why: "it already runs an export".to_owned(),
                again: Duration::from_secs(1),
            };
            Ok(Status::from(refused).into_http())
        })
    }
}

#[tokio::test]
async fn a_read_that_stages_is_audited_as_a_change() {
    listen();
    let metrics = Metrics::default();
    let calls = CallMetrics::registered(&metrics);
    let served = Served::with(|terms| {
        let inventory = InventoryServiceServer::new(Inventory::new(terms.clone()));
        let routes = Routes::new(inventory).add_service(Unusual(terms));
        admission::guarded(routes, Limits::default(), calls)
    })
    .await;
    let caller = reader("unusual");
    let channel = served.channel(&caller);
    for _ in 0..2 {
        send_request(&channel, Call::GetPlacement, "a").await.unwrap();
    }
    // There is nothing to reset the second time, and reads that change nothing have no line.
    let all = audited(&caller.to_string());
    let [line] = &*all else { panic!("{all:?}") };
    assert!(line.contains(" changed identity="), "{line}");
    assert_eq!(text(line, "call"), "GetPlacement", "{line}");
    assert_eq!(
        (text(line, "object"), number(line, "changes")),
        ("a", 1),
        "{line}"
    );

    let refused = send_request(&channel, Call::ListPlacements, "a")
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    let text = metrics.encode().unwrap();
    let sample = "sip_scheduler_calls_shed_total{method=\"ListPlacements\",limit=\"exports\"} 1\n";
    assert!(text.contains(sample), "{text}");
}

#[tokio::test]
async fn calls_that_change_nothing_are_counted_in_notices() {
    const CALLS: u64 = 300;
    listen();
    let served = noticing().await;
    let _reports = (served.report("flood").await, served.report("calm").await);
    let (flood, other) = (agent("flood", "cluster"), agent("calm", "cluster"));
    let (channel, calm) = (served.channel(&flood), served.channel(&other));
    let begun = Instant::now();
    for _ in 0..=CALLS {
        send_request(&channel, Call::ApplyCluster, "flood").await.unwrap();
    }
    for _ in 0..2 {
        send_request(&calm, Call::ApplyCluster, "calm").await.unwrap();
    }
    assert_eq!(lines(&other, "called").len(), 1, "the flood is not the other's");
    assert_eq!(lines(&flood, "changed").len(), 1, "the first call");
    let written = u64::try_from(lines(&flood, "called").len()).unwrap();
    assert!((32..CALLS).contains(&written), "{written}");
    let notices = until_noticed(&flood, "unchanged", CALLS - written).await;
    let most = begun.elapsed().as_secs() / NOTICES.as_secs() + 1;
    assert!(u64::try_from(notices).unwrap() <= most, "{notices} in {most} s");
}

#[tokio::test]
async fn every_failed_call_of_an_operator_has_a_line() {
    const CALLS: usize = 100;
    listen();
    let served = Served::start().await;
    let caller = operator("failing");
    let channel = served.channel(&caller);
    for call in [Call::ReleaseOrphan, Call::RepairSite] {
        for _ in 0..CALLS {
            send_request(&channel, call, "nowhere").await.unwrap_err();
        }
        let mut lines = lines(&caller, "called");
        lines.retain(|line| text(line, "call") == call.name());
        assert_eq!(lines.len(), CALLS, "{call:?}");
    }
}

#[tokio::test]
async fn reporters_with_forged_positions_fill_no_log() {
    const HELLOS: i64 = 1000;
    listen();
    let served = Served::start().await;
    let _reports = served.report("forging").await;
    let begun = Instant::now();
    for transitions in 2..2 + HELLOS {
        let fence = Fence {
            lease: "lease".to_owned(),
            transitions,
        };
        let forged = Some(SitePosition::new(1, 1 << 62));
        let caller = agent("forging", "cluster").to_string();
        let opened = served.region.open_session("forging", &fence, forged, &caller);
        opened.await.unwrap();
    }
    let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap();
    for text in ["a position that was not issued", "takes over from"] {
        let lines = warnings("forging", text);
        assert!((1..40 + seconds).contains(&lines), "{text}: {lines}");
    }
}

#[tokio::test]
async fn denials_without_a_line_are_counted_in_notices() {
    const CALLS: u64 = 200;
    listen();
    let served = noticing().await;
    let pest = reader("pest");
    let channel = served.channel(&pest);
    for _ in 0..CALLS {
        send_request(&channel, Call::ReleaseCluster, "a")
            .await
            .unwrap_err();
    }
    let written = u64::try_from(lines(&pest, "denied").len()).unwrap();
    assert!((40..CALLS).contains(&written), "{written}");
    until_noticed(&pest, "denied", CALLS - written).await;
}
