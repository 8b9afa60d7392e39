//! The leader compacts etcd while it writes and reads.

use std::time::{Duration, Instant};

use etcd_client::GetOptions;
use scheduler::ledger::{
    Ledger as _,
    etcd::{Pace, Place},
};

use crate::{
    backends::Cluster,
    changes::{Model, put},
};

/// etcd's answer to a reader of an earlier revision.
async fn read_at(place: &Place, revision: i64) -> Result<(), String> {
    let options = GetOptions::new().with_revision(revision);
    let answer = place.client().get(place.leader(), Some(options)).await;
    answer.map(drop).map_err(|error| error.to_string())
}

#[test]
fn compaction_drops_old_revisions_and_no_record() {
    let cluster = Cluster::start(1);
    let place = cluster.place("/compaction");
    let elected = cluster.elect(&place, "one:1");
    let ledger = cluster.open(&place, elected).unwrap();
    let mut model = Model::new();
    let write = |ledger: &scheduler::ledger::etcd::Etcd, model: &mut Model, number: usize| {
        let change = put(model, "one", Some(number));
        ledger.commit(std::slice::from_ref(&change)).unwrap();
        model.take(&change);
    };
    for number in 1..200 {
        write(&ledger, &mut model, number);
    }
    cluster.runtime.block_on(read_at(&place, elected)).unwrap();

    let pace = Pace {
        interval: Duration::from_millis(20),
        keep: Duration::ZERO,
        every: Duration::from_millis(40),
        ..Pace::default()
    };
    let compacting = place.clone();
    let task = cluster
        .runtime
        .spawn(async move { match compacting.compact_history(pace).await {} });
    let deadline = Instant::now() + Duration::from_secs(20);
    let refused = loop {
        if let Err(refused) = cluster.runtime.block_on(read_at(&place, elected)) {
            break refused;
        }
        assert!(Instant::now() < deadline, "nothing was compacted");
        write(&ledger, &mut model, 3);
    };
    assert!(refused.contains("compacted"), "{refused}");

    for number in 1..50 {
        write(&ledger, &mut model, number);
    }
    assert_eq!(ledger.load().unwrap(), model.contents());
    assert!(!task.is_finished());
    task.abort();
    drop(ledger);
    let again = cluster.open(&place, cluster.elect(&place, "two:1")).unwrap();
    assert_eq!(again.load().unwrap(), model.contents());
}

#[test]
fn what_an_operator_has_compacted_is_no_error() {
    let cluster = Cluster::start(1);
    let place = cluster.place("/compacted");
    let earlier = cluster.elect(&place, "one:1");
    let elected = cluster.elect(&place, "one:1");
    cluster
        .runtime
        .block_on(async { place.client().compact(elected, None).await })
        .unwrap();

    for upto in [earlier, elected] {
        cluster.runtime.block_on(place.compact(upto)).unwrap();
    }

    // A revision that does not exist yet is one.
    cluster
        .runtime
        .block_on(place.compact(elected + 1_000))
        .unwrap_err();
}
