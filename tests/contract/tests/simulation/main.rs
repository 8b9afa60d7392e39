//! The real gRPC services and a ledger on a storage in memory, with two processes of a cluster agent, on a simulated
//! network: partitions in one or both directions, messages that are held back, crashes of every process, elections. All of
//! it runs in one thread, in an order that the seed says.
//!
//! Whatever happens, no host is held by two clusters at one revision, none has the labels of a cluster that does not hold
//! it, and no answered claim is lost; and once the network is whole again, everything settles.
//!
//! `SOAK_SCHEDULES` is the number of schedules, `SOAK_SEED` the seed of the first.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, its fixtures too"
)]

mod agent;
mod faults;
mod history;
mod network;
mod scheduler;
mod world;

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rand::{SeedableRng as _, rngs::StdRng};
use turmoil::{Builder, Sim};

use agent::Agent;
use faults::Faults;
use history::History;
use scheduler::Disk;
use world::World;

/// How long bad things happen, in simulated time.
const TROUBLE: Duration = Duration::from_secs(4);
/// How long everything may take to settle then.
const PEACE: Duration = Duration::from_mins(1);
/// How often labels are compared with the ledger.
const CHECK: Duration = Duration::from_millis(10);
const LOOK: Duration = Duration::from_millis(100);

/// What was seen, for people.
#[derive(Debug, Default)]
struct Counts {
    answers: usize,
    moved: usize,
    faults: usize,
    crashes: usize,
    elections: usize,
    commits: u64,
    slowest_peace_ms: u128,
}

/// The value of an environment variable that sets how much a test does.
fn soak_setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

#[test]
fn network_faults_break_no_promise_and_all_converges() {
    let schedules = soak_setting("SOAK_SCHEDULES", 20);
    let first = soak_setting("SOAK_SEED", 1);
    let since = Instant::now();
    let mut counts = Counts::default();
    for seed in first..first + schedules {
        schedule(seed, &mut counts);
    }
    println!(
        "{schedules} schedules, seeds {first}..{}, {:.1} s: {counts:?}; double holds: 0, lost claims: 0",
        first + schedules,
        since.elapsed().as_secs_f64()
    );
    assert!(
        counts.moved > 0 && counts.crashes > 0 && counts.elections > 0,
        "nothing is shown: {counts:?}"
    );
}

fn schedule(seed: u64, counts: &mut Counts) {
    let world = Arc::new(Mutex::new(World::new()));
    let history = Arc::new(Mutex::new(History::default()));
    let disk = Disk::new();
    let mut sim = Builder::new()
        .rng_seed(seed)
        .simulation_duration(TROUBLE + PEACE + PEACE)
        .tick_duration(Duration::from_millis(2))
        .max_message_latency(Duration::from_millis(10))
        .build();
    let served = disk.clone();
    sim.host("scheduler", move || scheduler::serve(served.clone()));
    for number in 0..2 {
        let agent = Agent::new(number, seed, Arc::clone(&world), Arc::clone(&history));
        sim.host(agent.host(), move || agent.clone().run());
    }
    let mut faults = Faults::new(StdRng::seed_from_u64(seed), Arc::clone(&world));
    let mut next_check = Duration::ZERO;
    while sim.elapsed() < TROUBLE {
        step(&mut sim, seed);
        faults.strike(&mut sim);
        if sim.elapsed() >= next_check {
            next_check = sim.elapsed() + CHECK;
            let wrong = world.lock().unwrap().mislabelled(&disk.contents());
            assert!(wrong.is_none(), "seed {seed}: {wrong:?} at {:?}", sim.elapsed());
        }
    }
    Faults::heal(&mut sim);
    let peace = sim.elapsed();
    loop {
        let next = sim.elapsed() + LOOK;
        while sim.elapsed() < next {
            step(&mut sim, seed);
        }
        let unsettled = world.lock().unwrap().unsettled(&disk.contents());
        match unsettled {
            None => break,
            Some(what) if sim.elapsed() > peace + PEACE => {
                let world = world.lock().unwrap();
                panic!(
                    "seed {seed}: {what} after {PEACE:?} of peace: {world:#?}\n{:#?}",
                    disk.contents()
                );
            }
            Some(_) => {}
        }
    }
    let verdict = history.lock().unwrap().verdict(&disk.contents());
    assert!(
        verdict.double_holds.is_empty() && verdict.lost_claims.is_empty(),
        "seed {seed}: {verdict:#?}"
    );
    counts.answers += verdict.answers;
    counts.moved += verdict.moved;
    counts.faults += faults.struck;
    counts.crashes += faults.crashes;
    counts.elections += faults.elections;
    counts.commits += disk.contents().commit.number();
    counts.slowest_peace_ms = counts
        .slowest_peace_ms
        .max(sim.elapsed().saturating_sub(peace).as_millis());
}

fn step(sim: &mut Sim<'_>, seed: u64) {
    if let Err(error) = sim.step() {
        panic!("seed {seed}: {error}");
    }
}
