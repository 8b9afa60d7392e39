//! Clusters whose hosts get other addresses: their former places hold no rack. Where all of a cluster at its bound do, those take no room
//! in its status, and in the ledger only as much as there is.

use std::{net::IpAddr, sync::Arc};

use placement::MemberState::{Bound, Claimed, Releasing};
use proto::inventory::v1 as wire;
use redb::backends::InMemoryBackend;
use scheduler::{
    ledger::{Ledger, redb::Redb},
    record::Record,
};

use crate::{
    fixtures::{Stage, again, host, labelled, members, observed, released},
    status_size::{FULL, bound, name, releasing},
};

/// The most bytes of a change in an etcd, and about how many hosts of these tests fit.
const IN_ETCD: usize = 256 << 10;
const FULL_IN_ETCD: u32 = 790;

/// A cluster has as many hosts as it may, and all of them get another address while its agent is away.
#[tokio::test]
async fn a_full_cluster_whose_hosts_all_move_can_be_released() {
    for (full, largest) in [(FULL, None), (FULL_IN_ETCD, Some(IN_ETCD))] {
        let stage = readdressed(full, largest, readdress).await;
        let record = stage.apply("huge", 1, full).await.unwrap();
        assert_eq!(live(&record), full as usize);

        let mut record = stage.release("huge").await.unwrap();
        let mut rounds = 0;
        loop {
            let hosts: Vec<_> = (0..full)
                .filter_map(|number| unlabelled(&record, number))
                .collect();
            stage.sync_with(&hosts, &[observed("huge")], None).await;
            match stage.confirm(&record).await {
                Some(left) => record = left,
                None => break,
            }
            rounds += 1;
            assert!(rounds < 100, "{} are left", record.members.len());
        }
        assert_eq!(stage.record("huge").await, None);
    }
}

#[tokio::test]
async fn as_many_hosts_move_at_once_as_there_is_room() {
    for change in [readdress, readdress_or_remake, |host| readdress(again(host))] {
        follow_in_portions(readdressed(FULL_IN_ETCD, Some(IN_ETCD), change).await).await;
    }
}

/// Confirms releases until every member has the address that its host shows.
async fn follow_in_portions(stage: Stage) {
    let mut rounds = 0;
    loop {
        let record = stage.record("huge").await.unwrap();
        assert_eq!(live(&record), FULL_IN_ETCD as usize);
        let places = record.members.len() - live(&record);
        if places == 0 {
            let moved = record.members.iter().all(|(id, member)| {
                let number = id.name.name()[1..].parse().unwrap();
                let address = readdress(host(&name(number))).addresses["oam"].parse::<IpAddr>();
                member.addresses.values().eq([&address.unwrap()])
            });
            assert!(moved && rounds > 1, "after {rounds} rounds");
            return;
        }
        rounds += 1;
        assert!(rounds < 100, "{places} are left");
        stage.confirm(&record).await;
    }
}

fn live(record: &Record) -> usize {
    record.members.len() - releasing(record)
}

/// The host with another address than before.
fn readdress(host: wire::Host) -> wire::Host {
    let moved = self::host(&format!("{}-moved", host.r#ref.as_ref().unwrap().name));
    wire::Host {
        addresses: moved.addresses,
        ..host
    }
}

/// The same; of ten hosts one is made again.
fn readdress_or_remake(host: wire::Host) -> wire::Host {
    let moved = readdress(host.clone());
    if host.r#ref.unwrap().name.ends_with('0') {
        again(moved)
    } else {
        moved
    }
}

/// A host that was released and marked, where its cluster has not ended.
fn unlabelled(record: &Record, number: u32) -> Option<wire::Host> {
    let mut members = record.members.iter();
    let name = name(number);
    let (_, member) = members.find(|(id, _)| id.uid.as_str() == format!("uid-{name}"))?;
    Some(readdress(released(&name, member.revision)))
}

/// A full cluster on a ledger that takes so many bytes at once, after a restart with other addresses.
async fn readdressed(full: u32, largest: Option<usize>, change: fn(wire::Host) -> wire::Host) -> Stage {
    let ledger = Arc::new(Redb::on(InMemoryBackend::new()).unwrap());
    let stage = Stage::taking(Arc::clone(&ledger) as Arc<dyn Ledger>, largest);
    let free: Vec<_> = (0..full).map(|number| host(&name(number))).collect();
    let session = stage.sync_with(&free, &[observed("huge")], None).await;
    let record = stage.apply("huge", 1, full).await.unwrap();
    let hosts = bound(&record);
    stage.report(&session, &hosts).await;
    stage.restart();
    let stage = Stage::taking(ledger, largest);
    let hosts: Vec<_> = hosts.into_iter().map(change).collect();
    stage.sync_with(&hosts, &[observed("huge")], None).await;
    stage
}

/// As after `clusterctl move`, or a restore.
#[tokio::test]
async fn a_full_cluster_whose_hosts_are_all_remade_goes_on() {
    let stage = readdressed(FULL_IN_ETCD, Some(IN_ETCD), again).await;
    let record = stage.record("huge").await.unwrap();
    let is_new = |id: &placement::HostId| id.uid.as_str().ends_with("-again");
    assert!(record.members.keys().all(is_new));
    assert_eq!(live(&record), FULL_IN_ETCD as usize);
    stage.apply("huge", 1, FULL_IN_ETCD).await.unwrap();
    let released = stage.release("huge").await.unwrap();
    assert_eq!(releasing(&released), FULL_IN_ETCD as usize);
}

/// The host that fails has the same rack as its former address: it is the same machine.
#[tokio::test]
async fn a_failed_host_is_replaced_in_the_rack_of_its_former_address() {
    for remake in [|host| host, again] {
        let stage = Stage::empty();
        let session = stage.sync(&[host("h1")]).await;
        stage.apply("one", 1, 1).await.unwrap();
        stage.report(&session, &[labelled("h1", "one")]).await;
        let moved = readdress(remake(labelled("h1", "one")));
        stage.report(&session, std::slice::from_ref(&moved)).await;
        let record = stage.record("one").await.unwrap();
        let former = [("h1".to_owned(), Bound), ("h1".to_owned(), Releasing)];
        assert!(
            former.iter().all(|place| members(&record).contains(place)),
            "{record:?}"
        );

        let same_rack = wire::Host {
            labels: host("h1").labels,
            ..host("h2")
        };
        let failed = wire::Host {
            marked_failed: true,
            ..moved
        };
        stage.report(&session, &[failed, same_rack]).await;
        stage.retry().await;
        let record = stage.record("one").await.unwrap();
        let replaced = [
            ("h1".to_owned(), Releasing),
            ("h1".to_owned(), Releasing),
            ("h2".to_owned(), Claimed),
        ];
        assert_eq!(members(&record), replaced);
    }
}
