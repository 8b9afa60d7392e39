//! Who may log in while the scheduler does not answer.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use sandbox::{inventory::NETWORK, region::Agent, wait};
use serde_json::{Value, json};

use super::{BEN, KEY, NAME, api, files, with_jump_host, with_jump_hosts};
use crate::fixtures::{Cluster, PATIENCE, Stage, host};

/// Within this time a key that was removed is gone.
const REMOVED: Duration = Duration::from_secs(10);

/// A site with a jump-host agent and two hosts. `ownerless`: for how many seconds jump hosts are kept that a deleted cluster has left.
pub(super) async fn site(scenario: &str, ownerless: Option<u64>) -> Stage {
    let mut stage = Stage::start(scenario, &[]).await;
    for agent in [Agent::Cluster, Agent::JumpHost] {
        stage
            .start_agent_where(agent, |config| {
                config.not_installed = vec!["loadBalancer".to_owned(), "auth".to_owned()];
                config.ownerless_services_seconds = ownerless;
            })
            .await;
    }
    stage.agents_are_ready().await;
    stage.site.create_tenant_namespace(scenario).await.unwrap();
    stage
        .load(&[
            host(scenario, "cp", "r1", "one"),
            host(scenario, "worker", "r2", "two"),
        ])
        .await;
    stage
}

/// Edits the cluster, and waits until Ben's key is the only one that logs in.
async fn admit_only_ben(stage: &Stage, scenario: &str, shop: &Cluster, entry: Value) {
    let edited = Instant::now();
    stage.edit(shop, json!({"services": {"jumpHost": [entry]}})).await;
    wait::until(
        api::<ConfigMap>(stage, scenario),
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
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_key_is_gone_also_without_scheduler() {
    let mut stage = site("jump-away", None).await;
    let shop = with_jump_host("jump-away", &json!({"sshAuthorizedKeys": [KEY, BEN]}));
    stage.create(&shop).await;
    stage.ready(&shop).await;
    let before = files(&stage, "jump-away").await;
    assert_eq!(before["authorized_keys"], format!("{KEY}\n{BEN}\n"));

    stage.region_mut().scheduler().kill9().await.unwrap();
    let without_ana = json!({
        "image": "jump-host:1", "nodeInterfaceId": NETWORK, "sshAuthorizedKeys": [BEN],
    });
    admit_only_ben(&stage, "jump-away", &shop, without_ana).await;
    let after = files(&stage, "jump-away").await;
    assert_eq!(after["ssh_config"], before["ssh_config"], "the members stay");
    assert_eq!(after["sshd_config"], before["sshd_config"], "and what they reach");

    // After a restart the agent does not know the members any more.
    stage.agent(Agent::JumpHost).restart().await.unwrap();
    let without_anybody = json!({"image": "jump-host:1", "nodeInterfaceId": NETWORK});
    stage
        .edit(&shop, json!({"services": {"jumpHost": [without_anybody]}}))
        .await;
    wait::until(
        api::<ConfigMap>(&stage, "jump-away"),
        NAME,
        "ConfigMap to lack every key",
        PATIENCE,
        |map: &ConfigMap| {
            let files = map.data.as_ref();
            files.is_some_and(|files| files["authorized_keys"].is_empty())
        },
    )
    .await
    .unwrap();

    stage.region_mut().scheduler().restart().await.unwrap();
    stage.ready(&shop).await;
}

/// Such a spec gives nothing before the scheduler has accepted its size.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_spec_takes_keys_away_without_scheduler() {
    let mut stage = site("jump-large", None).await;
    let entry = |port: u16, keys: &[&str]| {
        json!({
            "image": "jump-host:1", "nodeInterfaceId": NETWORK, "nodePort": port, "sshAuthorizedKeys": keys,
        })
    };
    let (first, second) = (31_541, 31_542);
    let entries = [entry(first, &[KEY, BEN]), entry(second, &[KEY])];
    let shop = with_jump_hosts("jump-large", &entries);
    stage.create(&shop).await;
    let note = json!({"metadata": {"annotations": {"example.org/note": "x".repeat(200 << 10)}}});
    let clusters: Api<DynamicObject> = stage.clusters("jump-large");
    let noted = clusters
        .patch(&shop.name, &PatchParams::default(), &Patch::Merge(note))
        .await;
    noted.unwrap();
    stage.ready(&shop).await;

    stage.region_mut().scheduler().kill9().await.unwrap();
    admit_only_ben(&stage, "jump-large", &shop, entry(first, &[BEN])).await;
    let services = api::<Service>(&stage, "jump-large");
    wait::until_gone(services, "jumphost-shop-1", PATIENCE)
        .await
        .unwrap();
    stage
        .until(&shop, "name only the jump host that is left", |object| {
            let names = |list: &str, field: &str| {
                let entries = object.data["status"][list].as_array().cloned();
                let entries = entries.into_iter().flatten();
                entries.map(|entry| entry[field].clone()).collect::<Vec<_>>()
            };
            names("applied", "service") == [NAME] && names("endpoints", "name") == [NAME]
        })
        .await;

    stage.region_mut().scheduler().restart().await.unwrap();
    stage.ready(&shop).await;
    let after = files(&stage, "jump-large").await;
    assert_eq!(after["authorized_keys"], format!("{BEN}\n"));
}
