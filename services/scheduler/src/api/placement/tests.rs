use std::sync::Arc;

use ::placement::{HostName, MemberState, RoleName, Uid};
use futures::{FutureExt as _, StreamExt as _};
use proto::placement::v1::watch_placements_response::Event;
use runtime::tls::{Peer, PeerIdentity};
use tokio::sync::watch as standing;

use super::*;
use crate::{
    ledger::{Contents, Ledger, RecordKey, commit, redb::Redb},
    record::{Member, Record},
    region::fixtures::region_with,
    term::{Standing, Term},
};

/// A cluster with so many members.
fn record(name: &str, members: usize, revision: u64) -> Record {
    let cluster = ClusterName::new("tenant", name).unwrap();
    let mut record = Record::new(cluster, "uid".to_owned(), None, 1, Spec::default());
    record.revision = revision;
    record.members = (0..members)
        .map(|number| {
            let id = HostId {
                name: HostName::new("metal", format!("{name}-{number}")).unwrap(),
                uid: Uid::new(format!("{name}-{number}")).unwrap(),
            };
            let role = RoleName::new("Worker").unwrap();
            (id, Member::new(role, None, MemberState::Bound))
        })
        .collect();
    record
}

/// A region whose site `a` has a cluster with few members and one with many; with what keeps its ledger open.
fn region() -> (Region, commit::Writer) {
    let mut contents = Contents {
        commit: Commit::new(2),
        ..Contents::default()
    };
    for record in [record("small", 3, 1), record("large", 100, 2)] {
        let key = RecordKey {
            site: "a".to_owned(),
            cluster: record.cluster.clone(),
        };
        contents.records.insert(key, Arc::new(record));
    }
    region_with(contents)
}

fn get(name: &str) -> Request<GetPlacementRequest> {
    let mut request = Request::new(GetPlacementRequest {
        site: "a".to_owned(),
        cluster: Some(inventory::ClusterRef {
            namespace: "tenant".to_owned(),
            name: name.to_owned(),
            uid: String::new(),
        }),
        at_least: None,
    });
    let address = ([127, 0, 0, 1], 1).into();
    let peer = Peer::new(address, PeerIdentity::PlaintextLoopback);
    request.extensions_mut().insert(peer);
    request
}

#[tokio::test]
async fn large_placements_wait_for_a_turn_and_small_ones_do_not() {
    let (region, _writer) = region();
    let ledger: Arc<dyn Ledger> = Arc::new(Redb::in_memory().unwrap());
    let serving = Standing::Serving(Term::new(region.clone(), ledger, None));
    let (_sender, serving) = standing::channel(serving);
    let placements = Placements::new(Terms::new(serving));
    let occupied = region.answers().occupy_reads();
    let mut large = placements.get_placement(get("large"));
    assert!((&mut large).now_or_never().is_none());
    let small = placements.get_placement(get("small")).now_or_never();
    small.unwrap().unwrap();
    drop(occupied);
    let large = large.await.unwrap().into_inner();
    assert_eq!(large.placement.unwrap().members.len(), 100);
}

#[tokio::test]
async fn a_watch_waits_for_a_turn_with_a_large_placement() {
    let (region, _writer) = region();
    let name = ClusterName::new("tenant", "large").unwrap();
    let (durable, _) = region.placement("a", &name, "", None).await.unwrap();
    let record = durable.record.unwrap();
    let holders = Arc::strong_count(&record);
    let events = watch::stream(&region, "reader/one", "a", None).unwrap();
    let mut events = Box::pin(events);
    let occupied = region.answers().occupy_reads();
    // That it begins anew, and the small one.
    for _ in 0..2 {
        events.next().now_or_never().unwrap().unwrap().unwrap();
    }
    assert!(events.next().now_or_never().is_none());
    let holds_none = Arc::strong_count(&record) == holders;
    assert!(holds_none, "it waits without the record, which may be replaced");
    drop(occupied);
    let event = events.next().await.unwrap().unwrap().event.unwrap();
    let large = match event {
        Event::Changed(large) => large,
        other => panic!("{other:?}"),
    };
    assert_eq!(large.members.len(), 100);
}

/// The transport polls no stream of a client that does not read.
#[tokio::test]
async fn watches_that_are_not_read_keep_no_turn() {
    let (region, _writer) = region();
    let occupied = region.answers().occupy_reads();
    let mut watches = Vec::new();
    for _ in 0..occupied.len() {
        let mut events = Box::pin(watch::stream(&region, "reader/one", "a", None).unwrap());
        // That it begins anew, and the small one.
        for _ in 0..2 {
            events.next().now_or_never().unwrap().unwrap().unwrap();
        }
        assert!(events.next().now_or_never().is_none());
        watches.push(events);
    }
    // Until each of them is in the queue.
    tokio::task::yield_now().await;
    drop(occupied);

    let made = region.answers().for_read("reader/two", 100, || "made");
    let made = tokio::time::timeout(Duration::from_secs(5), made).await;
    let made = made.expect("all turns are kept for watches that are not polled");
    assert_eq!(made.unwrap(), "made");

    for mut events in watches {
        let event = events.next().await.unwrap().unwrap().event.unwrap();
        assert!(matches!(event, Event::Changed(large) if large.members.len() == 100));
    }
}
