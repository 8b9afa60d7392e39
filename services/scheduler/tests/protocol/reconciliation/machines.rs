//! Which machine a host is: hosts that are made again, renamed, or get another address. Load balancers route to addresses.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use placement::MemberState::{self, Bound, Claimed, Releasing};
use proto::inventory::v1 as wire;
use scheduler::record::Record;

use super::{bound, other_cluster};
use crate::fixtures::{Stage, again, host, labelled, members, observed, released, spec};

/// uid, state, number and addresses of every member.
fn places(record: &Record) -> Vec<(&str, MemberState, Option<u32>, Vec<IpAddr>)> {
    let members = record.members.iter();
    members
        .map(|(id, member)| {
            let addresses = member.addresses.values().copied().collect();
            (id.uid.as_str(), member.state, member.ordinal, addresses)
        })
        .collect()
}

/// The address of a host by this name.
fn at(name: &str) -> Vec<IpAddr> {
    vec![host(name).addresses["oam"].parse().unwrap()]
}

/// A host at the address of another one.
fn moved(host: wire::Host, address_of: &str) -> wire::Host {
    wire::Host {
        addresses: self::host(address_of).addresses,
        ..host
    }
}

/// A host that shows no address.
fn silent(host: wire::Host) -> wire::Host {
    wire::Host {
        addresses: BTreeMap::new(),
        ..host
    }
}

#[tokio::test]
async fn a_machine_is_known_by_its_address_under_another_name() {
    let (stage, session) = other_cluster().await;
    let renamed = |network: &str| wire::Host {
        addresses: host("h1")
            .addresses
            .into_values()
            .map(|address| (network.to_owned(), address))
            .chain([("pxe".to_owned(), "192.0.2.1".to_owned())])
            .collect(),
        ..host("h2")
    };

    stage.report(&session, &[renamed("oam")]).await;
    assert_eq!(stage.why_not("h2"), ["former-member"], "both hosts are there");
    stage.report_gone(&session, &["h1"]).await;
    assert_eq!(stage.why_not("h2"), ["former-member"]);
    assert_eq!(members(&stage.apply("one", 2, 1).await.unwrap()), []);
    stage.report(&session, &[renamed("other")]).await;
    assert!(
        stage.why_not("h2").contains(&"former-member"),
        "load balancers connect to an address, whatever its network is called"
    );
    stage.report(&session, &[renamed("oam")]).await;
    assert_eq!(stage.why_not("h2"), ["former-member"]);

    let stage = stage.restart();
    let session = stage
        .sync_with(&[renamed("oam")], &[observed("one"), observed("two")], None)
        .await;
    assert_eq!(stage.why_not("h2"), ["former-member"], "it is in the ledger");
    stage.report(&session, &[host("h1")]).await;
    assert_eq!(stage.why_not("h2"), ["former-member"], "its host is back");
    stage.report(&session, &[host("h2")]).await;
    assert_eq!(stage.why_not("h2"), [""; 0], "it has an address of its own");
}

/// A host behind a BMC.
fn behind(host: wire::Host, bmc_address: &str) -> wire::Host {
    wire::Host {
        bmc_address: bmc_address.to_owned(),
        ..host
    }
}

/// Declares a cluster that needs no network.
async fn without_networks(stage: &Stage, name: &str, generation: i64) -> Arc<Record> {
    let spec = wire::ClusterSpec {
        network_ids: Vec::new(),
        ..spec(1)
    };
    stage.apply_spec(name, "uid", generation, spec).await.unwrap()
}

const BMC: &str = "redfish+https://192.0.2.1/redfish/v1/Systems/1";
/// The same, as another driver has it.
const SAME_BMC: &str = "idrac-virtualmedia://192.0.2.1:443/redfish/v1/Systems/1/";

