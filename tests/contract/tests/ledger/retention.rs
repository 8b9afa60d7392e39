//! How long entries of the log are kept, and how it is read.

use std::time::Duration;

use proto::placement::v1 as api;
use scheduler::ledger::{Commit, Ledger, Query, Retention};

use crate::{
    backends::{Bed, Uptime},
    changes::Model,
    contract::{add, batch, commit, revision, sized_in, whole_log},
};

fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

fn in_site<'a>(log: &'a [api::Decision], site: &str) -> Vec<&'a api::Decision> {
    log.iter().filter(|entry| entry.site == site).collect()
}

pub(crate) fn age(bed: &dyn Bed) {
    let retention = Retention {
        age: seconds(900),
        ..Retention::default()
    };
    let uptime = Uptime::default();
    let ledger = bed.open_with(retention, uptime.clone());
    let mut model = Model::new();
    for second in 0..90 {
        uptime.set(seconds(second * 10));
        add(&*ledger, &mut model, "a", (4, 1));
    }
    assert_eq!(whole_log(&*ledger), model.log, "nothing is old");
    drop(ledger);

    // Another process goes on with the clock of the one before, and removes so much with each commit.
    let ledger = bed.open_with(retention, uptime.clone());
    uptime.set(seconds(500));
    for _ in 0..100 {
        add(&*ledger, &mut model, "a", (4, 1));
    }

    let log = whole_log(&*ledger);
    assert!(model.log.ends_with(&log), "the newest entries are kept");
    let removed = model.log.len() - log.len();
    // The clock stands at 890 + 500, so what was written before 490 is too old: 49 batches, or one less by a slot.
    assert!((48 * 4..=49 * 4).contains(&removed), "{removed} are gone");
}

pub(crate) fn single(bed: &dyn Bed) {
    const OLD: usize = 300;
    // On etcd a trimming removes whole pages. A page has about 40 entries of this size, so the budget decides how many pages go.
    const BYTES: usize = 100_000;
    let retention = Retention {
        age: seconds(900),
        ..Retention::default()
    };
    let uptime = Uptime::default();
    let ledger = bed.open_with(retention, uptime.clone());
    let mut model = Model::new();
    let write = |model: &mut Model, count: usize, bytes: usize| {
        for _ in 0..count {
            add(&*ledger, model, "a", (1, bytes));
        }
    };
    write(&mut model, OLD, BYTES);
    // The first of these begins another slot of time, so only those before it are too old.
    uptime.set(seconds(20));
    write(&mut model, 1, 4000);
    uptime.set(seconds(1000));
    write(&mut model, 400, 4000);
    let log = whole_log(&*ledger);
    assert!(model.log.ends_with(&log), "the newest entries are kept");
    assert_eq!(model.log.len() - log.len(), OLD, "all that are too old are gone");
}

pub(crate) fn shares(bed: &dyn Bed) {
    let retention = Retention {
        bytes: 20_000,
        ..Retention::default()
    };
    let mut model = Model::new();
    let ledger = bed.open_retaining(retention);
    for _ in 0..4 {
        add(&*ledger, &mut model, "quiet", (5, 400));
    }
    drop(ledger);
    for round in 0..3 {
        let ledger = bed.open_retaining(retention);
        for step in 0..40 {
            add(&*ledger, &mut model, "noisy", (10, 400));
            if step == 20 {
                add(&*ledger, &mut model, "quiet", (1, 400));
            }
        }
        let log = whole_log(&*ledger);
        assert_eq!(
            in_site(&log, "quiet"),
            in_site(&model.log, "quiet"),
            "round {round}"
        );
        let noisy = in_site(&log, "noisy");
        assert!(
            in_site(&model.log, "noisy").ends_with(&noisy),
            "the newest entries are kept"
        );
        let bytes: usize = noisy
            .iter()
            .map(|entry| prost::Message::encoded_len(*entry))
            .sum();
        assert!(
            (15_000..=20_000).contains(&bytes),
            "round {round}: {bytes} bytes are kept"
        );
    }
}

/// Bytes of the entries of a site.
fn bytes_of(ledger: &dyn Ledger, site: &str) -> usize {
    let log = whole_log(ledger);
    let entries = in_site(&log, site).into_iter();
    entries.map(prost::Message::encoded_len).sum()
}

