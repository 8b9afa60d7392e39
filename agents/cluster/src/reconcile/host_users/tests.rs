use std::convert::Infallible;

use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::fixtures::{host, inventory, key, with};

/// A path and the object there.
type Stored = (String, Value);

/// An API server that has these objects.
fn server(objects: Vec<Stored>) -> Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let found = objects.iter().find(|(path, _)| *path == request.uri().path());
        let (code, body) = match found {
            Some((_, object)) => (200, object.clone()),
            None => (
                404,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound", "message": ""}),
            ),
        };
        let response = http::Response::builder().status(code);
        let response = response.body(Body::from(serde_json::to_vec(&body).unwrap()));
        std::future::ready(Ok::<_, Infallible>(response.unwrap()))
    });
    Client::new(service, "default")
}

fn object(metadata: &Value, spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Any", "metadata": metadata, "spec": spec})
}

/// A `Metal3Machine` that this Machine owns, by a version of Cluster API.
fn owned_by(namespace: &str, machine: &str, version: &str) -> Stored {
    let owner = json!({"apiVersion": format!("cluster.x-k8s.io/{version}"), "kind": "Machine", "name": machine, "uid": "u"});
    let metadata = json!({"name": "m3m-0", "uid": "uid-m3m", "ownerReferences": [owner]});
    let path =
        format!("/apis/infrastructure.cluster.x-k8s.io/v1beta1/namespaces/{namespace}/metal3machines/m3m-0");
    (path, object(&metadata, &json!({})))
}

fn metal3_machine() -> Stored {
    owned_by("metal", "m-0", "v1beta1")
}

/// A Machine `m-0` with this uid, of this Cluster.
fn machine_of(namespace: &str, uid: &str, cluster: Option<&str>) -> Stored {
    let labels =
        json!({"cluster.x-k8s.io/deployment-name": "shop-md", "cluster.x-k8s.io/cluster-name": cluster});
    let metadata = json!({"name": "m-0", "uid": uid, "labels": cluster.map(|_| labels)});
    let path = format!("/apis/cluster.x-k8s.io/v1beta1/namespaces/{namespace}/machines/m-0");
    (path, object(&metadata, &json!({})))
}

