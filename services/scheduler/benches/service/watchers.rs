//! Many watchers, and some that do not read.

use std::time::{Duration, Instant};

use proto::placement::v1::{
    WatchPlacementsRequest, WatchPlacementsResponse, watch_placements_response::Event,
};
use tokio_stream::StreamExt as _;
use tonic::Streaming;

use crate::{
    Figure,
    storage::Sync,
    world::{SITE, World, apply},
};

const WATCHERS: usize = 1000;
const STALLED: usize = 100;
const CHANGES: i64 = 2000;
/// What a stalled watcher may cost: the windows of its connection and a page of changes.
const KIB_EACH: f64 = 1024.0;

async fn watch(world: &World, count: usize) -> Vec<Streaming<WatchPlacementsResponse>> {
    let clients = world.placements(16);
    let mut streams = Vec::new();
    for client in clients.into_iter().cycle().take(count) {
        let request = WatchPlacementsRequest {
            site: SITE.to_owned(),
            resume: None,
        };
        let mut client = client;
        streams.push(client.watch_placements(request).await.unwrap().into_inner());
    }
    streams
}

async fn until(stream: &mut Streaming<WatchPlacementsResponse>, wanted: fn(&Event) -> bool) {
    while let Some(told) = stream.next().await {
        if told.unwrap().event.as_ref().is_some_and(wanted) {
            return;
        }
    }
}

/// Memory that the process has, in KiB.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

async fn one_change(world: &World) -> Duration {
    let mut tasks = tokio::task::JoinSet::new();
    let (ready, mut waiting) = tokio::sync::mpsc::channel(WATCHERS);
    for mut stream in watch(world, WATCHERS).await {
        let ready = ready.clone();
        tasks.spawn(async move {
            until(&mut stream, |event| matches!(event, Event::Synced(_))).await;
            ready.send(()).await.unwrap();
            until(&mut stream, |event| matches!(event, Event::Changed(_))).await;
        });
    }
    for _ in 0..WATCHERS {
        waiting.recv().await.unwrap();
    }
    let start = Instant::now();
    let mut client = world.placements(1).remove(0);
    client.apply_cluster(apply(SITE, "told", 1, 4)).await.unwrap();
    tasks.join_all().await;
    start.elapsed()
}

/// What each has grown by after so many changes, and after as many again.
async fn stalled(world: &World) -> [f64; 2] {
    let mut client = world.placements(1).remove(0);
    let mut change = async |generation| {
        let workers = if generation % 2 == 0 { 4 } else { 5 };
        client
            .apply_cluster(apply(SITE, "changing", generation, workers))
            .await
            .unwrap();
    };
    for generation in 1..CHANGES {
        change(generation).await;
    }
    let streams = watch(world, STALLED).await;
    let before = resident();
    let mut grown = [0.0; 2];
    for (grown, first) in grown.iter_mut().zip([CHANGES, CHANGES * 2]) {
        for generation in first..first + CHANGES {
            change(generation).await;
        }
        *grown = (resident() - before).max(0.0) / STALLED as f64;
    }
    drop(streams);
    grown
}

pub(crate) async fn figures() -> Vec<Figure> {
    let world = World::with_hosts(Sync::Nothing, 10_000).await;
    let told = one_change(&world).await;
    let [once, twice] = stalled(&world).await;
    vec![
        Figure {
            name: format!("{WATCHERS} watchers, one change, until all are told"),
            goal: "< 100 ms",
            measured: format!("{:.0} ms", told.as_secs_f64() * 1e3),
            ok: Some(told < Duration::from_millis(100)),
        },
        Figure {
            name: format!("{STALLED} watchers that do not read, {CHANGES} changes, as many again"),
            goal: "< 1 MiB each",
            measured: format!("{once:.0} KiB each; {twice:.0}"),
            ok: Some(once.max(twice) < KIB_EACH),
        },
    ]
}