pub(crate) fn uneven(bed: &dyn Bed) {
    let retention = Retention {
        bytes: 200_000,
        ..Retention::default()
    };
    let mut model = Model::new();
    let ledger = bed.open_retaining(retention);
    // More entries in a batch than one transaction of etcd has operations.
    for _ in 0..12 {
        add(&*ledger, &mut model, "a", (300, 200));
    }
    let bytes = bytes_of(&*ledger, "a");
    assert!(bytes <= 200_000, "{bytes} bytes are kept of large batches");
    // Small entries of two sites, one after the other, and then large ones of one of them.
    let mut small = batch(&model, 300, |model| sized_in(model, "a", Duration::ZERO, 50));
    for _ in 0..6 {
        commit(&*ledger, &mut model, &small);
        let mut number = 0;
        small = batch(&model, 300, |model| {
            number += 1;
            let site = if number % 2 == 0 { "a" } else { "b" };
            sized_in(model, site, Duration::ZERO, 50)
        });
    }
    let kept = bytes_of(&*ledger, "b");
    for step in 0..8 {
        add(&*ledger, &mut model, "a", (8, 20_000));
        let bytes = bytes_of(&*ledger, "a");
        assert!(bytes <= 200_000, "step {step}: {bytes} bytes are kept");
    }
    assert_eq!(bytes_of(&*ledger, "b"), kept, "another site's entries stay");
    let log = whole_log(&*ledger);
    assert!(in_site(&model.log, "a").ends_with(&in_site(&log, "a")));
}

pub(crate) fn old_and_full(bed: &dyn Bed) {
    let retention = Retention {
        age: seconds(900),
        bytes: 2_000_000,
    };
    let uptime = Uptime::default();
    let ledger = bed.open_with(retention, uptime.clone());
    let mut model = Model::new();
    for _ in 0..6 {
        add(&*ledger, &mut model, "b", (300, 1000));
    }
    uptime.set(seconds(20));
    for _ in 0..12 {
        add(&*ledger, &mut model, "a", (8, 20_000));
    }
    drop(ledger);

    // The clock goes on, so all entries of the one site are too old. Which entries are of which site has to be read again.
    let ledger = bed.open_with(retention, uptime.clone());
    uptime.set(seconds(910));
    for step in 0..12 {
        add(&*ledger, &mut model, "a", (8, 20_000));
        let bytes = bytes_of(&*ledger, "a");
        assert!(bytes <= 2_000_000, "step {step}: {bytes} bytes are kept");
        assert!(bytes > 1_900_000, "step {step}: {bytes} bytes are kept");
    }
    let log = whole_log(&*ledger);
    assert!(in_site(&model.log, "a").ends_with(&in_site(&log, "a")));
    assert_eq!(bytes_of(&*ledger, "b"), 0, "what is too old goes");
}

pub(crate) fn jumps(bed: &dyn Bed) {
    let uptime = Uptime::default();
    let ledger = bed.open_with(Retention::default(), uptime.clone());
    let mut model = Model::new();
    let years = |number: u64| seconds(number * 365 * 24 * 3600);
    for (step, time) in [years(0), years(20), years(3), years(100), years(0)]
        .into_iter()
        .enumerate()
    {
        uptime.set(seconds(60 * u64::try_from(step).unwrap()));
        for _ in 0..30 {
            let batch = batch(&model, 5, |model| sized_in(model, "a", time, 10));
            commit(&*ledger, &mut model, &batch);
        }
    }
    assert_eq!(whole_log(&*ledger), model.log);
}

/// A page of entries that `wanted` accepts.
fn page(
    ledger: &dyn Ledger,
    before: Commit,
    wanted: &dyn Fn(&api::Decision) -> bool,
    gone: &dyn Fn() -> bool,
) -> scheduler::ledger::Page {
    let query = Query {
        before,
        limit: 5,
        most: 100,
        wanted,
        gone,
    };
    ledger.read_log(query).unwrap()
}

pub(crate) fn bounded(bed: &dyn Bed) {
    let ledger = bed.open();
    let mut model = Model::new();
    for _ in 0..6 {
        add(&*ledger, &mut model, "a", (100, 10));
    }
    let looked = std::cell::Cell::new(0);
    let rare = |entry: &api::Decision| {
        looked.set(looked.get() + 1);
        revision(entry).is_multiple_of(250)
    };
    let (mut before, mut pages, mut found) = (Commit::MAX, 0, Vec::new());
    loop {
        looked.set(0);
        let page = page(&*ledger, before, &rare, &|| false);
        assert!(looked.get() <= 100, "{} were looked at", looked.get());
        found.extend(page.decisions.iter().map(revision));
        pages += 1;
        let Some(next) = page.next else { break };
        assert!(next < before);
        before = next;
    }
    assert_eq!(found, [500, 250]);
    assert!((6..=7).contains(&pages), "{pages}");

    looked.set(0);
    let page = page(&*ledger, Commit::MAX, &rare, &|| true);
    assert_eq!((page.decisions, looked.get()), (Vec::new(), 0), "nobody waits");
}