/// A host is made again under another name, and its Secret with addresses comes later.
#[tokio::test]
async fn a_machine_is_known_by_its_bmc_under_another_name() {
    let (stage, session) = other_cluster().await;
    let is_former = |stage: &Stage, name: &str| stage.why_not(name).contains(&"former-member");
    let renamed = |bmc| silent(behind(host("h2"), bmc));
    stage.report(&session, &[behind(host("h1"), BMC)]).await;

    stage.report_gone(&session, &["h1"]).await;
    stage.report(&session, &[renamed(SAME_BMC)]).await;
    assert!(is_former(&stage, "h2"));
    let one = without_networks(&stage, "one", 2).await;
    assert_eq!(members(&one), []);
    stage
        .report(&session, &[renamed("redfish://192.0.2.1/redfish/v1/Systems/2")])
        .await;
    assert!(!is_former(&stage, "h2"), "another machine behind that BMC");
    stage.report(&session, &[renamed("")]).await;
    assert!(!is_former(&stage, "h2"), "nobody knows");

    let stage = stage.restart();
    let clusters = [observed("one"), observed("two")];
    let session = stage.sync_with(&[renamed(SAME_BMC)], &clusters, None).await;
    assert!(is_former(&stage, "h2"), "it is in the ledger");
    stage.report(&session, &[behind(host("h1"), BMC)]).await;
    assert!(!is_former(&stage, "h2"), "the machine has its host");
    stage.report_gone(&session, &["h1"]).await;
    assert!(is_former(&stage, "h2"));

    let two = stage.release("two").await.unwrap();
    assert!(is_former(&stage, "h2"), "it is not confirmed");
    assert!(stage.confirm(&two).await.is_none());
    assert!(!is_former(&stage, "h2"));
}

/// A BMC's address that hosts share by mistake is no reason to keep them from everybody else.
#[tokio::test]
async fn a_bmc_that_two_hosts_show_tells_no_machine() {
    let (stage, session) = other_cluster().await;
    let is_former = |name: &str| stage.why_not(name).contains(&"former-member");
    let sharing = |name: &str| behind(host(name), BMC);
    stage.report(&session, &["h1", "h2", "h3"].map(sharing)).await;
    assert!(!is_former("h2") && !is_former("h3"));

    stage.report_gone(&session, &["h1"]).await;
    assert!(!is_former("h2") && !is_former("h3"));
    let one = without_networks(&stage, "one", 2).await;
    assert_eq!(members(&one), [("h2".to_owned(), Claimed)]);

    stage.report(&session, &[host("h2")]).await;
    assert!(is_former("h3"), "it is the only one now");
    stage.report(&session, &[sharing("h4")]).await;
    assert!(!is_former("h3") && !is_former("h4"));
    stage.report_gone(&session, &["h3"]).await;
    assert!(is_former("h4"));
}

/// Two hosts are deleted and made again with each other's machines: `h1` shows the labels of its cluster.
#[tokio::test]
async fn a_crossed_hosts_former_machine_waits_for_its_release() {
    let (stage, session, _) = bound().await;
    stage.report_cluster(&session, "two", "uid").await;
    let remade = [
        moved(again(labelled("h1", "one")), "h2"),
        moved(again(host("h2")), "h1"),
    ];

    stage.report(&session, &remade).await;

    assert_eq!(
        stage.why_not("h2"),
        ["former-member"],
        "load balancers of the cluster may route to its machine"
    );
    assert_eq!(members(&stage.apply("two", 1, 1).await.unwrap()), []);
    let one = stage.record("one").await.unwrap();
    assert_eq!(
        places(&one),
        [
            ("uid-h1", Releasing, Some(0), at("h1")),
            ("uid-h1-again", Bound, Some(0), at("h2"))
        ],
        "the tenant keeps the host that has its labels"
    );
    stage.report(&session, &remade).await;
    assert_eq!(stage.record("one").await.unwrap(), one, "it stays so");

    stage.confirm(&one).await;
    assert_eq!(stage.why_not("h2"), [""; 0]);
    let one = stage.record("one").await.unwrap();
    assert_eq!(members(&one), [("h1".to_owned(), Bound)]);
}

