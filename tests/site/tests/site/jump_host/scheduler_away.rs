//! Who may log in while the scheduler does not answer.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use sandbox::{inventory::NETWORK, region::Agent, wait};
use serde_json::json;

use super::{BEN, KEY, NAME, api, files, with_jump_host};
use crate::fixtures::{Stage, host};

/// Within this time a key that was removed is gone.
const REMOVED: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_key_is_gone_also_without_scheduler() {
    let mut stage = Stage::start("jump-away", &[]).await;
    for agent in [Agent::Cluster, Agent::JumpHost] {
        stage
            .start_agent_where(agent, |config| {
                config.not_installed = vec!["loadBalancer".to_owned(), "auth".to_owned()];
            })
            .await;
    }
    stage.agents_are_ready().await;
    stage.site.create_tenant_namespace("jump-away").await.unwrap();
    stage
        .load(&[
            host("jump-away", "cp", "r1", "one"),
            host("jump-away", "worker", "r2", "two"),
        ])
        .await;
    let shop = with_jump_host("jump-away", &json!({"sshAuthorizedKeys": [KEY, BEN]}));
    stage.create(&shop).await;
    stage.ready(&shop).await;
    let before = files(&stage, "jump-away").await;
    assert_eq!(before["authorized_keys"], format!("{KEY}\n{BEN}\n"));

    stage.region_mut().scheduler().kill9().await.unwrap();
    let without_ana = json!({"services": {"jumpHost": [{
        "image": "jump-host:1", "nodeInterfaceId": NETWORK, "sshAuthorizedKeys": [BEN],
    }]}});
    let edited = Instant::now();
    stage.edit(&shop, without_ana).await;
    wait::until(
        api::<ConfigMap>(&stage, "jump-away"),
        NAME,
        "ConfigMap to lack the removed key",
        REMOVED,
        |map: &ConfigMap| {
            let files = map.data.as_ref();
            files.is_some_and(|files| files["authorized_keys"] == format!("{BEN}\n"))
        },
    )
    .await
    .unwrap();
    println!("a removed key was gone after {:?}", edited.elapsed());
    let after = files(&stage, "jump-away").await;
    assert_eq!(after["ssh_config"], before["ssh_config"], "the members stay");
    assert_eq!(after["sshd_config"], before["sshd_config"], "and what they reach");

    stage.region_mut().scheduler().restart().await.unwrap();
    stage.ready(&shop).await;
}
