//! Records as large as etcd takes them, and larger.

use std::{collections::BTreeMap, sync::Arc};

use placement::MemberState;
use proto::ledger::v1 as disk;
use scheduler::{
    ledger::{Change, Decision, Error, Ledger, RecordKey, weight},
    record::{Member, Record, ReleaseReason},
};

use crate::{
    backends::{Bed as _, Cluster, EtcdBed, FileBed},
    changes::{Model, entry, key, put, record},
};

/// The same with all its hosts releasing, when it needs the most.
fn leaving(record: &Record) -> Record {
    let release = |member: &Member| Member {
        state: MemberState::Releasing,
        release_reason: Some(ReleaseReason::Deleted),
        confirmed: true,
        ..member.clone()
    };
    let members: BTreeMap<_, _> = record
        .members
        .iter()
        .map(|(id, m)| (id.clone(), release(m)))
        .collect();
    Record {
        members,
        releasing: true,
        ..record.clone()
    }
}

/// The record of that name with as many hosts as a ledger takes.
fn largest(name: &str, revision: u64, ledger: &dyn Ledger) -> Record {
    let fits = |hosts: usize| {
        let record = record(name, revision, hosts);
        weight::require("a", None, &record, ledger.largest()).is_ok()
    };
    let most = (0..40_000)
        .collect::<Vec<_>>()
        .partition_point(|hosts| fits(*hosts));
    record(name, revision, most - 1)
}

/// A step to a record, with the entry that names all its hosts.
fn step(model: &Model, record: &Record) -> Change {
    let at = model.last().next();
    let releasing = record.members.keys().cloned().collect();
    Change::Record {
        key: RecordKey {
            cluster: record.cluster.clone(),
            ..key("any")
        },
        record: Some(Arc::new(record.clone())),
        decision: Box::new(Decision {
            releasing,
            ..entry(at, "a", std::time::Duration::ZERO, 10)
        }),
        commit: at,
    }
}

#[test]
fn etcd_stores_the_largest_accepted_record_and_its_release() {
    let cluster = Cluster::start(1);
    let ledger = EtcdBed::new(&cluster, "largest").open();
    let mut model = Model::new();
    let largest = largest("one", 1, &*ledger);
    println!("{} hosts", largest.members.len());
    assert!(largest.members.len() > 3_000, "{}", largest.members.len());
    let gone = put(&model, "one", None);
    for change in [step(&model, &largest), step(&model, &leaving(&largest)), gone] {
        ledger.commit(std::slice::from_ref(&change)).unwrap();
        model.take(&change);
    }
    assert_eq!(ledger.load().unwrap(), model.contents());
}

#[test]
fn a_batch_of_more_than_etcd_takes_at_once_is_stored_whole() {
    let cluster = Cluster::start(1);
    let ledger = EtcdBed::new(&cluster, "batch").open();
    let mut model = Model::new();
    let mut batch = Vec::new();
    for number in 0..500 {
        let name = format!("c{number}");
        let change = if number % 100 < 2 {
            step(&model, &leaving(&largest(&name, 1, &*ledger)))
        } else {
            put(&model, &name, Some(number % 30))
        };
        model.take(&change);
        batch.push(change);
    }
    ledger.commit(&batch).unwrap();
    assert_eq!(ledger.load().unwrap(), model.contents());
}

#[test]
fn an_import_with_a_too_large_record_is_refused_by_name() {
    let file = FileBed::new();
    let redb = file.open();
    assert_eq!(redb.largest(), None);
    let model = Model::new();
    redb.commit(&[step(&model, &record("huge", 1, 30_000))]).unwrap();
    let mut entries: Vec<disk::Entry> = Vec::new();
    redb.export(&mut |entry| {
        entries.push(entry);
        Ok(())
    })
    .unwrap();
    let cluster = Cluster::start(1);
    let etcd = EtcdBed::new(&cluster, "import").open();

    let refused = etcd.import(&mut entries.into_iter().map(Ok)).unwrap_err();

    assert!(matches!(refused, Error::TooLarge(_)), "{refused}");
    let text = refused.to_string();
    assert!(
        text.contains("tenant/huge in site \"a\" with 30000 hosts"),
        "{text}"
    );
}
