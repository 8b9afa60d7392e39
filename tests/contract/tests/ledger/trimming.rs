//! Trimming the log in etcd fails no change: the changes are stored before it begins.

use std::time::Duration;

use scheduler::ledger::{
    Ledger, Retention,
    etcd::{Etcd, EtcdArgs, Location},
};

use crate::{
    backends::{Cluster, arguments},
    changes::Model,
    contract::{batch, commit, sized_in, whole_log},
};

/// The ledger of another process, with this share of the log for each site.
fn open(cluster: &Cluster, location: &Location, bytes: u64) -> Etcd {
    let elected = cluster.elect(location, "one:1");
    cluster.open(location, elected).unwrap().retaining(Retention {
        bytes,
        ..Retention::default()
    })
}

fn write(ledger: &dyn Ledger, model: &mut Model) {
    let one = sized_in(model, "a", Duration::ZERO, 1000);
    commit(ledger, model, &[one]);
}

/// Bytes and number of the entries of a site.
fn site_log(ledger: &dyn Ledger, site: &str) -> (u64, usize) {
    let log = whole_log(ledger);
    let of_site = log.iter().filter(|entry| entry.site == site);
    let sizes: Vec<usize> = of_site.map(prost::Message::encoded_len).collect();
    (u64::try_from(sizes.iter().sum::<usize>()).unwrap(), sizes.len())
}

#[test]
fn a_log_that_cannot_be_read_ends_no_term() {
    const SHARE: u64 = 20_000;
    /// More than any answer that the scheduler takes.
    const UNREADABLE: usize = 9 << 20;
    let cluster = Cluster::with_flags(&[("--max-request-bytes", "33554432"), ("--unsafe-no-fsync", "true")]);
    let location = cluster.location("/unread");
    let mut model = Model::new();
    let ledger = open(&cluster, &location, Retention::default().bytes);
    for _ in 0..100 {
        write(&ledger, &mut model);
    }
    drop(ledger);
    let oldest = format!("/unread/decisions/{:020}", 1);
    let found = async { location.client().get(oldest.clone(), None).await };
    let found = cluster.runtime.block_on(found).unwrap();
    let stored = found.kvs()[0].value().to_vec();
    let put = |value: Vec<u8>| {
        let written = async { location.client().put(oldest.clone(), value, None).await };
        drop(cluster.runtime.block_on(written).unwrap());
    };
    put(vec![0; UNREADABLE]);
    let ledger = open(&cluster, &location, SHARE);

    for _ in 0..3 {
        write(&ledger, &mut model);
    }

    put(stored);
    assert_eq!(
        site_log(&ledger, "a").1,
        model.log.len(),
        "nothing is removed yet"
    );
    write(&ledger, &mut model);
    let log = whole_log(&ledger);
    assert!(model.log.ends_with(&log), "the newest entries are kept");
    let (bytes, entries) = site_log(&ledger, "a");
    assert!(entries > 0 && bytes <= SHARE, "{bytes} bytes are kept");
}

/// Each second entry is of another site, so that each that is removed takes an operation of its own.
#[test]
fn removals_from_the_log_fit_into_small_requests() {
    const LIMIT: u32 = 65_536;
    const SHARE: u64 = 300_000;
    let cluster = Cluster::with_flags(&[
        ("--max-request-bytes", &LIMIT.to_string()),
        ("--max-txn-ops", &LIMIT.to_string()),
        ("--unsafe-no-fsync", "true"),
    ]);
    let args = EtcdArgs {
        etcd_max_request_bytes: LIMIT,
        etcd_max_txn_ops: LIMIT,
        ..arguments("/narrow")
    };
    let location = Location::new(&cluster.endpoints, &args);
    let location = cluster.runtime.block_on(location).unwrap();
    let mut model = Model::new();
    let ledger = open(&cluster, &location, Retention::default().bytes);
    let mut number = 0;
    for _ in 0..20 {
        let mixed = batch(&model, 300, |model| {
            number += 1;
            let (site, bytes) = if number % 2 == 0 { ("a", 200) } else { ("b", 1) };
            sized_in(model, site, Duration::ZERO, bytes)
        });
        commit(&ledger, &mut model, &mixed);
    }
    let (before, others) = (site_log(&ledger, "a"), site_log(&ledger, "b"));
    assert!(before.0 > 2 * SHARE && others.0 < SHARE, "{before:?} {others:?}");
    drop(ledger);

    let ledger = open(&cluster, &location, SHARE);
    write(&ledger, &mut model);

    let (bytes, entries) = site_log(&ledger, "a");
    assert!(bytes <= SHARE, "{bytes} bytes are kept");
    assert!(before.1 - entries > 1000, "{entries} entries are kept");
    assert_eq!(site_log(&ledger, "b"), others, "another site's entries stay");
}
