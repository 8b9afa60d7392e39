//! Who did what is in the log, whatever came of it.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    io,
    sync::{Arc, Mutex, Once},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use prost::bytes::Bytes;
use runtime::{
    identity::Caller,
    telemetry::AUDIT,
    tls::{Peer, PeerIdentity},
};
use scheduler::{
    admission::{self, CallMetrics, Limits},
    call_rules::Call,
};
use tokio::time::timeout;
use tonic::{Code, Status, body::Body, server::NamedService, service::Routes};
use tonic_types::StatusExt as _;
use tower::ServiceExt as _;

use crate::{
    fixtures::{Served, agent, operator, reader},
    raw::{Raw, request, send, send_request},
};

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Log;

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Begins to keep what is logged.
pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let log = tracing_subscriber::fmt().with_ansi(false);
        log.with_writer(|| Log).init();
    });
}

/// The audit lines about an identity.
pub(crate) fn audited(identity: &str) -> Vec<String> {
    let log = String::from_utf8(LOG.lock().unwrap().clone()).unwrap();
    let target = format!(" {AUDIT}: ");
    let about = format!("identity=\"{identity}\"");
    log.lines()
        .filter(|line| line.contains(&target) && line.contains(&about))
        .map(str::to_owned)
        .collect()
}

/// How many warnings about a site have this text.
pub(crate) fn warnings(site: &str, says: &str) -> usize {
    let log = String::from_utf8(LOG.lock().unwrap().clone()).unwrap();
    let about = format!("site=\"{site}\"");
    let lines = log
        .lines()
        .filter(|line| line.contains("WARN") && line.contains(says));
    lines.filter(|line| line.contains(&about)).count()
}

/// The lines about an identity that a limit has refused.
fn refused(identity: &str) -> usize {
    let log = String::from_utf8(LOG.lock().unwrap().clone()).unwrap();
    let about = format!("identity=\"{identity}\"");
    let lines = log.lines().filter(|line| line.contains("a call is refused"));
    lines.filter(|line| line.contains(&about)).count()
}

