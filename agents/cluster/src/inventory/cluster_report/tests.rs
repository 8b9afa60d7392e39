use std::collections::BTreeMap;

use kit::placement::ObjectKey;
use serde_json::{Value, json};

use super::*;
use crate::{fixtures, inventory::Inventory};

/// A `SIPCluster` with a member of each of two roles, whose placement answers generation 3 of the spec.
fn cluster(generation: i64, worker_key: &str) -> SIPCluster {
    let member = |name: &str, role: &str, domain: Value| {
        json!({
            "namespace": "metal", "name": name, "uid": format!("uid-{name}"), "role": role, "state": "Bound",
            "revision": 5, "domain": domain,
        })
    };
    let mut cluster = fixtures::cluster(&json!({
        "placement": {
            "epoch": 1, "revision": 5, "generation": 3,
            "members": [
                member("h1", "Worker", json!("r1")), member("h2", "ControlPlane", Value::Null),
                member("h3", "Removed", json!("r3")),
            ],
        },
    }));
    cluster.metadata.generation = Some(generation);
    let node_set = |key: &str| api::NodeSet {
        topology_key: Some(key.to_owned()),
        ..api::NodeSet::default()
    };
    cluster.spec.nodes = [
        ("Worker".to_owned(), node_set(worker_key)),
        ("ControlPlane".to_owned(), node_set("rack")),
    ]
    .into();
    cluster
}

/// The key of these clusters.
fn key() -> ObjectKey {
    fixtures::reference().key().clone()
}

fn keys(report: &wire::ObservedCluster) -> Vec<(&str, &str)> {
    let keys = report.topology_keys.iter();
    keys.map(|(role, key)| (role.as_str(), key.as_str())).collect()
}

#[test]
fn domains_are_reported_with_the_keys_of_their_spec() {
    let report = report(&cluster(3, "rack"));
    let domains: Vec<_> = report
        .members
        .iter()
        .map(|member| member.domain.as_deref())
        .collect();
    assert_eq!(domains, [Some("r1"), None, Some("r3")]);
    assert_eq!(keys(&report), [("Worker", "rack")]);
    assert_eq!(keys(&super::report(&cluster(3, ""))), []);
}

#[test]
fn keys_of_a_spec_that_is_newer_than_the_placement_are_unknown() {
    let report = report(&cluster(4, "zone"));
    assert_eq!(report.members[0].domain.as_deref(), Some("r1"));
    assert_eq!(report.topology_keys, BTreeMap::new());
}

/// A person edits the spec while there is no scheduler.
#[test]
fn an_agent_remembers_the_keys_of_the_placement() {
    let inventory = Inventory::default();
    let reported = |cluster: &SIPCluster| {
        inventory.put_cluster(key(), report(cluster));
        inventory.report_all();
        let reports = inventory.take(1).clusters;
        let keys = keys(&reports[0]).into_iter();
        keys.map(|(_, key)| key.to_owned()).collect::<Vec<String>>()
    };
    assert_eq!(reported(&cluster(3, "rack")), ["rack"]);
    assert_eq!(reported(&cluster(4, "zone")), ["rack"]);
    assert_eq!(
        reported(&cluster(5, "zone")),
        ["rack"],
        "however often it is edited"
    );

    let mut newer = cluster(5, "zone");
    newer
        .status
        .as_mut()
        .unwrap()
        .placement
        .as_mut()
        .unwrap()
        .revision = 6;
    assert_eq!(
        reported(&newer),
        [""; 0],
        "that may have been decided for generation 4"
    );
    assert_eq!(reported(&cluster(3, "rack")), ["rack"]);
    let mut remade = cluster(4, "zone");
    remade.metadata.uid = Some("uid-again".to_owned());
    assert_eq!(reported(&remade), [""; 0], "another SIPCluster");
}

#[test]
fn what_cannot_be_read_is_reported_as_it_was() {
    let inventory = Inventory::default();
    let reported = || {
        inventory.report_all();
        inventory.take(1).clusters.remove(0)
    };
    let readable = report(&cluster(3, "rack"));
    inventory.put_cluster(key(), readable.clone());
    let mut unreadable = cluster(4, "rack");
    unreadable.status.as_mut().unwrap().placement = None;
    inventory.put_unreadable_cluster(key(), report(&unreadable));
    let expected = wire::ObservedCluster {
        generation: 4,
        ..readable
    };
    assert_eq!(reported(), expected);
    unreadable.metadata.uid = Some("uid-again".to_owned());
    inventory.put_unreadable_cluster(key(), report(&unreadable));
    assert!(reported().members.is_empty(), "another SIPCluster");
}

#[test]
fn an_agent_that_starts_reports_what_can_be_read() {
    let mut unreadable = cluster(3, "rack");
    let placement = unreadable.status.as_mut().unwrap().placement.take().unwrap();
    let mut placement = serde_json::to_value(placement).unwrap();
    placement["members"][0]["state"] = json!("Moving");
    placement["revision"] = json!(6);
    unreadable.spec.left_out.placement = Some(placement);
    for known in [false, true] {
        let inventory = Inventory::default();
        if known {
            inventory.put_cluster(key(), report(&cluster(3, "rack")));
        }
        inventory.put_unreadable_cluster(key(), report(&unreadable));
        inventory.report_all();
        let reported = inventory.take(1).clusters.remove(0);
        let revision = reported.revision.map(|at| (at.epoch, at.revision));
        assert_eq!(revision, Some((1, 6)), "{known}");
        let hosts = reported.members.iter().map(|member| {
            let host = member.host.as_ref().unwrap();
            (&*host.name, member.state())
        });
        let (bound, claimed) = (wire::MemberState::Bound, wire::MemberState::Claimed);
        let expected = [("h1", claimed), ("h2", bound), ("h3", bound)];
        assert_eq!(hosts.collect::<Vec<_>>(), expected, "{known}");
    }
}
