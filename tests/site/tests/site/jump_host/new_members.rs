//! A cluster that gets hosts while its jump-host agent does not run.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::DynamicObject;
use sandbox::{inventory::NETWORK, region::Agent, wait};
use serde_json::json;

use super::{CONDITION, KEY, api, scheduler_away::site};
use crate::fixtures::{Role, cluster, host, members};

/// Whether all members have their labels, by the cluster agent.
fn is_labelled(object: &DynamicObject) -> bool {
    let members = members(object);
    members.len() == 3
        && members.iter().all(|member| member.state == "Bound")
        && wait::is_true(object, "HostsLabeled")
}

#[tokio::test(flavor = "multi_thread")]
async fn ready_waits_for_jump_hosts_to_have_new_members() {
    let mut stage = site("jump-joined", None).await;
    let entry = json!({
        "image": "jump-host:1", "nodeInterfaceId": NETWORK, "nodePort": 31_545, "sshAuthorizedKeys": [KEY],
    });
    let shop = cluster("jump-joined", "shop")
        .role(Role::ControlPlane, 1)
        .role(Role::Worker, 2)
        .with("/services/jumpHost", json!([entry]));
    stage.create(&shop).await;
    stage
        .condition_is(&shop, "Scheduled", "False", "Unschedulable")
        .await;
    stage
        .condition_is(&shop, CONDITION, "True", "PowerServiceUnavailable")
        .await;

    stage.agent(Agent::JumpHost).kill9().await.unwrap();
    stage.load(&[host("jump-joined", "worker", "r3", "three")]).await;
    let labelled = stage.until(&shop, "have its hosts labelled", is_labelled).await;
    let (status, reason, message) = wait::condition(&labelled, "Ready").unwrap();
    assert_eq!((status, reason), ("False", "Progressing"), "{message}");
    assert!(message.starts_with("jumpHost: "), "{message}");

    stage.agent(Agent::JumpHost).restart().await.unwrap();
    stage.ready(&shop).await;
    let files = api::<ConfigMap>(&stage, "jump-joined").get("jumphost-shop").await;
    let files = files.unwrap().data.unwrap();
    for name in ["jump-joined-one", "jump-joined-two", "jump-joined-three"] {
        assert!(files["ssh_config"].contains(name), "{name}: {files:?}");
    }
}
