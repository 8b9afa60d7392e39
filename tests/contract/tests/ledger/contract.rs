//! What every backend promises.

use std::time::Duration;

use proto::{ledger::v1 as disk, placement::v1 as api};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use redb::backends::InMemoryBackend;
use scheduler::ledger::{
    Change, Commit, Error, History, Ledger, Retention, SitePosition, position::Cause, redb::Redb,
};

use crate::{
    backends::Bed,
    changes::{Model, entry, key, put, put_in, random},
    retention,
};

/// A case: its name, and what shows it on an empty bed.
pub(crate) type Case = (&'static str, fn(&dyn Bed));

/// Every case.
pub(crate) const CASES: &[Case] = &[
    ("an_empty_ledger_stands_at_the_beginning", empty),
    ("what_was_committed_is_there_when_it_is_opened_again", reopened),
    ("any_batches_are_what_a_map_would_hold", property),
    (
        "of_many_changes_of_one_record_in_a_batch_the_last_holds",
        repeated,
    ),
    ("a_batch_of_any_size_is_taken", large),
    ("a_removed_record_is_gone_and_its_log_is_not", removed),
    ("a_sites_history_holds_from_then_on", history),
    ("the_log_is_read_from_its_newest_entry_in_pages", pages),
    ("the_log_is_kept_within_its_bytes", bytes),
    ("the_log_is_kept_within_its_age", retention::age),
    ("old_entries_go_as_fast_as_single_ones_come", retention::single),
    ("no_site_evicts_entries_of_another", retention::shares),
    ("entries_of_any_size_stay_within_a_sites_share", retention::uneven),
    (
        "old_entries_of_others_keep_no_site_beyond_its_share",
        retention::old_and_full,
    ),
    ("a_clock_that_jumps_evicts_nothing", retention::jumps),
    ("a_page_looks_at_a_bounded_number", retention::bounded),
    (
        "what_is_exported_can_be_imported_into_an_empty_ledger_only",
        moved,
    ),
];

pub(crate) fn commit(ledger: &dyn Ledger, model: &mut Model, batch: &[Change]) {
    ledger.commit(batch).unwrap();
    for change in batch {
        model.take(change);
    }
}

/// Makes a batch of changes that follow on each other.
pub(crate) fn batch(model: &Model, count: usize, mut change: impl FnMut(&Model) -> Change) -> Vec<Change> {
    let mut ahead = model.clone();
    (0..count)
        .map(|_| {
            let change = change(&ahead);
            ahead.take(&change);
            change
        })
        .collect()
}

/// Commits a batch of so many entries of a site, each of so many bytes.
pub(crate) fn add(ledger: &dyn Ledger, model: &mut Model, site: &str, (count, bytes): (usize, usize)) {
    let batch = batch(model, count, |model| sized_in(model, site, Duration::ZERO, bytes));
    commit(ledger, model, &batch);
}

pub(crate) fn whole_log(ledger: &dyn Ledger) -> Vec<api::Decision> {
    let mut log = ledger.decisions(Commit::MAX, usize::MAX, &|_| true).unwrap();
    log.reverse();
    log
}

pub(crate) fn revision(decision: &api::Decision) -> u64 {
    decision.commit
}

fn empty(bed: &dyn Bed) {
    for _ in 0..2 {
        let ledger = bed.open();
        assert_eq!(ledger.load().unwrap(), Model::new().contents());
        assert_eq!(whole_log(&*ledger), []);
    }
}

fn reopened(bed: &dyn Bed) {
    let mut model = Model::new();
    for index in 0..5 {
        let ledger = bed.open();
        assert_eq!(ledger.load().unwrap(), model.contents());
        let change = put(&model, &format!("c{index}"), Some(index));
        commit(&*ledger, &mut model, &[change]);
    }
    assert_eq!(bed.open().load().unwrap(), model.contents());
}

fn property(bed: &dyn Bed) {
    let mut rng = StdRng::seed_from_u64(7);
    let mut model = Model::new();
    for _ in 0..6 {
        let ledger = bed.open();
        for _ in 0..rng.random_range(1..8) {
            let size = *[1, 2, 10, 90].get(rng.random_range(0..4)).unwrap();
            let batch = batch(&model, size, |model| random(&mut rng, model));
            commit(&*ledger, &mut model, &batch);
            assert_eq!(ledger.load().unwrap(), model.contents());
        }
        assert_eq!(whole_log(&*ledger), model.log);
    }
    assert_eq!(bed.open().load().unwrap(), model.contents());
}

fn repeated(bed: &dyn Bed) {
    let ledger = bed.open();
    let mut model = Model::new();
    let mut hosts = [Some(1), None, Some(2), Some(3), None].into_iter().cycle();
    for size in [3, 4, 5] {
        let batch = batch(&model, size, |model| put(model, "one", hosts.next().unwrap()));
        commit(&*ledger, &mut model, &batch);
        assert_eq!(ledger.load().unwrap(), model.contents());
    }
    assert_eq!(whole_log(&*ledger), model.log);
}

fn large(bed: &dyn Bed) {
    let ledger = bed.open();
    let mut model = Model::new();
    let mut name = 0;
    // 512 changes are the most that the committer takes at once; 400 hosts are some 40 kB.
    let batch = batch(&model, 512, |model| {
        name += 1;
        put(model, &format!("c{name}"), Some(400))
    });
    commit(&*ledger, &mut model, &batch);
    assert!(ledger.load().unwrap() == model.contents());
    drop(ledger);
    let ledger = bed.open();
    assert!(ledger.load().unwrap() == model.contents());
    assert_eq!(whole_log(&*ledger), model.log);
}

fn removed(bed: &dyn Bed) {
    let ledger = bed.open();
    let mut model = Model::new();
    let made = put(&model, "one", Some(3));
    commit(&*ledger, &mut model, &[made]);
    let gone = put(&model, "one", None);
    commit(&*ledger, &mut model, &[gone]);
    drop(ledger);

    let ledger = bed.open();
    assert!(!ledger.load().unwrap().records.contains_key(&key("one")));
    assert_eq!(whole_log(&*ledger).len(), 2);
}

fn history(bed: &dyn Bed) {
    let ledger = bed.open();
    let mut model = Model::new();
    let first = put(&model, "one", Some(1));
    commit(&*ledger, &mut model, &[first]);
    let at = model.last().next();
    let shown = SitePosition::new(8, 1 << 40);
    let history = History::default().raise(shown, Cause::Lost { known: 1 }, at);
    let raise = Change::Raise {
        site: "a".to_owned(),
        history,
        decision: Box::new(entry(at, "a", Duration::ZERO, 10)),
        commit: at,
    };
    commit(&*ledger, &mut model, &[raise]);
    let second = put(&model, "two", Some(1));
    commit(&*ledger, &mut model, &[second]);
    drop(ledger);

    let ledger = bed.open();
    let contents = ledger.load().unwrap();
    assert_eq!(contents, model.contents());
    let position = contents.histories["a"].at(contents.commit);
    assert_eq!(position, SitePosition::new(9, (1 << 40) + 2));
    assert_eq!(whole_log(&*ledger), model.log);
}

fn pages(bed: &dyn Bed) {
    let ledger = bed.open();
    let mut model = Model::new();
    let batch = batch(&model, 600, |model| put(model, "one", Some(0)));
    commit(&*ledger, &mut model, &batch);
    let mut before = Commit::MAX;
    let mut read = Vec::new();
    loop {
        let page = ledger.decisions(before, 77, &|_| true).unwrap();
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 77);
        before = Commit::new(revision(last));
        read.extend(page);
    }
    read.reverse();
    assert_eq!(read, model.log);
    let odd = ledger
        .decisions(Commit::new(100), 3, &|entry| revision(entry) % 2 == 1)
        .unwrap();
    assert_eq!(odd.iter().map(revision).collect::<Vec<_>>(), [99, 97, 95]);
    assert_eq!(ledger.decisions(Commit::new(1), 3, &|_| true).unwrap(), []);
}

