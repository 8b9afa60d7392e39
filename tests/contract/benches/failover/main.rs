//! How long a region is without a scheduler when the one that leads is killed: real processes on a real etcd.
#![allow(missing_docs, reason = "a program")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a bench may stop"
)]
#![allow(dead_code, unused_imports, reason = "it needs little of what the tests share")]

#[path = "../../tests/schedulers/client.rs"]
mod client;
#[path = "../../tests/schedulers/region.rs"]
mod region;

use std::{
    collections::BTreeMap,
    process::ExitCode,
    time::{Duration, Instant},
};

use comfy_table::{Table, presets::ASCII_MARKDOWN};

use crate::region::{LEASE, Region, assert_kept};

/// Kills of a leader.
const KILLS: usize = 10;
/// Clusters that were promised before.
const CLUSTERS: usize = 50;
const GOAL: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> ExitCode {
    let mut region = Region::start(3, 3).await;
    let mut leader = region.leader(None).await;
    let reports = region.reported(leader).await;
    let mut promised = BTreeMap::new();
    for index in 0..CLUSTERS {
        let name = format!("c{index}");
        let placement = region.schedulers[leader].client.apply(&name, 3).await.unwrap();
        promised.insert(name, placement);
    }
    drop(reports);

    let mut waits = Vec::new();
    for _ in 0..KILLS {
        let killed = Instant::now();
        region.schedulers[leader].process.kill9().await.unwrap();
        let next = region.leader(Some(leader)).await;
        waits.push(killed.elapsed());
        assert_kept(&promised, &region.schedulers[next].client.list().await.unwrap());
        region.schedulers[leader].process.restart().await.unwrap();
        leader = next;
    }
    waits.sort();
    let (median, longest) = (waits[KILLS / 2], waits[KILLS - 1]);
    let met = longest < GOAL;
    let mut table = Table::new();
    table
        .load_style(ASCII_MARKDOWN)
        .set_header(["figure", "goal", "measured", "ok"])
        .add_row([
            format!("leader killed -> new leader answers, etcd, lease {LEASE:?}: longest of {KILLS}"),
            format!("< {GOAL:?}"),
            format!("{longest:.2?} (median {median:.2?}), every promise kept"),
            (if met { "yes" } else { "NO" }).to_owned(),
        ]);
    println!("{table}");
    if met {
        ExitCode::SUCCESS
    } else {
        eprintln!("a figure misses its goal");
        ExitCode::FAILURE
    }
}
