//! The real process is killed again and again under load, and a checker of histories says whether a promise was broken.
//!
//! Sixteen clients, each the agent of its clusters, let them grow, shrink and go, label and unlabel hosts, confirm, and read
//! each other's placements; four sites report their hosts. Every answer is kept. No host may have been held by two clusters
//! at one revision; what was answered once is there until it is given back; and a read never tells less than an answer
//! that came before it was asked.
//!
//! `SOAK_KILLS` is the number of kills, `SOAK_SEED` the seed of the clients and of the moments of the kills.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, its fixtures too"
)]

mod client;
mod history;
mod process;
mod reporter;
mod site;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use proto::placement::v1::{ListPlacementsRequest, placement_service_client::PlacementServiceClient};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use scheduler::ledger::{Ledger as _, redb::Redb};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use client::Client;
use history::{History, Verdict};
use process::Process;
use site::Site;

const SITES: usize = 4;
const CLIENTS: usize = 16;
/// Hosts of a site: fewer than its clusters want together.
const HOSTS: usize = 12;
/// Clusters of each client.
const CLUSTERS: usize = 2;

/// What everybody shares.
struct Load {
    address: String,
    sites: Vec<Site>,
    history: History,
    /// Calls that were answered.
    answered: AtomicU64,
    stop: CancellationToken,
}

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_under_load_neither_lose_a_claim_nor_give_a_host_away_twice() {
    let kills = number("SOAK_KILLS", 10);
    let seed = number("SOAK_SEED", 1);
    let since = Instant::now();
    let mut process = Process::start().await;
    let load = Arc::new(Load {
        address: process.address(),
        sites: (0..SITES).map(Site::new).collect(),
        history: History::default(),
        answered: AtomicU64::new(0),
        stop: CancellationToken::new(),
    });
    let mut tasks = JoinSet::new();
    for site in 0..SITES {
        tasks.spawn(reporter::run(Arc::clone(&load), site));
    }
    for number in 0..CLIENTS {
        let rng = StdRng::seed_from_u64(seed << 8 | u64::try_from(number).unwrap());
        tasks.spawn(Client::new(Arc::clone(&load), number, rng).run());
    }
    let mut rng = StdRng::seed_from_u64(seed);
    for _ in 0..kills {
        progress(&load, rng.random_range(1..200)).await;
        tokio::time::sleep(Duration::from_micros(rng.random_range(0..20_000))).await;
        process.kill_and_start().await;
    }
    progress(&load, 200).await;
    load.stop.cancel();
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    at_rest(&load).await;
    let path = process.end();

    let Verdict {
        answers,
        reads,
        moved,
        double_holds,
        lost_claims,
        stale_reads,
    } = load.history.verdict();
    let ledger = Redb::open(&path).unwrap();
    let on_disk = ledger.load().unwrap();
    println!(
        "{kills} kills -9, seed {seed}, {:.1} s: {answers} answers and {reads} reads by {CLIENTS} clients, {moved} moves of \
         hosts between clusters, at {}; double holds: {}, lost claims: {}, stale reads: {}",
        since.elapsed().as_secs_f64(),
        on_disk.position,
        double_holds.len(),
        lost_claims.len(),
        stale_reads.len(),
    );
    assert!(
        double_holds.is_empty() && lost_claims.is_empty() && stale_reads.is_empty(),
        "{double_holds:#?}\n{lost_claims:#?}\n{stale_reads:#?}"
    );
    assert!(moved > 0, "no host ever moved: the load shows nothing");
    let mut held: Vec<_> = on_disk
        .records
        .iter()
        .flat_map(|(key, record)| record.members.keys().map(|id| (key.site.clone(), id.clone())))
        .collect();
    let all = held.len();
    held.sort();
    held.dedup();
    assert_eq!(held.len(), all, "a host is in two records on disk");
}

/// Waits until so many more calls were answered: the process is up, and busy.
async fn progress(load: &Load, more: u64) {
    let goal = load.answered.load(Ordering::Relaxed) + more;
    let reached = async {
        while load.answered.load(Ordering::Relaxed) < goal {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), reached)
        .await
        .unwrap_or_else(|_| panic!("nothing is answered any more"));
}

/// What is listed in the end is what was answered last.
async fn at_rest(load: &Load) {
    let mut placements = PlacementServiceClient::connect(load.address.clone())
        .await
        .unwrap();
    let listed = placements
        .list_placements(ListPlacementsRequest {
            page_size: 1000,
            ..ListPlacementsRequest::default()
        })
        .await
        .unwrap()
        .into_inner();
    for placement in &listed.placements {
        load.history.listed(placement);
    }
}