/// A change with an entry of a size, so long after the log's beginning.
pub(crate) fn sized_in(model: &Model, site: &str, age: Duration, bytes: usize) -> Change {
    let commit = model.last().next();
    let Change::Record { key, record, .. } = put_in(model, site, "one", Some(0)) else {
        unreachable!()
    };
    Change::Record {
        key,
        record,
        decision: Box::new(entry(commit, site, age, bytes)),
        commit,
    }
}

fn bytes(bed: &dyn Bed) {
    let retention = Retention {
        bytes: 20_000,
        ..Retention::default()
    };
    let mut model = Model::new();
    for round in 0..4 {
        let ledger = bed.open_retaining(retention);
        for _ in 0..10 {
            add(&*ledger, &mut model, "a", (5, 400));
        }
        let log = whole_log(&*ledger);
        assert!(
            model.log.ends_with(&log),
            "round {round}: the newest entries are kept"
        );
        let kept: usize = log.iter().map(prost::Message::encoded_len).sum();
        assert!(kept <= 20_000, "round {round}: {kept} bytes are kept");
        assert!(
            log.len() == model.log.len() || kept > 19_000,
            "round {round}: {kept} bytes are kept"
        );
    }
    assert_eq!(bed.open().load().unwrap(), model.contents());
}

fn exported(ledger: &dyn Ledger) -> Vec<disk::Entry> {
    let mut entries = Vec::new();
    let mut take = |entry| {
        entries.push(entry);
        Ok(())
    };
    ledger.export(&mut take).unwrap();
    entries
}

fn moved(bed: &dyn Bed) {
    let mut rng = StdRng::seed_from_u64(11);
    let mut model = Model::new();
    let source = Redb::on(InMemoryBackend::new()).unwrap();
    for _ in 0..5 {
        let batch = batch(&model, 100, |model| random(&mut rng, model));
        commit(&source, &mut model, &batch);
    }
    let entries = exported(&source);

    let ledger = bed.open();
    ledger.import(&mut entries.iter().cloned().map(Ok)).unwrap();
    assert_eq!(ledger.load().unwrap().records, model.contents().records);
    drop(ledger);
    let ledger = bed.open();
    assert_eq!(ledger.load().unwrap(), model.contents());
    assert_eq!(whole_log(&*ledger), model.log);
    let mut again = exported(&*ledger);
    let mut before = entries.clone();
    // The order of records is the storage's own.
    for entries in [&mut again, &mut before] {
        entries.sort_by_cached_key(prost::Message::encode_to_vec);
    }
    assert!(again == before, "what went in comes out");

    let refused = ledger.import(&mut entries.into_iter().map(Ok)).unwrap_err();
    assert!(matches!(refused, Error::NotEmpty { found: _ }), "{refused}");
    let next = put(&model, "next", Some(1));
    commit(&*ledger, &mut model, &[next]);
    assert_eq!(ledger.load().unwrap(), model.contents(), "it goes on from there");
}
