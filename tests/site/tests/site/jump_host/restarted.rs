//! A jump host while its agent goes away and comes back: users notice nothing.

use sandbox::region::Agent;
use serde_json::json;

use super::{BEN, CONDITION, NAME, deployment, secret, with_jump_host};
use crate::fixtures::{Stage, host};

#[tokio::test(flavor = "multi_thread")]
async fn a_host_key_is_the_same_after_a_failover_of_the_agent() {
    let mut stage = Stage::start("jump-failover", &[]).await;
    let power = stage.region.power_port(&stage.site).unwrap();
    stage.start_jump_hosts(&power, None).await;
    stage.site.create_tenant_namespace("jump-failover").await.unwrap();
    let hosts = [
        host("jump-failover", "cp", "r1", "one"),
        host("jump-failover", "worker", "r2", "two"),
    ];
    stage.load(&hosts).await;
    let shop = with_jump_host("jump-failover", &json!({"nodePort": 31_543}));
    stage.create(&shop).await;
    let ready = stage.ready(&shop).await;
    let keys = secret(&stage, "jump-failover").await;
    let endpoints = ready.data["status"]["endpoints"].clone();
    assert_eq!(endpoints[0]["name"], NAME);
    let generation = deployment(&stage, "jump-failover").await.metadata.generation;

    // The next one has the Lease as another replica has it, and knows nothing of the one before.
    stage.agent(Agent::JumpHost).kill9().await.unwrap();
    let entry = json!({
        "image": "jump-host:1", "nodeInterfaceId": sandbox::inventory::NETWORK, "nodePort": 31_543,
        "sshAuthorizedKeys": [BEN],
    });
    stage
        .edit(&shop, json!({"services": {"jumpHost": [entry]}}))
        .await;
    stage.agent(Agent::JumpHost).restart().await.unwrap();
    stage.condition_is(&shop, CONDITION, "True", "Available").await;
    assert_eq!(secret(&stage, "jump-failover").await, keys);
    assert_eq!(stage.ready(&shop).await.data["status"]["endpoints"], endpoints);
    // Pods with another host key would be other pods.
    assert_eq!(
        deployment(&stage, "jump-failover").await.metadata.generation,
        generation
    );
}
