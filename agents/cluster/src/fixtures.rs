//! Hosts, members and clusters for the tests: good ones, made different by verbs.

use api::MemberState;
use api::{BareMetalHost, SIPCluster};
use kit::placement::{ClusterId, Member, ObjectKey, Placement};
use proto::{inventory::v1 as wire, placement::v1 as placed};
use serde_json::{Value, json};

use crate::inventory::Inventory;

/// The key of an object of the namespace `metal`.
pub(crate) fn key(name: &str) -> ObjectKey {
    key_in("metal", name)
}

/// The key of an object of a namespace.
pub(crate) fn key_in(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

/// The cluster `tenant/one`.
pub(crate) fn reference() -> ClusterId {
    ClusterId::new(key_in("tenant", "one"), "uid-one")
}

/// An available host whose addresses are in the Secret `NAME-network-data`.
pub(crate) fn host(name: &str) -> Value {
    json!({
        "apiVersion": "metal3.io/v1alpha1",
        "kind": "BareMetalHost",
        "metadata": {
            "namespace": "metal", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "7",
            "labels": {}, "annotations": {},
        },
        "spec": {
            "online": true,
            "bmc": { "address": "redfish+https://192.0.2.1/redfish/v1/Systems/1", "credentialsName": "bmc" },
            "networkData": { "name": format!("{name}-network-data") },
        },
        "status": { "operationalStatus": "OK", "provisioning": { "state": "available" } },
    })
}

/// The host with one value set.
pub(crate) fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field.replace("~1", "/")] = value;
    object
}

/// The host with the three labels of a cluster.
pub(crate) fn labelled(mut object: Value, cluster: &str, role: &str) -> Value {
    object["metadata"]["labels"] = json!({
        "sip.airshipit.org/cluster-namespace": "tenant",
        "sip.airshipit.org/cluster-name": cluster,
        "sip.airshipit.org/node-type": role,
    });
    object
}

pub(crate) fn used(object: Value) -> Value {
    let machine =
        json!({ "apiVersion": "x/v1", "kind": "Metal3Machine", "namespace": "tenant", "name": "m-0" });
    with(object, "/spec/consumerRef", machine)
}

pub(crate) fn parse(object: Value) -> BareMetalHost {
    serde_json::from_value(object).unwrap()
}

/// An inventory with these hosts.
pub(crate) fn inventory(hosts: impl IntoIterator<Item = Value>) -> Inventory {
    let inventory = Inventory::default();
    for host in hosts {
        inventory.put_host(&parse(host));
    }
    inventory
}

/// A worker of the cluster, claimed at revision 5.
pub(crate) fn member(host: &str, state: MemberState) -> Member {
    parse_member(answer(host, state))
}

/// The same, as the scheduler answers it.
pub(crate) fn answer(host: &str, state: MemberState) -> placed::Member {
    let state = match state {
        MemberState::Claimed => wire::MemberState::Claimed,
        MemberState::Bound => wire::MemberState::Bound,
        MemberState::Releasing => wire::MemberState::Releasing,
    };
    placed::Member {
        host: Some(wire::HostRef {
            namespace: "metal".to_owned(),
            name: host.to_owned(),
            uid: format!("uid-{host}"),
        }),
        role: "Worker".to_owned(),
        state: state.into(),
        revision: 5,
        ..placed::Member::default()
    }
}

pub(crate) fn parse_member(answer: placed::Member) -> Member {
    answer.try_into().unwrap()
}

/// What the cluster holds.
pub(crate) fn placement(members: Vec<placed::Member>) -> Placement {
    placement_answer(members).try_into().unwrap()
}

/// The same, as the scheduler answers it.
pub(crate) fn placement_answer(members: Vec<placed::Member>) -> placed::Placement {
    placed::Placement {
        cluster: Some(wire::ClusterRef {
            namespace: "tenant".to_owned(),
            name: "one".to_owned(),
            uid: "uid-one".to_owned(),
        }),
        generation: 3,
        revision: Some(wire::Revision {
            epoch: 1,
            revision: 5,
        }),
        members,
        ..placed::Placement::default()
    }
}

/// A cluster with one load balancer and a jump host, at generation 3.
pub(crate) fn cluster(status: &Value) -> SIPCluster {
    serde_json::from_value(json!({
        "apiVersion": "airship.airshipit.org/v1",
        "kind": "SIPCluster",
        "metadata": { "namespace": "tenant", "name": "one", "uid": "uid-one", "generation": 3 },
        "spec": {
            "nodes": { "Worker": { "labelSelector": {}, "count": { "active": 2, "standby": 1 } } },
            "services": {
                "loadBalancerWorker": [{
                    "image": "haproxy", "nodeInterfaceId": "oam", "nodePortRange": { "start": 30010, "end": 30011 },
                }],
                "jumpHost": [{ "image": "jump", "nodeInterfaceId": "oam", "nodePort": 30001 }],
            },
        },
        "status": status,
    }))
    .unwrap()
}