#[tokio::test]
async fn a_remade_member_has_only_addresses_that_it_has_shown() {
    let (stage, session, _) = bound().await;
    stage.report_cluster(&session, "two", "uid").await;
    let remade = silent(again(labelled("h1", "one")));

    stage
        .report(&session, &[remade.clone(), moved(host("h2"), "h1")])
        .await;

    let one = stage.record("one").await.unwrap();
    let now = |addresses| ("uid-h1-again", Bound, Some(0), addresses);
    assert_eq!(
        places(&one),
        [("uid-h1", Releasing, Some(0), at("h1")), now(vec![])],
        "no load balancer routes to an address that may be another machine's"
    );
    assert_eq!(stage.why_not("h2"), ["former-member"]);
    assert_eq!(members(&stage.apply("two", 1, 1).await.unwrap()), []);

    stage.confirm(&one).await;
    assert_eq!(stage.why_not("h2"), [""; 0]);
    stage.report(&session, &[host("h2")]).await;
    for shown in [again(labelled("h1", "one")), remade] {
        stage.report(&session, &[shown]).await;
        let one = stage.record("one").await.unwrap();
        assert_eq!(places(&one), [now(at("h1"))], "it stays as last shown");
    }
}

/// Two hosts exchange their addresses, and none is made again.
#[tokio::test]
async fn a_members_former_address_waits_for_its_release() {
    let (stage, session, _) = bound().await;
    stage.report_cluster(&session, "two", "uid").await;
    let (there, back) = (("h2", "h1"), ("h1", "h2"));
    let report = async |(h1, h2): (&str, &str)| {
        let hosts = [moved(labelled("h1", "one"), h1), moved(host("h2"), h2)];
        stage.report(&session, &hosts).await;
        stage.record("one").await.unwrap()
    };

    let one = report(there).await;

    let now = |name| ("uid-h1", Bound, Some(0), at(name));
    let former = |uid, name| (uid, Releasing, Some(0), at(name));
    assert_eq!(
        places(&one),
        [now("h2"), former("uid-h1+1", "h1")],
        "load balancers route there until they have followed"
    );
    assert_eq!(stage.why_not("h2"), ["former-member"]);
    assert_eq!(members(&stage.apply("two", 1, 1).await.unwrap()), []);
    assert_eq!(stage.conflicts("one").await, [""; 0], "its host is there");
    assert_eq!(report(there).await, one, "it stays so");

    let early = report(back).await;
    assert_eq!(
        places(&early),
        [now("h1"), former("uid-h1+1", "h1"), former("uid-h1+2", "h2")]
    );
    let late = report(there).await;
    assert_eq!(places(&late).len(), 3, "as many as there are addresses");
    stage.confirm(&early).await;
    assert_eq!(
        places(&stage.record("one").await.unwrap()),
        [now("h2"), former("uid-h1+1", "h1")],
        "load balancers have routed there again since"
    );

    stage.confirm(&late).await;
    assert_eq!(places(&stage.record("one").await.unwrap()), [now("h2")]);
    stage.retry().await;
    let two = stage.record("two").await.unwrap();
    assert_eq!(members(&two), [("h2".to_owned(), Claimed)]);
}

/// The hosts of a report are known some time before records are brought in line with them.
#[tokio::test]
async fn a_moved_address_is_guarded_before_its_record_follows() {
    let (stage, session, _) = bound().await;
    stage.report_cluster(&session, "two", "uid").await;
    let moved = [moved(labelled("h1", "one"), "h3"), moved(host("h2"), "h1")];

    stage.report_unsettled(&session, &moved);
    assert_eq!(members(&stage.apply("two", 1, 1).await.unwrap()), []);

    let stage = stage.restart();
    let clusters = [observed("one"), observed("two")];
    stage.snapshot_unsettled(&moved, &clusters).await;
    assert_eq!(members(&stage.apply("two", 1, 1).await.unwrap()), []);
    stage.retry().await;
    assert_eq!(members(&stage.record("two").await.unwrap()), []);
}

