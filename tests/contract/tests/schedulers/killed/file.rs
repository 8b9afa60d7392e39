//! One scheduler with a file.

use std::time::Duration;

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use scheduler::ledger::{Ledger as _, redb::Redb};

use super::{Working, process::Process, seed, soak_setting};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_under_load_lose_and_double_no_claim() {
    let kills = soak_setting("SOAK_KILLS", 10);
    let seed = seed();
    let mut process = Process::start().await;
    let working = Working::start(process.address(), seed);
    let mut rng = StdRng::seed_from_u64(seed);
    for _ in 0..kills {
        working.progress(rng.random_range(1..200)).await;
        tokio::time::sleep(Duration::from_micros(rng.random_range(0..20_000))).await;
        process.kill_and_start().await;
    }
    working.progress(200).await;
    working.end(&format!("{kills} kills -9")).await;
    let path = process.end();

    let on_disk = Redb::open(&path).unwrap().load().unwrap();
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
