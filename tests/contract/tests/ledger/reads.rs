//! How much one read of etcd reads: nobody else is served by the thread that waits for it, and a commit waits for its trimming.

use std::{cell::Cell, time::Duration};

use proto::ledger::v1 as disk;
use sandbox::proxy::Proxy;
use scheduler::ledger::{Change, Commit, Ledger, Page, Query, Retention};

use crate::{
    backends::{Bed as _, Cluster, EtcdBed},
    changes::{Model, entry, put},
    contract::{batch, commit, sized_in},
    slow::{first, open, read},
};

/// Requests that one page of the log may need.
const MAX_REQUESTS: usize = 256;

fn way(cluster: &Cluster) -> Proxy {
    cluster.runtime.block_on(Proxy::to(first(cluster))).unwrap()
}

/// An entry at that commit.
fn at(number: u64) -> Change {
    let commit = Commit::new(number);
    Change::Fence {
        site: "a".to_owned(),
        fence: None,
        decision: Box::new(entry(commit, "a", Duration::ZERO, 10)),
        commit,
    }
}

/// A page, and how many requests it needed at most: whether its caller waits is asked before each, and before each entry.
fn page(ledger: &dyn Ledger, before: Commit) -> (Page, usize) {
    let asked = Cell::new(0);
    let page = ledger.read_log(Query {
        before,
        limit: 5000,
        most: 4096,
        wanted: &|_| true,
        gone: &|| {
            asked.set(asked.get() + 1);
            false
        },
    });
    let page = page.unwrap();
    let requests = asked.get() - page.decisions.len();
    (page, requests)
}

/// As when another site has had many entries between those of this one.
#[test]
fn entries_far_apart_are_read_with_few_requests() {
    const ENTRIES: u64 = 300;
    const APART: u64 = 100_000;
    let cluster = Cluster::start(1);
    let ledger = EtcdBed::new(&cluster, "sparse").open();
    for number in 1..=ENTRIES {
        ledger.commit(&[at(number * APART)]).unwrap();
    }
    let (page, requests) = page(&*ledger, Commit::MAX);
    let found: Vec<u64> = page.decisions.iter().map(|entry| entry.commit).collect();
    let expected: Vec<u64> = (1..=ENTRIES).rev().map(|number| number * APART).collect();
    assert_eq!((found, page.next), (expected, None));
    assert!(requests < 60, "{requests} requests");
}

/// The worst order of entries and gaps.
#[test]
fn a_page_of_the_log_needs_a_bounded_number_of_requests() {
    const BLOCKS: u64 = 20;
    const ENTRIES: u64 = 70;
    const GAP: u64 = 1 << 20;
    let cluster = Cluster::start(1);
    let ledger = EtcdBed::new(&cluster, "blocks").open();
    for block in 0..BLOCKS {
        let from = 1 + block * (ENTRIES + GAP);
        let block: Vec<Change> = (from..from + ENTRIES).map(at).collect();
        ledger.commit(&block).unwrap();
    }
    let (mut before, mut found, mut pages) = (Commit::MAX, Vec::new(), 0);
    loop {
        let (page, requests) = page(&*ledger, before);
        // Beside requests, the end of a page is asked for.
        assert!(requests <= MAX_REQUESTS + 1, "{requests} requests");
        found.extend(page.decisions.iter().map(|entry| entry.commit));
        pages += 1;
        let Some(next) = page.next else { break };
        assert!(next < before, "{next}");
        before = next;
    }
    assert!(pages > 1, "it is no order that needs many requests");
    assert_eq!(found.len(), usize::try_from(BLOCKS * ENTRIES).unwrap());
    assert!(found.is_sorted_by(|later, earlier| later > earlier));
}

#[test]
fn a_page_of_the_log_reads_a_bounded_number_of_bytes() {
    let cluster = Cluster::start(1);
    let ledger = EtcdBed::new(&cluster, "bytes").open();
    let mut model = Model::new();
    for _ in 0..60 {
        let large = sized_in(&model, "b", Duration::ZERO, 900 << 10);
        commit(&*ledger, &mut model, &[large]);
    }
    drop(ledger);
    let way = way(&cluster);
    let ledger = open(&cluster, &way, "bytes");
    let before = way.returned();
    let page = read(&ledger, false).unwrap();
    assert!(page.next.is_some(), "there is more");
    let bytes = way.returned() - before;
    // 16 MiB, an answer more, and what had come of one that was too large.
    assert!(bytes < 40 << 20, "{bytes} bytes");
}

#[test]
fn one_commit_on_etcd_reads_only_a_part_of_the_log() {
    const ENTRIES: usize = 20_000;
    const SHARE: u64 = 5_000_000;
    let cluster = Cluster::start(1);
    let ledger = EtcdBed::new(&cluster, "uneven").open();
    let mut model = Model::new();
    for _ in 0..ENTRIES / 500 {
        let small = batch(&model, 500, |model| sized_in(model, "other", Duration::ZERO, 100));
        commit(&*ledger, &mut model, &small);
    }
    for _ in 0..10 {
        let large = sized_in(&model, "full", Duration::ZERO, 800_000);
        commit(&*ledger, &mut model, &[large]);
    }
    drop(ledger);
    let way = way(&cluster);
    // When it is opened again, it does not know where the entries of a site are.
    let ledger = open(&cluster, &way, "uneven").retaining(Retention {
        bytes: SHARE,
        ..Retention::default()
    });
    let mut returned = || {
        let before = way.returned();
        let one = sized_in(&model, "other", Duration::ZERO, 100);
        commit(&ledger, &mut model, &[one]);
        way.returned() - before
    };
    for step in 1..=2 {
        let bytes = returned();
        // 8,192 entries of 200 bytes with their keys.
        assert!((1 << 20..3 << 20).contains(&bytes), "step {step}: {bytes} bytes");
    }
    returned();
    let full = ledger.decisions(Commit::MAX, usize::MAX, &|entry| entry.site == "full");
    let kept: usize = full.unwrap().iter().map(prost::Message::encoded_len).sum();
    assert!(u64::try_from(kept).unwrap() <= SHARE, "{kept} bytes are kept");
}

#[test]
fn an_export_keeps_one_page_of_records_in_memory() {
    const RECORDS: usize = 150;
    let cluster = Cluster::start(1);
    let ledger = EtcdBed::new(&cluster, "export").open();
    let mut model = Model::new();
    for number in 0..RECORDS {
        let change = put(&model, &format!("c{number}"), Some(1));
        commit(&*ledger, &mut model, &[change]);
    }
    drop(ledger);
    let way = way(&cluster);
    let ledger = open(&cluster, &way, "export");
    let mut records = 0;
    let ended = ledger.export(&mut |entry| {
        if matches!(entry.entry, Some(disk::entry::Entry::Record(_))) {
            // What is not read by now never comes.
            way.cut(true);
            records += 1;
        }
        Ok(())
    });
    ended.unwrap_err();
    assert!((1..RECORDS / 2).contains(&records), "{records} records");
}
