//! `ApplyCluster` of new clusters, with what the disk takes.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use proto::placement::v1 as api;

use crate::{
    Figure,
    storage::Sync,
    world::{World, apply},
};

const CLIENTS: usize = 64;
/// So many that what the first of each client takes longer is not what the last percent is.
const CLUSTERS: usize = 5120;
/// A region has many sites; the clients are of all of them.
const SITES: usize = 8;
/// The last percent are some fifty calls, which one pause of the machine holds up together: of several runs the median counts.
const RUNS: usize = 5;
const HOSTS: u32 = 10_000;

/// The goal, as a multiple of what one client gets done; with a little more than it, so that what is offered is what is asked for.
const GOAL: f64 = 10.0;
const OFFERED: f64 = 10.5;

struct Run {
    rate: f64,
    p99: Duration,
    per_sync: f64,
}

/// When the clients call.
#[derive(Clone, Copy)]
enum Pace {
    /// Each as soon as its last call is answered: how much there is to get. What a call takes then is as long as the queue.
    Full,
    /// So many calls a second by all together. A call that begins late, since the one before it took so long, has taken that time
    /// too.
    PerSecond(f64),
}

/// New clusters of 3 + 4 by so many clients, each one after the other. All are connected before the first of them.
async fn run(world: &World, prefix: &str, clients: usize, clusters: usize, pace: Pace) -> Run {
    let mut connected = world.placements(clients);
    for client in &mut connected {
        client
            .list_placements(api::ListPlacementsRequest::default())
            .await
            .unwrap();
    }
    let before = world.syncs.load(Ordering::Relaxed);
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for (index, mut client) in connected.into_iter().enumerate() {
        let prefix = format!("{prefix}-{index}");
        let site = site(index % SITES);
        tasks.spawn(async move {
            let mut took = Vec::new();
            for number in 0..clusters / clients {
                let due = match pace {
                    Pace::Full => Instant::now(),
                    Pace::PerSecond(rate) => {
                        let nth = u32::try_from(number * clients + index).unwrap();
                        let due = start + Duration::from_secs_f64(1.0 / rate) * nth;
                        tokio::time::sleep_until(due.into()).await;
                        due
                    }
                };
                let answer = client
                    .apply_cluster(apply(&site, &format!("{prefix}-{number}"), 1, 4))
                    .await;
                let placement = answer.unwrap().into_inner().placement.unwrap();
                assert_eq!(placement.members.len(), 7, "the site is large enough");
                took.push(due.elapsed());
            }
            took
        });
    }
    let mut took: Vec<Duration> = tasks.join_all().await.concat();
    let count = took.len() as f64;
    took.sort_unstable();
    let syncs = world.syncs.load(Ordering::Relaxed) - before;
    Run {
        rate: count / start.elapsed().as_secs_f64(),
        p99: took[took.len() * 99 / 100],
        per_sync: count / syncs.max(1) as f64,
    }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn site(index: usize) -> String {
    format!("site-{index}")
}

async fn world(sync: Sync) -> World {
    let mut world = World::empty(sync).await;
    for index in 0..SITES {
        world.report(&site(index), HOSTS).await;
    }
    world
}

pub(crate) async fn figures() -> Vec<Figure> {
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let slow = world(Sync::Disk(Duration::from_millis(2))).await;
        let single = run(&slow, "single", 1, 100, Pace::Full).await;
        let many = run(&slow, "many", CLIENTS, CLUSTERS, Pace::Full).await;
        let slow = world(Sync::Disk(Duration::from_millis(2))).await;
        let offered = Pace::PerSecond(single.rate * OFFERED);
        let paced = run(&slow, "paced", CLIENTS, CLUSTERS, offered).await;
        runs.push((single, many, paced));
    }
    runs.sort_by_key(|(_, _, paced)| paced.p99);
    let (best, worst) = (runs[0].2.p99, runs[RUNS - 1].2.p99);
    let (single, many, paced) = runs.swap_remove(RUNS / 2);
    let disk = world(Sync::Disk(Duration::ZERO)).await;
    let bare = run(&disk, "bare", CLIENTS, CLUSTERS, Pace::Full).await;
    drop(disk);
    let nothing = world(Sync::Nothing).await;
    let without = run(&nothing, "without", CLIENTS, CLUSTERS, Pace::Full).await;
    let (gain, kept) = (many.rate / single.rate, bare.rate / without.rate);
    let (done, late) = (paced.rate / single.rate, milliseconds(many.p99));
    vec![
        Figure {
            name: format!("ApplyCluster of new 3 + 4, {SITES} sites, {CLIENTS} clients, 2 ms more per sync"),
            goal: ">= 10 x one client's rate",
            measured: format!(
                "{gain:.1} x ({:.0}/s, one client {:.0}/s; {:.1} per sync; 99th percentile {late:.1} ms)",
                many.rate, single.rate, many.per_sync
            ),
            ok: Some(gain >= GOAL),
        },
        Figure {
            name: format!("at {OFFERED} x one client's rate, 99th percentile, median of {RUNS} runs"),
            goal: "< 20 ms at >= 10 x",
            measured: format!(
                "{:.1} ms at {done:.1} x (best {:.1}, worst {:.1})",
                milliseconds(paced.p99),
                milliseconds(best),
                milliseconds(worst)
            ),
            ok: Some(paced.p99 < Duration::from_millis(20) && done >= GOAL),
        },
        Figure {
            name: "the same on the bare disk".to_owned(),
            goal: ">= 50 % of the rate without sync",
            measured: format!(
                "{:.0} % ({:.0}/s, without {:.0}/s; {:.1} per sync)",
                kept * 100.0,
                bare.rate,
                without.rate,
                bare.per_sync
            ),
            ok: Some(kept >= 0.5),
        },
    ]
}
