//! Nodes that CAPM3 and Cluster API link to their Machines: they are found by their providerID alone, and left to Cluster API when their host
//! leaves.

use std::{collections::BTreeSet, net::Ipv4Addr};

use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};
use metal3::nodes::{self, HOST_UID, Link};
use sandbox::region::HOSTS_NAMESPACE;
use serde_json::{Value, json};

use super::{NAMESPACE, Scene, given_back, host, node_on};

/// An address that no host has.
const STRANGE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);

/// The Machine on a host.
async fn machine_on(scene: &Scene, host: &str) -> Link {
    let found = scene.stage.hosts().get(host).await.unwrap();
    Link {
        namespace: HOSTS_NAMESPACE.to_owned(),
        cluster: "depot".to_owned(),
        machine: format!("{host}-machine"),
        metal3_machine: format!("{host}-m3m"),
        host: host.to_owned(),
        host_uid: found.uid().unwrap(),
    }
}

/// Makes a Node that only its label ties to a host, with this providerID, as its kubelet has it from bootstrap. Links it.
async fn linked(scene: &Scene, machine: &Link, provider_id: Value, ready: bool) {
    let name = node_on(&machine.host);
    scene.node(&name, STRANGE, ready).await;
    let patch = json!({
        "metadata": {"labels": {HOST_UID: machine.host_uid}}, "spec": {"providerID": provider_id},
    });
    scene
        .nodes()
        .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    assert!(nodes::link(scene.tenant.client(), machine).await.unwrap());
}

/// In a scene with tenants of their own Nodes.
pub(super) async fn its_nodes_are_found_and_left_to_it(scene: &Scene) {
    let stage = &scene.stage;
    stage
        .load(&["e", "f", "g"].map(|name| host(NAMESPACE, "worker", "r1", name)))
        .await;
    let depot = Scene::cluster("depot", 3, 30_720);
    stage.create(&depot).await;
    let of_depot = scene.labelled(&depot, 3).await;
    let [ready, new, legacy] = [
        machine_on(scene, &of_depot[0]).await,
        machine_on(scene, &of_depot[1]).await,
        machine_on(scene, &of_depot[2]).await,
    ];
    linked(scene, &ready, Value::Null, true).await;
    linked(scene, &new, Value::Null, false).await;
    linked(scene, &legacy, json!(legacy.legacy_provider_id()), false).await;
    let expected =
        BTreeSet::from([&new, &legacy].map(|machine| (machine.host.clone(), node_on(&machine.host))));
    stage
        .until(&depot, "name the members whose Node is not ready", |object| {
            let named = object.data["status"]["tenantNodes"]["notPreferred"].as_array();
            let named = named.into_iter().flatten();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let named = named.map(|member| (text(&member["name"]), text(&member["node"])));
            named.collect::<BTreeSet<_>>() == expected
        })
        .await;

    // A host leaves after Cluster API's Machine has left it: what happens to the Node is for Cluster API to decide.
    stage
        .edit(&depot, json!({"nodes": {"Worker": {"count": {"active": 2}}}}))
        .await;
    stage
        .until_hosts(NAMESPACE, "be given back", |hosts| {
            let mut left = hosts.iter().filter(|host| given_back(host));
            left.any(|host| of_depot.contains(&host.name_any()))
        })
        .await;
    for host in &of_depot {
        let node = scene.nodes().get(&node_on(host)).await.unwrap();
        let spec = node.spec.unwrap_or_default();
        assert_eq!(spec.unschedulable, None, "{host}: neither cordoned nor deleted");
    }
}