/// Waits for an audit line about an identity.
pub(crate) async fn until_audited(identity: &str, says: &str) {
    let begun = Instant::now();
    while !audited(identity).iter().any(|line| line.contains(says)) {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{identity}: {:?}",
            audited(identity)
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn request_id(status: &Status) -> String {
    let id = status.metadata().get("x-request-id").unwrap();
    id.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn denials_are_audited_with_object_and_request_id() {
    listen();
    let served = Served::start().await;
    for (caller, object) in [
        (reader("eve"), "object=\"\""),
        (
            agent("elsewhere", "cluster"),
            "object=\"a: cluster tenant/one uid\"",
        ),
    ] {
        let channel = served.channel(&caller);
        let made = send_request(&channel, Call::ApplyCluster, "a");
        let denied = made.await.unwrap_err();
        assert_eq!(denied.code(), Code::PermissionDenied, "{denied}");
        let lines = audited(&caller.to_string());
        let [line] = &*lines else { panic!("{lines:?}") };
        let id = format!("request_id=\"{}\"", request_id(&denied));
        for part in [
            "denied",
            "call=\"ApplyCluster\"",
            "outcome=\"PERMISSION_DENIED\"",
            object,
            &id,
            "127.0.0.1",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
}

#[tokio::test]
async fn changes_and_exports_are_audited_and_questions_are_not() {
    listen();
    let served = Served::start().await;
    let caller = operator("zoe");
    let channel = served.channel(&caller);
    for call in [Call::ListHosts, Call::ResetSiteFence, Call::ExportLedger] {
        send_request(&channel, call, "a").await.unwrap();
    }
    until_audited("operator/zoe", "ExportLedger").await;
    let lines = audited("operator/zoe");
    // The export has one when it opens, too.
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(
        lines[0].contains("ResetSiteFence") && lines[0].contains("outcome=\"OK\""),
        "{lines:?}"
    );
    assert!(lines[0].contains("object=\"a\""), "{lines:?}");
}

#[tokio::test]
async fn a_line_is_short_whatever_its_caller_names() {
    const MOST: usize = 4096;
    listen();
    let served = Served::start().await;
    let caller = agent("verbose", "load-balancer");
    let channel = served.channel(&caller);
    let (site, path) = ("x".repeat(100_000), format!("/{}", "m".repeat(10_000)));
    for (path, message, code) in [
        (
            Call::GetPlacement.descriptor().path,
            request(Call::GetPlacement, &site),
            Code::PermissionDenied,
        ),
        (&*path, Bytes::new(), Code::Unimplemented),
    ] {
        let made = send(&channel, path, tokio_stream::once(message)).await;
        assert_eq!(made.unwrap_err().code(), code);
    }
    let lines = audited(&caller.to_string());
    assert_eq!(lines.len(), 2, "{lines:?}");
    for line in lines {
        assert!(line.len() < MOST, "{} bytes", line.len());
    }
}

/// A service whose answers never end, or never come.
#[derive(Clone)]
struct Endless;

impl NamedService for Endless {
    const NAME: &'static str = "sip.inventory.v1.InventoryService";
}

impl tower::Service<http::Request<Body>> for Endless {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let streams = request.uri().path() == Call::ReportHosts.descriptor().path;
        Box::pin(async move {
            if !streams {
                std::future::pending::<()>().await;
            }
            let nothing = futures::stream::pending::<Result<Bytes, Infallible>>();
            Ok(http::Response::new(Body::new(axum::body::Body::from_stream(
                nothing,
            ))))
        })
    }
}

#[tokio::test]
async fn calls_that_are_dropped_are_audited() {
    listen();
    let calls = CallMetrics::default();
    let service = admission::guarded(Routes::new(Endless), Limits::default(), calls).into_axum_router();
    let asked = |call: Call, who: &Caller| {
        let request = http::Request::post(call.descriptor().path);
        let mut request = request.body(axum::body::Body::empty()).unwrap();
        let identity = PeerIdentity::Verified(Arc::new(who.clone()));
        let address = ([127, 0, 0, 1], 1).into();
        request.extensions_mut().insert(Peer::new(address, identity));
        service.clone().oneshot(request)
    };
    // A stream whose answer has begun, and a call that is not answered yet.
    let (stream, change) = (agent("dropped", "cluster"), operator("dropped"));
    let begun = asked(Call::ReportHosts, &stream).await.unwrap();
    let waiting = timeout(Duration::from_millis(100), asked(Call::ResetSiteFence, &change));
    assert!(waiting.await.is_err());
    // Whoever kills the process now finds in the log who had it open.
    let opened = audited(&stream.to_string());
    let [line] = &*opened else { panic!("{opened:?}") };
    assert!(
        line.contains("ReportHosts") && line.contains("outcome=\"OPEN\""),
        "{line}"
    );
    drop(begun);
    for (caller, call, opened) in [(stream, "ReportHosts", 1), (change, "ResetSiteFence", 0)] {
        let lines = audited(&caller.to_string());
        let [line] = &lines[opened..] else {
            panic!("{caller}: {lines:?}")
        };
        assert!(
            line.contains(call) && line.contains("outcome=\"CANCELLED\""),
            "{line}"
        );
    }
}

#[tokio::test]
async fn denials_beyond_the_limit_are_shed_and_all_are_counted() {
    const CALLS: usize = 200;
    listen();
    let (served, metrics) = Served::counted(Limits::default()).await;
    let channel = served.channel(&reader("mallory"));
    let (mut denied, mut shed) = (BTreeSet::new(), 0);
    for _ in 0..CALLS {
        let made = send_request(&channel, Call::ReleaseCluster, "a");
        let refused = made.await.unwrap_err();
        if refused.code() == Code::PermissionDenied {
            denied.insert(request_id(&refused));
        } else {
            let info = refused.get_details_error_info().unwrap();
            assert_eq!(
                (&*info.reason, &*info.metadata["limit"]),
                ("OVERLOADED", "denials")
            );
            assert_eq!(info.metadata["identity"], "reader/mallory");
            let retry = refused.get_details_retry_info().unwrap().retry_delay.unwrap();
            assert!(retry <= Duration::from_secs(1), "{retry:?}");
            shed += 1;
        }
    }
    println!("{} denied, {shed} shed", denied.len());
    assert!(shed > 0 && denied.len() + shed == CALLS);
    let lines = audited("reader/mallory");
    assert_eq!(lines.len(), denied.len(), "one line each");
    let text = metrics.encode().unwrap();
    for sample in [
        format!(
            "sip_scheduler_calls_denied_total{{method=\"ReleaseCluster\"}} {}\n",
            denied.len()
        ),
        format!("sip_scheduler_calls_shed_total{{method=\"ReleaseCluster\",limit=\"denials\"}} {shed}\n"),
        "sip_scheduler_calls_in_progress{method=\"ReleaseCluster\"} 0\n".to_owned(),
    ] {
        assert!(text.contains(&sample), "{sample}: {text}");
    }
}

#[tokio::test]
async fn who_finds_no_room_fills_no_log() {
    const CALLS: usize = 1000;
    listen();
    let (served, metrics) = Served::counted(Limits::default().identities(1)).await;
    let first = served.channel(&reader("first"));
    let path = Call::HealthWatch.descriptor().path;
    let open = tokio_stream::once(request(Call::HealthWatch, ""));
    let mut client = tonic::client::Grpc::new(first.clone());
    client.ready().await.unwrap();
    let watch = client
        .streaming(tonic::Request::new(open), path.parse().unwrap(), Raw)
        .await
        .unwrap();
    let second = served.channel(&reader("second"));
    for _ in 0..CALLS {
        let status = send_request(&second, Call::ListSites, "").await.unwrap_err();
        let info = status.get_details_error_info().unwrap();
        assert_eq!(info.metadata["limit"], "identities");
    }
    drop(watch);
    let lines = refused("reader/second");
    // Some at once, and one a second.
    assert!((1..200).contains(&lines), "{lines} lines");
    let text = metrics.encode().unwrap();
    let sample =
        format!("sip_scheduler_calls_shed_total{{method=\"ListSites\",limit=\"identities\"}} {CALLS}\n");
    assert!(text.contains(&sample), "{text}");
}

#[tokio::test]
async fn unknown_methods_are_audited_within_a_rate() {
    const CALLS: usize = 200;
    listen();
    let (served, metrics) = Served::counted(Limits::default()).await;
    let channel = served.channel(&reader("curious"));
    let (mut denied, mut shed) = (BTreeSet::new(), 0);
    for _ in 0..CALLS {
        let one = tokio_stream::once(Bytes::new());
        let status = send(&channel, "/sip.inventory.v1.InventoryService/DropTables", one)
            .await
            .unwrap_err();
        match status.code() {
            Code::Unimplemented => {
                denied.insert(request_id(&status));
            }
            Code::ResourceExhausted => shed += 1,
            _ => panic!("{status}"),
        }
    }
    assert!(shed > 0 && denied.len() + shed == CALLS, "{shed} shed");
    let lines = audited("reader/curious");
    assert_eq!(lines.len(), denied.len(), "one line each");
    for part in ["DropTables", "outcome=\"UNIMPLEMENTED\"", "denied", "127.0.0.1"] {
        assert!(lines[0].contains(part), "{part}: {}", lines[0]);
    }
    let text = metrics.encode().unwrap();
    let sample = format!("sip_scheduler_calls_denied_total{{method=\"unknown\"}} {CALLS}\n");
    assert!(text.contains(&sample), "{text}");
}