/// An exchange of addresses is two edits: for a while both hosts show the same one.
#[tokio::test]
async fn an_exchange_in_two_edits_frees_no_address_in_use() {
    let (stage, session, _) = bound().await;
    stage.report_cluster(&session, "two", "uid").await;

    stage.report(&session, &[moved(host("h2"), "h1")]).await;
    assert_eq!(stage.why_not("h2"), ["former-member"]);
    assert_eq!(members(&stage.apply("two", 1, 1).await.unwrap()), []);
    let own = stage.apply("one", 2, 2).await.unwrap();
    assert_eq!(members(&own).len(), 2, "the cluster itself may have it");
    let back = stage.apply("one", 3, 1).await.unwrap();
    stage.report(&session, &[moved_and_released(&back)]).await;
    stage.confirm(&back).await;

    stage
        .report(&session, &[moved(labelled("h1", "one"), "h2")])
        .await;
    let one = stage.record("one").await.unwrap();
    assert_eq!(
        places(&one),
        [
            ("uid-h1", Bound, Some(0), at("h2")),
            ("uid-h1+1", Releasing, Some(0), at("h1"))
        ]
    );
    stage.retry().await;
    assert_eq!(members(&stage.record("two").await.unwrap()), []);
    stage.confirm(&one).await;
    stage.retry().await;
    let two = stage.record("two").await.unwrap();
    assert_eq!(members(&two), [("h2".to_owned(), Claimed)]);
}

/// `h2` at the address of `h1`, with the mark of its release.
fn moved_and_released(record: &Record) -> wire::Host {
    let id = record.members.keys().find(|id| id.name.name() == "h2");
    moved(released("h2", record.members[id.unwrap()].revision), "h1")
}

/// The Secret with the addresses of a member's host is deleted, and another host gets one of them.
#[tokio::test]
async fn an_address_that_vanished_is_released_where_it_appears() {
    let (stage, session, _) = bound().await;
    stage.report_cluster(&session, "two", "uid").await;
    let gone = silent(labelled("h1", "one"));

    stage.report(&session, std::slice::from_ref(&gone)).await;
    let last_known = [("uid-h1", Bound, Some(0), at("h1"))];
    assert_eq!(places(&stage.record("one").await.unwrap()), last_known);

    stage.report(&session, &[moved(host("h2"), "h1")]).await;
    let one = stage.record("one").await.unwrap();
    let released = [
        ("uid-h1", Bound, Some(0), vec![]),
        ("uid-h1+1", Releasing, Some(0), at("h1")),
    ];
    assert_eq!(places(&one), released);
    assert_eq!(stage.why_not("h2"), ["former-member"]);
    assert_eq!(members(&stage.apply("two", 1, 1).await.unwrap()), []);
    stage.report(&session, std::slice::from_ref(&gone)).await;
    assert_eq!(stage.record("one").await.unwrap(), one, "it stays so");

    stage.confirm(&one).await;
    stage.retry().await;
    let two = stage.record("two").await.unwrap();
    assert_eq!(members(&two), [("h2".to_owned(), Claimed)]);
}

#[tokio::test]
async fn one_address_of_two_free_hosts_is_of_who_claims_it() {
    let stage = Stage::empty();
    let hosts = [host("h1"), moved(host("h2"), "h1")];
    let clusters = [observed("one"), observed("two")];
    let session = stage.sync_with(&hosts, &clusters, None).await;
    assert_eq!(stage.why_not("h1"), [""; 0]);
    assert_eq!(stage.why_not("h2"), [""; 0]);

    let one = stage.apply("one", 1, 1).await.unwrap();
    assert_eq!(members(&one), [("h1".to_owned(), Claimed)]);
    assert_eq!(stage.why_not("h1"), ["held"]);
    assert_eq!(stage.why_not("h2"), ["former-member"]);

    // A person has labelled both: what is a member stays one.
    let both = [labelled("h1", "one"), moved(labelled("h2", "two"), "h1")];
    stage.report(&session, &both).await;
    let two = stage.apply("two", 1, 1).await.unwrap();
    assert_eq!(members(&two), [("h2".to_owned(), Bound)]);
    stage.report(&session, &both).await;
    assert_eq!(members(&stage.record("one").await.unwrap()).len(), 1);
}
