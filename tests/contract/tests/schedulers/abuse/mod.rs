//! All attacks at once, on one scheduler with real certificates: a reader, a site's load-balancer agent, that site's cluster
//! agent, and strangers. Sixteen clients of other sites claim and release hosts meanwhile, and the checker of histories says
//! whether a promise to them was broken.
//!
//! `SOAK_ABUSE_SECONDS` is the length of the attack, and `SOAK_SEED` the seed of attackers and clients.

mod attack;
mod callers;
mod numbers;
mod reporter;
mod scheduler;
mod strangers;

use std::{sync::Arc, time::Duration};

use sandbox::authority::Caller;
use tokio::task::JoinSet;

use crate::{
    killed::{CLIENTS, SITES, Working, seed, soak_setting},
    pki::Pki,
};
use attack::Attack;
use scheduler::{Scheduler, Storage};

/// The attackers' site.
const HOSTILE: &str = "hostile";
/// Memory that the scheduler may take, in MiB.
const MEMORY: u64 = 300;
/// How long the clients work alone, for the figures beside them.
const QUIET: Duration = Duration::from_secs(3);

/// Median, 99th percentile and longest, for people.
fn figures(durations: &[Duration]) -> String {
    let at = |percent: usize| {
        durations.get((durations.len() * percent / 100).min(durations.len().saturating_sub(1)))
    };
    match (at(50), at(99), durations.last()) {
        (Some(median), Some(tail), Some(longest)) => {
            format!(
                "{} changes, p50 {median:.1?}, p99 {tail:.1?}, longest {longest:.1?}",
                durations.len()
            )
        }
        _ => "no change".to_owned(),
    }
}

/// Everybody who attacks.
fn begin(attack: &Arc<Attack>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let load_balancer = Caller::Agent {
        site: HOSTILE,
        name: "load-balancer",
    };
    for number in 0..callers::CALLERS {
        tasks.spawn(callers::run(
            Arc::clone(attack),
            Caller::Reader("hostile"),
            number,
        ));
        tasks.spawn(callers::run(Arc::clone(attack), load_balancer.clone(), number));
    }
    for number in 0..reporter::REPORTERS {
        tasks.spawn(reporter::run(Arc::clone(attack), number));
    }
    tasks.spawn(strangers::silent(Arc::clone(attack)));
    tasks.spawn(strangers::garbage(Arc::clone(attack)));
    tasks.spawn(strangers::forgers(Arc::clone(attack)));
    tasks
}

async fn attacked(storage: Storage) {
    let seconds = soak_setting("SOAK_ABUSE_SECONDS", 10);
    let seed = seed();
    let victims: Vec<String> = (0..SITES).map(|site| format!("site-{site}")).collect();
    let mut sites = victims.clone();
    sites.push(HOSTILE.to_owned());
    let scheduler = Scheduler::start(storage, &sites).await;
    let pki: &Arc<Pki> = &scheduler.pki;
    let address = format!("http://{}", scheduler.address);
    let working = Working::start_with(address, Some(Arc::clone(pki)), seed);
    working.progress(1000).await;
    working.take_durations();
    tokio::time::sleep(QUIET).await;
    let quiet = working.take_durations();

    let (address, health) = (scheduler.address.clone(), scheduler.health.clone());
    let attack = Arc::new(Attack::new(
        address,
        health,
        Arc::clone(pki),
        victims.clone(),
        seed,
    ));
    strangers::assert_good_is_accepted(&attack).await;
    let mut attackers = begin(&attack);
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let beside = working.take_durations();
    attack.stop.cancel();
    while let Some(ended) = attackers.join_next().await {
        ended.unwrap();
    }

    println!("{storage:?}, {seconds} s, SOAK_SEED={seed}: {}", attack.summary());
    println!(
        "ApplyCluster of {CLIENTS} clients\n  quiet:  {}\n  beside: {}",
        figures(&quiet),
        figures(&beside)
    );
    assert!(beside.len() > CLIENTS, "the clients of other sites are served");
    let (refused, accepted) = (
        attack.counted(strangers::FORGED, strangers::REFUSED),
        attack.counted(strangers::FORGED, strangers::ACCEPTED),
    );
    assert!(
        refused > 0 && accepted == 0,
        "{refused} forged certificates refused, {accepted} accepted"
    );
    let memory = scheduler.peak_memory();
    println!("the scheduler's memory was {memory} MiB at most");
    assert!(memory < MEMORY, "{memory} MiB");
    let positions = scheduler.positions(&victims).await;
    for (site, position) in &positions {
        assert_eq!(
            position.epoch, 1,
            "{site} is where nobody of the attackers can move it: {position:?}"
        );
    }
    working.end(&format!("beside {seconds} s of attacks")).await;
    scheduler.assert_audited(&attack.denied());
    scheduler.assert_refusals_audited(refused).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attacks_on_a_file_lose_and_double_no_claim_of_others() {
    attacked(Storage::File).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attacks_on_etcd_lose_and_double_no_claim_of_others() {
    attacked(Storage::Etcd).await;
}
