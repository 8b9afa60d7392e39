//! Messages that are too large, or have too much in them: the answer says what to do, and nothing is decoded.

use std::time::Duration;

use axum::body::Body as Stream;
use futures::future::select_all;
use prost::bytes::Bytes;
use proto::{
    inventory::v1::{
        GetHostRequest, Host, HostChanges, HostRef, LabelSelector, ListHostsRequest, ReportHostsRequest,
        Role, report_hosts_request::Message,
    },
    placement::v1::{ConfirmHostsRequest, PlanClusterRequest, ReleaseConfirmation},
};
use scheduler::{
    admission::{CallMetrics, Limits},
    call_rules::Call,
    server,
};
use tokio::time::{sleep, timeout};
use tonic::{Code, Status, body::Body};
use tonic_types::StatusExt as _;
use tower::ServiceExt as _;

use crate::fixtures::{SITE, Stage, apply, hello, host};

fn is_too_large(status: &Status, most: &str) {
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
    let reason = status.get_details_error_info().unwrap().reason;
    assert_eq!(reason, "MESSAGE_TOO_LARGE");
    assert!(status.message().contains(most), "{status}");
}

/// How a stream ends that reports these changes.
async fn refused_report(stage: &Stage, changes: HostChanges) -> Status {
    let messages = [hello("lease"), Message::Changes(changes)];
    let requests = messages
        .into_iter()
        .zip(1..)
        .map(|(message, sequence)| ReportHostsRequest {
            sequence,
            message: Some(message),
        });
    let requests: Vec<_> = requests.collect();
    let opened = stage.inventory().report_hosts(tokio_stream::iter(requests)).await;
    let mut answers = match opened {
        Ok(opened) => opened.into_inner(),
        // All came at once.
        Err(status) => return status,
    };
    loop {
        match answers.message().await {
            Ok(answer) => assert!(answer.is_some(), "the stream has ended"),
            Err(status) => return status,
        }
    }
}

#[tokio::test]
async fn a_too_large_report_is_refused_with_what_would_help() {
    let stage = Stage::served().await;
    let mut large = host("large");
    large.error_message = "x".repeat(5 << 20);
    let changes = HostChanges {
        hosts: vec![large],
        deleted_hosts: vec![HostRef::default()],
        ..HostChanges::default()
    };
    let refused = refused_report(&stage, changes).await;
    is_too_large(&refused, "4096 KiB");
    assert!(
        refused.message().contains("fewer hosts in a message"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_report_of_too_many_hosts_is_refused() {
    let stage = Stage::served().await;
    let changes = HostChanges {
        hosts: vec![Host::default(); 1001],
        ..HostChanges::default()
    };
    is_too_large(&refused_report(&stage, changes).await, "1000 hosts");
}

#[tokio::test]
async fn a_too_large_request_is_refused_with_the_limit() {
    const MOST: &str = "256 KiB";
    let stage = Stage::served().await;
    let selector = LabelSelector {
        match_labels: [("key".to_owned(), "v".repeat(300 << 10))].into(),
        ..LabelSelector::default()
    };

    let request = ListHostsRequest {
        site: SITE.to_owned(),
        label_selector: Some(selector.clone()),
        ..ListHostsRequest::default()
    };
    let refused = stage.inventory().list_hosts(request).await.unwrap_err();
    is_too_large(&refused, MOST);

    let mut request = apply("large", 1);
    request.spec.as_mut().unwrap().roles[0].label_selector = Some(selector);
    let refused = stage.placements().apply_cluster(request).await.unwrap_err();
    is_too_large(&refused, MOST);
    let found = stage.decisions().await;
    assert!(found.iter().all(|entry| entry.action != "apply"), "{found:?}");

    // Empty roles: two bytes each, and a hundred times that when they are decoded.
    let mut spec = apply("large", 1).spec.unwrap();
    spec.roles = vec![Role::default(); 200_000];
    let plan = PlanClusterRequest {
        site: SITE.to_owned(),
        cluster: apply("large", 1).cluster,
        spec: Some(spec),
    };
    let refused = stage.placements().plan_cluster(plan).await.unwrap_err();
    is_too_large(&refused, MOST);
}

#[tokio::test]
async fn all_hosts_of_the_largest_cluster_are_released_at_once() {
    let stage = Stage::served().await;
    let released = |hosts: usize, name: &str| {
        let confirmation = |number: usize| ReleaseConfirmation {
            host: Some(HostRef {
                namespace: "metal".to_owned(),
                name: format!("{number:0>5}{name}"),
                uid: "3f1c2a52-0000-4000-8000-000000000000".to_owned(),
            }),
            revision: u64::MAX,
        };
        ConfirmHostsRequest {
            site: SITE.to_owned(),
            cluster: apply("none", 1).cluster,
            released: (0..hosts).map(confirmation).collect(),
        }
    };
    // As many as a status of 1.25 MiB has room for, with short names and with the longest.
    for request in [released(8_000, ""), released(3_800, &"n".repeat(240))] {
        // It is read, and there is no such cluster.
        let answer = stage.placements().confirm_hosts(request).await.unwrap();
        assert_eq!(answer.into_inner().placement, None);
    }
    let refused = stage
        .placements()
        .confirm_hosts(released(16_000, &"n".repeat(240)))
        .await
        .unwrap_err();
    is_too_large(&refused, "1280 KiB");
}

/// A call whose message does not come, with a header of so many bytes. Returns how it ends.
async fn unfinished(stage: &Stage, bytes: usize) -> Status {
    let nothing = Stream::from_stream(tokio_stream::pending::<Result<Bytes, Status>>());
    let request = http::Request::post(Call::GetHost.descriptor().path)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("x-large", "x".repeat(bytes))
        .body(Body::new(nothing))
        .unwrap();
    let answer = stage.channel.clone().oneshot(request).await.unwrap();
    Status::from_header_map(answer.headers()).unwrap()
}

#[tokio::test]
async fn large_heads_under_way_refuse_only_calls_of_their_kind() {
    const PATIENCE: Duration = Duration::from_secs(20);
    let limits = Limits::of_each_kind(1000).buffer(512 << 10);
    let calls = CallMetrics::default();
    let stage = Stage::with(|terms| server::guarded_routes(&terms, limits, calls).unwrap().1).await;
    let calls = (0..60).map(|_| Box::pin(unfinished(&stage, 14 << 10)));
    let (refused, _, under_way) = timeout(PATIENCE, select_all(calls)).await.unwrap();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    let info = refused.get_details_error_info().unwrap();
    assert_eq!(info.metadata["limit"], "buffer", "{refused}");
    stage.placements().apply_cluster(apply("one", 0)).await.unwrap();

    drop(under_way);
    let request = GetHostRequest {
        site: SITE.to_owned(),
        namespace: "metal".to_owned(),
        name: "h1".to_owned(),
    };
    let answered = async {
        while stage.inventory().get_host(request.clone()).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, answered).await.unwrap();
}
