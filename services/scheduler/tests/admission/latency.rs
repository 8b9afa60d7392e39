//! What others' calls take beside calls of one identity that hang.

use std::{num::NonZeroU32, time::Duration};

use proto::placement::v1::placement_service_client::PlacementServiceClient;
use runtime::tls::Channel;
use scheduler::{admission::Limits, call_rules::Call};
use tokio::{task::JoinSet, time::timeout};
use tonic::{Code, Status};

use crate::{
    fixtures::{Served, agent, durations_of_changes, reader},
    raw::{answer, request},
};

/// Calls that hang, and connections that they come by.
const HANGING: usize = 10_000;
const CONNECTIONS: usize = 20;
/// Of these, as many as one identity may have at once.
const PLACES: usize = 256;
/// How long anything here may take.
const PATIENCE: Duration = Duration::from_mins(2);
/// Calls that are measured in each round.
const CALLS: i64 = 400;
const ROUNDS: i64 = 5;
/// How often both figures may be measured: something else may be at work on the machine during one of them.
const ATTEMPTS: i64 = 4;

/// The 99th percentile of so many changes, one after the other.
async fn p99(client: &mut PlacementServiceClient<Channel>, first: i64) -> Duration {
    let took = durations_of_changes(client, "b", first..first + CALLS).await;
    took[took.len() * 99 / 100]
}

/// The median of some rounds.
async fn median_p99(client: &mut PlacementServiceClient<Channel>, first: i64) -> Duration {
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        rounds.push(p99(client, first + round * CALLS).await);
    }
    rounds.sort_unstable();
    rounds[rounds.len() / 2]
}

/// Requests of which nothing arrives: as many as their identity has places hang, the others are refused.
async fn hang(served: &Served) -> JoinSet<Status> {
    let path = Call::GetPlacement.descriptor().path;
    // All connections are open before the first of these calls: opening one takes an answered call, and the
    // calls that hang use up the identity's rate.
    let mut channels = Vec::new();
    for _ in 0..CONNECTIONS {
        let channel = served.channel(&reader("hanging"));
        let check = request(Call::HealthCheck, "");
        let path_of_check = Call::HealthCheck.descriptor().path;
        answer(&channel, path_of_check, tokio_stream::once(check))
            .await
            .unwrap();
        channels.push(channel);
    }
    let mut hanging = JoinSet::new();
    // Calls of each connection in turn: no connection has as many that hang as it may have streams.
    for channel in channels.iter().cycle().take(HANGING) {
        let channel = channel.clone();
        hanging.spawn(async move { answer(&channel, path, tokio_stream::pending()).await.unwrap_err() });
    }
    for _ in 0..HANGING - PLACES {
        let status = hanging.join_next().await.unwrap().unwrap();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    }
    hanging
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_calls_of_one_identity_do_not_slow_others() {
    let _alone = crate::ALONE.lock().await;
    // What hangs is measured here: who exceeds the rate so far is disconnected.
    let rate = NonZeroU32::new(100_000).unwrap();
    let served = Served::limited(Limits::default().arrival(PATIENCE).rate(rate)).await;
    let _site = served.report("b").await;
    let mut client = served.placements(&agent("b", "cluster"));
    p99(&mut client, 1).await;
    let mut figures = Vec::new();
    for attempt in 0..ATTEMPTS {
        let first = 1 + CALLS + 2 * attempt * ROUNDS * CALLS;
        let quiet = median_p99(&mut client, first).await;
        let mut hanging = timeout(PATIENCE, hang(&served)).await.unwrap();
        let beside = median_p99(&mut client, first + ROUNDS * CALLS).await;
        println!("ApplyCluster p99: {quiet:?} quiet, {beside:?} beside {HANGING} hanging calls");
        assert_eq!(hanging.len(), PLACES, "they still hang");
        hanging.shutdown().await;
        if beside < 2 * quiet {
            return;
        }
        figures.push((quiet, beside));
    }
    panic!("p99 quiet, and beside {HANGING} hanging calls: {figures:?}");
}
