//! Large specs of one tenant, and the calls of the others through the same agent.

use std::time::Duration;

use axum::body::Body as Bytes;
use futures::future::select_all;
use prost::bytes::Bytes as Data;
use proto::{
    inventory::v1::{
        self as inventory, HostChanges, ReportHostsRequest, SnapshotEnd, report_hosts_request::Message,
    },
    placement::v1::{GetPlacementRequest, WatchPlacementsRequest, watch_placements_response::Event},
};
use scheduler::{
    admission::{CallMetrics, Limits},
    call_rules::Call,
    server,
};
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tonic::{Code, Status, body::Body};
use tonic_types::StatusExt as _;
use tower::ServiceExt as _;

use crate::fixtures::{SITE, Stage, apply, channel, hello, host};

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of each spec.
const SPEC: usize = 62 << 10;
/// More of them than an identity may have under way.
const SPECS: usize = 9;

/// Declares a cluster with a large spec, of which the last byte does not come. Returns how the call ends.
async fn unfinished(stage: &Stage) -> Status {
    let mut framed = vec![0];
    framed.extend(u32::try_from(SPEC).unwrap().to_be_bytes());
    framed.resize(SPEC, 0);
    let first = tokio_stream::once(Ok::<_, Status>(Data::from(framed)));
    let body = Bytes::from_stream(first.chain(tokio_stream::pending()));
    let request = http::Request::post(Call::ApplyCluster.descriptor().path)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(body))
        .unwrap();
    // A connection of its own: the window of one has no room for all of them.
    let answer = channel(stage.address).oneshot(request).await.unwrap();
    Status::from_header_map(answer.headers()).unwrap()
}

#[tokio::test]
async fn large_specs_end_no_report_and_refuse_no_other_call() {
    let (limits, calls) = (Limits::of_each_kind(64), CallMetrics::default());
    let stage = Stage::with(|terms| server::guarded_routes(&terms, limits, calls).unwrap().1).await;
    let (messages, sent) = tokio::sync::mpsc::channel(8);
    let report = async |sequence: u64, message: Message| {
        let request = ReportHostsRequest {
            sequence,
            message: Some(message),
        };
        messages.send(request).await.unwrap();
    };
    report(1, hello("lease")).await;
    report(2, Message::SnapshotEnd(SnapshotEnd {})).await;
    let sent = tokio_stream::wrappers::ReceiverStream::new(sent);
    let mut reports = stage.inventory().report_hosts(sent).await.unwrap().into_inner();
    while reports.next().await.unwrap().unwrap().acknowledged < 2 {}
    stage.placements().apply_cluster(apply("one", 0)).await.unwrap();
    let request = WatchPlacementsRequest {
        site: SITE.to_owned(),
        resume: None,
    };
    let mut watch = stage
        .placements()
        .watch_placements(request)
        .await
        .unwrap()
        .into_inner();

    let specs = (0..SPECS).map(|_| Box::pin(unfinished(&stage)));
    let (refused, _, _under_way) = timeout(PATIENCE, select_all(specs)).await.unwrap();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert_eq!(
        refused.get_details_error_info().unwrap().metadata["limit"],
        "buffer"
    );

    let mut large = host("h1");
    large.problems = vec!["p".repeat(50 << 10); 24];
    let changes = HostChanges {
        hosts: vec![large],
        ..HostChanges::default()
    };
    report(3, Message::Changes(changes)).await;
    let acknowledged = timeout(PATIENCE, reports.next()).await.unwrap().unwrap();
    assert_eq!(acknowledged.unwrap().acknowledged, 3);
    stage.placements().apply_cluster(apply("two", 0)).await.unwrap();
    let request = GetPlacementRequest {
        site: SITE.to_owned(),
        cluster: Some(inventory::ClusterRef {
            namespace: "tenant".to_owned(),
            name: "two".to_owned(),
            uid: "uid".to_owned(),
        }),
        at_least: None,
    };
    stage.placements().get_placement(request).await.unwrap();
    let told = async {
        loop {
            match watch.message().await.unwrap().unwrap().event.unwrap() {
                Event::Changed(placement) if placement.cluster.as_ref().unwrap().name == "two" => return,
                Event::Changed(_) | Event::Removed(_) | Event::Reset(_) | Event::Synced(_) => {}
            }
        }
    };
    timeout(PATIENCE, told).await.unwrap();
}
