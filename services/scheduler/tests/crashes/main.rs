//! Power is cut at every write, every resize and every sync of the ledger's file: what was acknowledged is there when
//! it is opened again, and what is there is a prefix of what was submitted.
//!
//! `SOAK_CRASHES` is the number of workloads, `SOAK_SEED` the seed of the first. Without `SOAK_CRASHES` there is a short one,
//! and each cut is looked at with one choice of what survived it instead of all.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, its fixtures too"
)]

mod disk;
mod workload;

use rand::{SeedableRng as _, rngs::StdRng};
use scheduler::ledger::{Ledger as _, redb::Redb};

use disk::{Cut, Disk, Survivors};
use workload::{Log, Submitted};

/// What was done, for people.
#[derive(Debug, Default)]
struct Counts {
    operations: u64,
    crashes: u64,
    crashes_while_opening: u64,
    torn: u64,
    /// Crashes after which something was there that nobody had been told of: it is allowed, and shows that cuts hit
    /// between a sync and its answer.
    unacknowledged_survived: u64,
}

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

#[test]
fn a_power_cut_loses_nothing_acknowledged() {
    let seed = number("SOAK_SEED", 1);
    let soak = std::env::var_os("SOAK_CRASHES").is_some();
    let workloads = number("SOAK_CRASHES", 1);
    let mut counts = Counts::default();
    for seed in seed..seed + workloads {
        cut_everywhere(seed, soak, &mut counts);
    }
    println!("seeds {seed}..{}: {counts:?}", seed + workloads);
    assert!(
        counts.torn > 0 && counts.unacknowledged_survived > 0 && counts.crashes_while_opening > 0,
        "the cuts have not hit what they are for: {counts:?}"
    );
}

fn cut_everywhere(seed: u64, soak: bool, counts: &mut Counts) {
    let submitted = Submitted::random(&mut StdRng::seed_from_u64(seed), if soak { 24 } else { 12 });
    // A new ledger is made beside its place and moved there when it is whole, so it is never seen half made.
    let made = Disk::holding(Vec::new());
    drop(Redb::on(made.clone()).unwrap());
    let made = made.seen();
    let whole = Disk::holding(made.clone());
    let log = submitted.run(&whole);
    assert_eq!(
        log.acknowledged,
        submitted.changes().len(),
        "without a cut everything is acknowledged"
    );
    let operations = whole.operations();
    counts.operations += operations;
    for at in 1..=operations {
        let disk = Disk::holding_with_cut(made.clone(), Cut { at });
        let log = submitted.run(&disk);
        assert!(disk.is_cut(), "seed {seed}: operation {at} was never reached");
        for (number, survivors) in (0u64..).zip(Survivors::ALL) {
            if !soak && at % 4 != number {
                continue;
            }
            let mut rng = StdRng::seed_from_u64(seed ^ (at << 8) ^ (number << 56));
            let context = format!("seed {seed}, cut at operation {at} of {operations}, {survivors:?}");
            let (image, torn) = disk.image(survivors, &mut rng);
            counts.torn += u64::from(torn);
            counts.crashes += 1;
            cut_while_opening(&submitted, &log, &image, &context, &mut rng, counts);
            check(&submitted, &log, &Disk::holding(image), &context, counts);
        }
    }
}

/// Opening repairs, which writes: it is cut too, once per image at a place that the seed says.
fn cut_while_opening(
    submitted: &Submitted,
    log: &Log,
    image: &[u8],
    context: &str,
    rng: &mut StdRng,
    counts: &mut Counts,
) {
    let whole = Disk::holding(image.to_vec());
    drop(Redb::on(whole.clone()).unwrap_or_else(|error| panic!("{context}: {error:?}")));
    let at = rand::Rng::random_range(rng, 1..=whole.operations());
    let disk = Disk::holding_with_cut(image.to_vec(), Cut { at });
    drop(Redb::on(disk.clone()));
    let context = format!("{context}, then cut at operation {at} while it was opened");
    assert!(disk.is_cut(), "{context}: it was never reached");
    counts.crashes_while_opening += 1;
    let (image, torn) = disk.image(Survivors::Some, rng);
    counts.torn += u64::from(torn);
    check(submitted, log, &Disk::holding(image), &context, counts);
}

/// Opens what is left, compares it with what was submitted and acknowledged, and writes on.
fn check(submitted: &Submitted, log: &Log, disk: &Disk, context: &str, counts: &mut Counts) {
    let ledger = Redb::on(disk.clone()).unwrap_or_else(|error| panic!("{context}: {error:?}"));
    let found = submitted.find(&ledger, context);
    assert!(
        found >= log.acknowledged,
        "{context}: {} changes were acknowledged and {found} are there",
        log.acknowledged
    );
    counts.unacknowledged_survived += u64::from(found > log.acknowledged);
    // It goes on: the rest of the workload ends where it would have ended.
    if let Some(next) = submitted.changes().get(found) {
        ledger.commit(std::slice::from_ref(next)).unwrap();
        drop(ledger);
        let again = Redb::on(disk.clone()).unwrap_or_else(|error| panic!("{context}: {error:?}"));
        assert_eq!(submitted.find(&again, context), found + 1, "{context}");
    }
}
