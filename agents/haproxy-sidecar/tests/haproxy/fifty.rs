//! Changes of all kinds, one upon the other, under steady traffic.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::configuration::{Configuration, PORT};
use crate::rig::{Addresses, Pod};
use crate::traffic::{Absences, Traffic};

/// Members by name, each at one of two addresses.
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Another configuration: mostly other members, sometimes more than that.
fn another(random: &mut StdRng, before: &Configuration, addresses: Addresses) -> Configuration {
    let mut next = before.clone();
    let which = random.random_range(0..NAMES.len());
    let name = NAMES[which].to_owned();
    let address = |other: bool| addresses.get(1 + 2 * u16::try_from(which).unwrap() + u16::from(other));
    match random.random_range(0..10) {
        // Mostly there and back.
        0..6 => match next.members.remove(&name) {
            None => drop(next.members.insert(name, address(false))),
            // Nobody promises anything without members.
            Some(there) if next.members.is_empty() => drop(next.members.insert(name, there)),
            Some(_) => {}
        },
        6..8 => {
            if let Some(there) = next.members.get_mut(&name) {
                *there = address(*there == address(false));
            }
        }
        8 => next.note = format!("# {}", random.random_range(0..1_000)),
        _ => {
            next.template = !next.template;
            next.note = format!("# {}", random.random_range(0..1_000));
        }
    }
    next
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_changes_cut_only_connections_to_members_that_left() {
    const STEADY: usize = 200;
    const CHANGES: usize = 50;
    let seed: u64 = std::env::var("SOAK_SEED")
        .map_or_else(|_| u64::from(std::process::id()), |seed| seed.parse().unwrap());
    println!("SOAK_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let drain = Duration::from_millis(700);
    let mut pod = Pod::empty(drain);
    let addresses = pod.addresses;
    for (which, name) in (0..).zip(NAMES) {
        pod.member(name, addresses.get(1 + 2 * which)).await;
        pod.member(name, addresses.get(2 + 2 * which)).await;
    }
    let front = addresses.get(0);
    let mut now = Configuration::new(front)
        .with("a", addresses.get(1))
        .with("b", addresses.get(3));
    pod.want(&now);
    pod.until("a configuration is written", |report| report.started)
        .await;
    pod.start_haproxy();
    pod.runs(&now).await;

    let traffic = Traffic::start((front, PORT).into(), STEADY);
    let mut absences = Absences::default();
    let of = |members: &BTreeMap<String, Ipv4Addr>| -> BTreeSet<String> {
        let members = members.iter();
        members
            .map(|(name, address)| format!("{name}@{address}"))
            .collect()
    };
    let mut waited = 0;
    for _ in 0..CHANGES {
        let next = another(&mut random, &now, addresses);
        let (before, after) = (of(&now.members), of(&next.members));
        for left in before.difference(&after) {
            absences.left(left);
        }
        for came in after.difference(&before) {
            absences.came(came);
        }
        now = next;
        pod.want(&now);
        // The next change mostly comes while this one is under way.
        if random.random_bool(0.3) {
            pod.runs(&now).await;
            waited += 1;
        } else {
            tokio::time::sleep(Duration::from_millis(random.random_range(0..600))).await;
        }
    }
    pod.runs(&now).await;
    let seen = traffic.end().await;
    let unexplained: Vec<_> = seen
        .cut
        .iter()
        .filter(|(member, cut)| !absences.explains(member, *cut, drain))
        .collect();
    println!(
        "{CHANGES} changes, {waited} waited for, {} reloads; {} connections opened, {} words heard again, {} cut with members that left",
        pod.metrics.reloads(),
        seen.opened,
        seen.echoed,
        seen.cut.len()
    );
    assert_eq!(seen.refused, [""; 0], "of {} connections", seen.opened);
    assert!(unexplained.is_empty(), "{unexplained:#?}\n{absences:#?}");
    assert!(
        seen.cut.len() > 10 && seen.echoed > 1_000,
        "this has shown nothing"
    );
}
