//! Calls and streams over a real connection: more than can be answered, deadlines, panics, pages, how recent answers are, messages that are too large, answers that nobody reads,
//! peers that do not read or are not heard of any more.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, its fixtures too"
)]

mod fixtures;
mod freshness;
mod large_specs;
mod pages;
mod quiet;
mod sizes;
mod unread;
mod watchers;

use std::{
    convert::Infallible,
    future::{Ready, ready},
    task::{Context, Poll},
    time::Duration,
};

use proto::placement::v1::placement_service_client::PlacementServiceClient;
use scheduler::{
    admission::{self, CallMetrics, Limits},
    ledger::commit::MAX_QUEUED_CHANGES,
};
use tonic::{Code, Request, body::Body, server::NamedService, service::Routes};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_types::StatusExt as _;

use fixtures::{Stage, apply, serve};

#[tokio::test]
async fn calls_of_one_kind_are_refused_at_once_and_others_served() {
    let stage = Stage::start(1).await;
    stage.storage.close();
    let mut client = stage.placements();
    let waiting = tokio::spawn(async move { client.apply_cluster(apply("one", 1)).await });
    stage.storage.reached().await;

    let refused = stage
        .placements()
        .apply_cluster(apply("two", 1))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    let info = refused.get_details_error_info().unwrap();
    assert_eq!(info.reason, "OVERLOADED");
    assert_eq!(info.metadata["limit"], "writes");
    assert_eq!(info.metadata["identity"], "plaintext-loopback");
    assert!(refused.get_details_retry_info().unwrap().retry_delay.is_some());

    // Questions, health, reflection and reports have places of their own.
    let request = proto::inventory::v1::ListSitesRequest::default();
    stage.inventory().list_sites(request).await.unwrap();
    let mut health = HealthClient::new(stage.channel.clone());
    health.check(HealthCheckRequest::default()).await.unwrap();
    let mut reflection = tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient::new(
        stage.channel.clone(),
    );
    let nothing = tokio_stream::empty::<tonic_reflection::pb::v1::ServerReflectionRequest>();
    reflection.server_reflection_info(nothing).await.unwrap();
    let reports = stage.report_nothing().await;

    stage.storage.open();
    waiting.await.unwrap().unwrap();
    stage.placements().apply_cluster(apply("two", 0)).await.unwrap();
    drop(reports);
}

#[tokio::test]
async fn waiting_for_the_ledger_ends_at_the_deadline() {
    let stage = Stage::start(64).await;
    stage.storage.close();
    let mut request = Request::new(apply("one", 1));
    request
        .metadata_mut()
        .insert("grpc-timeout", "2S".parse().unwrap());

    let late = stage.placements().apply_cluster(request).await.unwrap_err();

    assert_eq!(late.code(), Code::DeadlineExceeded, "{late}");
    assert_eq!(late.get_details_error_info().unwrap().reason, "MAYBE_DECIDED");
    assert!(
        late.message().contains("send the same call again to find out"),
        "{late}"
    );
    stage.storage.open();
    let found = stage.placements().apply_cluster(apply("one", 1)).await.unwrap();
    let placement = found.into_inner().placement.unwrap();
    assert_eq!(placement.members.len(), 1);
    let log = stage.decisions().await;
    let applied = log.iter().filter(|entry| entry.action == "apply").count();
    assert_eq!(applied, 1, "it was decided once: {log:?}");
}

#[tokio::test]
async fn a_call_whose_deadline_passes_before_its_turn_is_not_decided() {
    let stage = Stage::start(4096).await;
    stage.storage.close();
    let mut queue = tokio::task::JoinSet::new();
    // More calls than streams that a connection may have.
    let channels: Vec<_> = (0..8).map(|_| fixtures::channel(stage.address)).collect();
    let mut ahead = |index: usize| {
        let mut client = PlacementServiceClient::new(channels[index % channels.len()].clone());
        queue.spawn(async move { client.apply_cluster(apply(&format!("ahead-{index}"), 0)).await });
    };
    // One is being written, the queue is full, and two wait for a place in it.
    ahead(0);
    stage.storage.reached().await;
    (1..MAX_QUEUED_CHANGES + 3).for_each(&mut ahead);
    while stage.clusters().await < u32::try_from(MAX_QUEUED_CHANGES + 1).unwrap() {
        tokio::task::yield_now().await;
    }
    let mut request = Request::new(apply("late", 1));
    request
        .metadata_mut()
        .insert("grpc-timeout", "200m".parse().unwrap());

    let late = stage.placements().apply_cluster(request).await.unwrap_err();

    // Whose clock is first does not matter here: the client's own says that it was cancelled.
    let over = [Code::DeadlineExceeded, Code::Cancelled];
    assert!(over.contains(&late.code()), "{late}");
    stage.storage.open();
    while let Some(answer) = queue.join_next().await {
        answer.unwrap().unwrap();
    }
    assert_eq!(
        stage.clusters().await,
        u32::try_from(MAX_QUEUED_CHANGES + 3).unwrap()
    );
}

/// A service that has a bug.
#[derive(Clone)]
struct Buggy;

impl NamedService for Buggy {
    const NAME: &'static str = "grpc.health.v1.Health";
}

impl tower::Service<http::Request<Body>> for Buggy {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        assert!(request.uri().path().is_empty(), "the text of a bug");
        ready(Ok(http::Response::new(Body::empty())))
    }
}

#[tokio::test]
async fn a_panic_becomes_an_internal_error_without_its_text() {
    let (channel, _, _serving) = serve(admission::guarded(
        Routes::new(Buggy),
        Limits::default(),
        CallMetrics::default(),
    ))
    .await;
    let mut health = HealthClient::new(channel);
    for _ in 0..2 {
        let asked = tokio::time::timeout(
            Duration::from_secs(10),
            health.check(HealthCheckRequest::default()),
        );
        let failed = asked.await.unwrap().unwrap_err();
        assert_eq!(failed.code(), Code::Internal, "{failed}");
        assert!(!failed.to_string().contains("the text of a bug"), "{failed}");
    }
}