fn machine(deleted: bool) -> Stored {
    let (path, mut machine) = machine_of("metal", "u", Some("shop"));
    if deleted {
        machine["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    (path, machine)
}

/// `HostClaim` `shop/c-0`.
fn claim(consumer: &Value) -> Stored {
    let path = "/apis/metal3.io/v1alpha1/namespaces/shop/hostclaims/c-0".to_owned();
    let spec = json!({ "consumerRef": consumer });
    (path, object(&json!({"name": "c-0"}), &spec))
}

/// For which `Metal3Machine` that is.
fn metal3_in(namespace: Option<&str>, name: &str) -> Value {
    json!({"apiVersion": format!("{INFRASTRUCTURE}/v1beta1"), "kind": METAL3_MACHINE, "namespace": namespace, "name": name})
}

fn reference(version: &str, kind: &str, namespace: &str, name: &str) -> ConsumerReference {
    serde_json::from_value(json!({"apiVersion": version, "kind": kind, "namespace": namespace, "name": name}))
        .unwrap()
}

fn of_metal3() -> ConsumerReference {
    reference(
        &format!("{INFRASTRUCTURE}/v1beta1"),
        METAL3_MACHINE,
        "metal",
        "m3m-0",
    )
}

fn of_claim() -> ConsumerReference {
    reference("metal3.io/v1alpha1", HOST_CLAIM, "shop", "c-0")
}

/// The Cluster that the `SIPCluster` `shop/shop` serves.
fn served(annotation: Option<&str>) -> ClusterApiCluster {
    ClusterApiCluster::served_by(annotation, "shop")
}

/// The Machine and its owner, or the `HostClaim`.
fn described(user: Option<User>) -> String {
    match user {
        Some(User::Machine(machine)) => format!("{machine} of {}", machine.owner().unwrap_or("nobody")),
        Some(User::Claim(name) | User::Kept(name)) => name,
        Some(User::Foreign(name)) => format!("another Cluster's, by {name}"),
        None => "nobody".to_owned(),
    }
}

#[tokio::test]
async fn a_host_claim_leads_to_its_machine() {
    let machine_is = "shop/m-0 of MachineDeployment shop-md";
    let own = || {
        [
            owned_by("shop", "m-0", "v1beta1"),
            machine_of("shop", "u", Some("shop")),
        ]
    };
    for (consumer, objects, expected) in [
        (
            of_metal3(),
            vec![metal3_machine(), machine(false)],
            "metal/m-0 of MachineDeployment shop-md",
        ),
        (
            of_claim(),
            vec![claim(&metal3_in(Some("shop"), "m3m-0"))],
            machine_is,
        ),
        // Without a namespace it is in that of the claim.
        (of_claim(), vec![claim(&metal3_in(None, "m3m-0"))], machine_is),
        (of_claim(), vec![claim(&metal3_in(Some(""), "m3m-0"))], machine_is),
        (of_claim(), vec![claim(&Value::Null)], "HostClaim shop/c-0"),
        (
            of_claim(),
            vec![claim(&json!({"kind": "Pod", "name": "p"}))],
            "HostClaim shop/c-0",
        ),
        (of_claim(), vec![], "nobody"),
        (
            reference("cluster.x-k8s.io/v1beta2", CLUSTER, "metal", "shop"),
            vec![],
            "Cluster metal/shop",
        ),
        (
            reference("x/v1", HOST_CLAIM, "shop", "c-0"),
            vec![claim(&metal3_in(None, "m3m-0"))],
            "nobody",
        ),
    ] {
        let objects = objects.into_iter().chain(own()).collect();
        let found = find(&server(objects), &served(None), &consumer).await.unwrap();
        assert_eq!(described(found), expected, "{consumer:?}");
    }
}

/// The victim has Machine `metal/m-0` of Cluster `victim`. Each row is what somebody writes who may write `HostClaim`s and `SIPCluster`s of the
/// namespace `shop`, and the annotation of theirs.
#[tokio::test]
async fn no_host_claim_leads_to_the_machine_of_another_tenant() {
    let claimed = "HostClaim shop/c-0";
    for (who, annotation, consumer, expected) in [
        (
            "a claim with its namespace",
            None,
            metal3_in(Some("metal"), "m3m-0"),
            claimed,
        ),
        (
            "one that claims its Cluster, too",
            Some("victim"),
            metal3_in(Some("metal"), "m3m-0"),
            claimed,
        ),
        (
            "one that claims it with the namespace",
            Some("metal/victim"),
            metal3_in(Some("metal"), "m3m-0"),
            claimed,
        ),
        (
            "a claim with a path",
            Some("victim"),
            metal3_in(None, "../../metal/metal3machines/m3m-0"),
            claimed,
        ),
        (
            "an own Metal3Machine of another owner",
            None,
            metal3_in(None, "m3m-0"),
            "another Cluster's, by HostClaim shop/c-0",
        ),
    ] {
        let objects = vec![
            claim(&consumer),
            metal3_machine(),
            machine_of("metal", "u", Some("victim")),
            owned_by("shop", "m-0", "v1beta1"),
            machine_of("shop", "u", Some("other")),
        ];
        let found = find(&server(objects), &served(annotation), &of_claim()).await;
        assert_eq!(described(found.unwrap()), expected, "{who}");
    }
}

#[tokio::test]
async fn only_the_owner_of_the_served_cluster_counts() {
    let is = "metal/m-0 of MachineDeployment shop-md";
    let foreign = "another Cluster's, by Metal3Machine metal/m3m-0";
    let gone = "metal/m-0 of nobody, gone";
    for (what, annotation, version, machine, expected) in [
        ("it is", None, "v1beta1", machine(false), is),
        (
            "by the annotation",
            Some("metal/prod"),
            "v1beta1",
            machine_of("metal", "u", Some("prod")),
            is,
        ),
        // The owner was made by a version that the API server does not have any more, or has besides.
        ("by an old version", None, "v1alpha4", machine(false), is),
        ("by a new version", None, "v1beta2", machine(false), is),
        (
            "of another Cluster",
            None,
            "v1beta1",
            machine_of("metal", "u", Some("stall")),
            foreign,
        ),
        (
            "of a Cluster elsewhere",
            Some("other/shop"),
            "v1beta1",
            machine(false),
            foreign,
        ),
        (
            "of none",
            None,
            "v1beta1",
            machine_of("metal", "u", None),
            foreign,
        ),
        (
            "another one of its name",
            None,
            "v1beta1",
            machine_of("metal", "another", Some("stall")),
            gone,
        ),
    ] {
        let objects = vec![owned_by("metal", "m-0", version), machine];
        let found = find(&server(objects), &served(annotation), &of_metal3())
            .await
            .unwrap();
        let leaves = matches!(&found, Some(User::Machine(machine)) if machine.leaves());
        let gone = if leaves { ", gone" } else { "" };
        assert_eq!(format!("{}{gone}", described(found)), expected, "{what}");
    }
    // A name that no API server takes is in no message.
    let objects = vec![owned_by("metal", "m\n0", "v1beta1")];
    let found = find(&server(objects), &served(None), &of_metal3()).await.unwrap();
    assert_eq!(found, None);
}

/// The inventory of a site whose host, which this consumer used and these own, has just gone.
fn without(consumer: &ConsumerReference, owners: &[OwnerReference]) -> (Inventory, HostId) {
    let host = with(host("h1"), "/spec/consumerRef", json!(consumer));
    let host = with(host, "/metadata/ownerReferences", json!(owners));
    let inventory = inventory([host]);
    let id = inventory.host(&key("h1")).unwrap().id().clone();
    inventory.delete_host(&key("h1"));
    (inventory, id)
}

/// By which owner it was collected, and which Machine is left.
async fn left(objects: Vec<Stored>, (inventory, host): &(Inventory, HostId)) -> [Option<String>; 2] {
    let left = find_left(&server(objects), inventory, &served(None), host).await;
    match left.unwrap() {
        Some(Remains::Collected(owner)) => [Some(owner), None],
        Some(Remains::Machine(machine)) => [None, Some(machine.to_string())],
        None => [None, None],
    }
}

fn owner(uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: format!("{INFRASTRUCTURE}/v1beta1"),
        kind: METAL3_MACHINE.to_owned(),
        name: "m3m-0".to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }
}

#[tokio::test]
async fn a_collected_host_is_told_from_a_deleted_one() {
    let unreadable = OwnerReference {
        api_version: "x/v1".to_owned(),
        ..owner("uid-m3m")
    };
    let (own, other) = (owner("uid-m3m"), owner("uid-before"));
    let is_there = || vec![metal3_machine(), machine(false)];
    let collected = [Some("Metal3Machine metal/m3m-0"), None];
    let deleted = [None, Some("metal/m-0")];
    for (owners, objects, expected) in [
        (vec![own.clone()], is_there(), deleted),
        (
            vec![own.clone()],
            vec![metal3_machine(), machine(true)],
            [None, None],
        ),
        (vec![own.clone()], vec![metal3_machine()], [None, None]),
        (vec![own.clone()], vec![], collected),
        // Another one of its name.
        (vec![other.clone()], is_there(), collected),
        (vec![other.clone(), own], is_there(), deleted),
        (vec![other, unreadable], is_there(), deleted),
        (vec![], is_there(), deleted),
    ] {
        let names: Vec<_> = owners.iter().map(|owner| owner.uid.clone()).collect();
        let found = left(objects, &without(&of_metal3(), &owners)).await;
        assert_eq!(found, expected.map(|text| text.map(str::to_owned)), "{names:?}");
    }
}

#[tokio::test]
async fn a_deleted_host_is_not_collected_afterwards() {
    let gone = without(&of_metal3(), &[owner("uid-m3m")]);
    let machine_is = Some("metal/m-0".to_owned());
    assert_eq!(
        left(vec![metal3_machine(), machine(false)], &gone).await,
        [None, machine_is]
    );
    // A person deletes the Machine, as the message says; the Metal3Machine goes with it.
    assert_eq!(left(vec![], &gone).await, [None, None]);
    // Of one that was collected this stays, whatever takes the owner's name.
    let gone = without(&of_metal3(), &[owner("uid-m3m")]);
    let collected = Some("Metal3Machine metal/m3m-0".to_owned());
    assert_eq!(left(vec![], &gone).await, [collected.clone(), None]);
    assert_eq!(
        left(vec![metal3_machine(), machine(false)], &gone).await,
        [collected, None]
    );
}
