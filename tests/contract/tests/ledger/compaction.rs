//! The leader compacts etcd while it writes and reads.

use std::time::{Duration, Instant};

use etcd_client::GetOptions;
use scheduler::{
    ledger::{
        Ledger,
        etcd::{Location, Pace},
    },
    term::{Backend as _, Elected},
};

use crate::{
    backends::{Cluster, arguments},
    changes::{Model, put},
};

/// Compacts as soon as it can.
fn quick() -> Pace {
    Pace {
        interval: Duration::from_millis(20),
        keep: Duration::ZERO,
        every: Duration::from_millis(40),
        ..Pace::default()
    }
}

/// etcd's answer to a reader of an earlier revision.
async fn read_at(location: &Location, revision: i64) -> Result<(), String> {
    let options = GetOptions::new().with_revision(revision);
    let answer = location.client().get(location.leader(), Some(options)).await;
    answer.map(drop).map_err(|error| error.to_string())
}

fn write(ledger: &dyn Ledger, model: &mut Model, number: usize) {
    let change = put(model, "one", Some(number));
    ledger.commit(std::slice::from_ref(&change)).unwrap();
    model.take(&change);
}

/// Writes until etcd does not have a revision any more.
fn write_until_compacted(
    cluster: &Cluster,
    location: &Location,
    revision: i64,
    ledger: &dyn Ledger,
    model: &mut Model,
) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let refused = loop {
        if let Err(refused) = cluster.runtime.block_on(read_at(location, revision)) {
            break refused;
        }
        assert!(Instant::now() < deadline, "nothing was compacted");
        write(ledger, model, 3);
    };
    assert!(refused.contains("compacted"), "{refused}");
}

#[test]
fn an_elected_scheduler_compacts_its_etcd() {
    let cluster = Cluster::start(1);
    let location = cluster.location("/elected");
    let candidate = Elected::new(
        cluster.endpoints.clone(),
        arguments("/elected"),
        "one:1".to_owned(),
    );
    let candidate = candidate.compacting(quick());
    let tenure = cluster.runtime.block_on(candidate.begin(&|_, _| {})).unwrap();
    let leader = cluster.runtime.block_on(async {
        let found = location.client().get(location.leader(), None).await.unwrap();
        found.kvs()[0].mod_revision()
    });

    let mut model = Model::new();
    write_until_compacted(&cluster, &location, leader, &*tenure.ledger, &mut model);

    assert_eq!(tenure.ledger.load().unwrap(), model.contents());
    drop(tenure);
    cluster.runtime.block_on(candidate.end());
}

#[test]
fn compaction_drops_old_revisions_and_no_record() {
    let cluster = Cluster::start(1);
    let location = cluster.location("/compaction");
    let elected = cluster.elect(&location, "one:1");
    let ledger = cluster.open(&location, elected).unwrap();
    let mut model = Model::new();
    for number in 1..200 {
        write(&ledger, &mut model, number);
    }
    cluster.runtime.block_on(read_at(&location, elected)).unwrap();

    let compacting = location.clone();
    let task = cluster
        .runtime
        .spawn(async move { match compacting.compact_history(quick()).await {} });
    write_until_compacted(&cluster, &location, elected, &ledger, &mut model);

    for number in 1..50 {
        write(&ledger, &mut model, number);
    }
    assert_eq!(ledger.load().unwrap(), model.contents());
    assert!(!task.is_finished());
    task.abort();
    drop(ledger);
    let again = cluster
        .open(&location, cluster.elect(&location, "two:1"))
        .unwrap();
    assert_eq!(again.load().unwrap(), model.contents());
}

#[test]
fn an_export_ends_whatever_is_written_beside_it() {
    const BYTES: u64 = 256 << 10;
    let cluster = Cluster::start(1);
    let location = cluster.location("/export");
    let elected = cluster.elect(&location, "one:1");
    let ledger = cluster.open(&location, elected).unwrap();
    let pace = Pace {
        bytes: BYTES,
        ..quick()
    };
    let compacting = location.clone();
    let task = cluster
        .runtime
        .spawn(async move { match compacting.compact_history(pace).await {} });
    let mut model = Model::new();
    write(&ledger, &mut model, 100);
    let (mut entries, records) = (0, model.contents().records.len());
    ledger
        .export(&mut |_| {
            entries += 1;
            if entries == 1 {
                // Its first page is read; compaction goes on up to that.
                write_until_compacted(&cluster, &location, elected, &ledger, &mut model);
                for _ in 0..100 {
                    write(&ledger, &mut model, 100);
                }
                std::thread::sleep(10 * pace.every);
            }
            Ok(())
        })
        .unwrap();
    assert!(entries > records, "{entries} entries");
    task.abort();
}

#[test]
fn one_clusters_edits_do_not_fill_etcd() {
    const HOSTS: usize = 5_000;
    const EDITS: usize = 500;
    const QUOTA: usize = 192 << 20;
    let cluster = Cluster::with_flags(&[("--quota-backend-bytes", &QUOTA.to_string())]);
    let location = cluster.location("/full");
    let elected = cluster.elect(&location, "one:1");
    let ledger = cluster.open(&location, elected).unwrap();
    let compacting = location.clone();
    let task = cluster
        .runtime
        .spawn(async move { match compacting.compact_history(Pace::default()).await {} });
    let mut model = Model::new();
    for number in 0..EDITS {
        let change = put(&model, "one", Some(HOSTS));
        let written = ledger.commit(std::slice::from_ref(&change));
        written.unwrap_or_else(|error| panic!("edit {number}: {error:?}"));
        model.take(&change);
    }
    let (status, stored) = cluster.runtime.block_on(async {
        let options = GetOptions::new().with_prefix();
        let mut client = location.client();
        let records = client.get("/full/records/", Some(options)).await.unwrap();
        (
            client.status().await.unwrap(),
            records.kvs()[0].value().len() * EDITS,
        )
    });
    println!("{stored} bytes were stored, etcd has {}", status.db_size());
    assert!(stored > QUOTA, "{stored}");
    let storage = ledger.storage().unwrap();
    assert_eq!(storage.quota, u64::try_from(QUOTA).unwrap());
    assert!((1..=storage.quota).contains(&storage.bytes), "{storage:?}");
    assert_eq!(ledger.load().unwrap(), model.contents());
    task.abort();
}

#[test]
fn what_an_operator_has_compacted_is_no_error() {
    let cluster = Cluster::start(1);
    let location = cluster.location("/compacted");
    let earlier = cluster.elect(&location, "one:1");
    let elected = cluster.elect(&location, "one:1");
    cluster
        .runtime
        .block_on(async { location.client().compact(elected, None).await })
        .unwrap();

    for upto in [earlier, elected] {
        cluster.runtime.block_on(location.compact(upto)).unwrap();
    }

    // A revision that does not exist yet is one.
    cluster
        .runtime
        .block_on(location.compact(elected + 1_000))
        .unwrap_err();
}
