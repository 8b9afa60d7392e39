//! The CA of `PowerService`, which the agent gives to jump hosts: without it the command `host` works on none.

use std::{fs, mem, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use sandbox::{authority::Validity, inventory::NETWORK, region::Agent, wait};
use serde_json::json;

use super::{BEN, CONDITION, KEY, NAME, api, deployment, files, with_jump_host};
use crate::fixtures::{PATIENCE, Stage, host};

#[tokio::test(flavor = "multi_thread")]
async fn a_power_ca_that_cannot_be_read_is_reported_until_it_can() {
    let mut stage = Stage::start("jump-power-ca", &[]).await;
    let directory = tempfile::tempdir().unwrap();
    let mut power = stage.region.power_port(&stage.site).unwrap();
    let authority = mem::replace(&mut power.authority, directory.path().join("ca.crt"));
    stage.start_jump_hosts(&power, None).await;
    stage.site.create_tenant_namespace("jump-ca").await.unwrap();
    let hosts = [
        host("jump-ca", "cp", "r1", "one"),
        host("jump-ca", "worker", "r2", "two"),
    ];
    stage.load(&hosts).await;
    let shop = with_jump_host("jump-ca", &json!({}));
    stage.create(&shop).await;
    let why = stage
        .condition_is(&shop, CONDITION, "True", "PowerServiceUnavailable")
        .await;
    assert_eq!(
        why,
        "jumphost-shop: the jump-host agent cannot read the file of --power-ca; `host` does not work"
    );
    let agent = stage.jump_host_agent();

    fs::copy(&authority, &power.authority).unwrap();
    stage.condition_is(&shop, CONDITION, "True", "Available").await;
    assert_eq!(stage.jump_host_agent(), agent);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_power_certificate_is_named_until_renewed() {
    let mut stage = Stage::start("jump-expired", &[]).await;
    let power = stage.region.power_port(&stage.site).unwrap();
    let ended = Validity::EndedAgo(Duration::from_mins(1));
    stage.region.renew_power_port(&stage.site, &power, ended).unwrap();
    stage.start_jump_hosts(&power, None).await;
    stage.site.create_tenant_namespace("jump-expired").await.unwrap();
    let hosts = [
        host("jump-expired", "cp", "r1", "one"),
        host("jump-expired", "worker", "r2", "two"),
    ];
    stage.load(&hosts).await;
    let shop = with_jump_host("jump-expired", &json!({}));
    stage.create(&shop).await;
    let why = stage
        .condition_is(&shop, CONDITION, "True", "PowerServiceUnavailable")
        .await;
    assert!(
        why.starts_with("jumphost-shop: the certificate of PowerService expired at "),
        "{why}"
    );
    assert!(why.ends_with("; `host` does not work"), "{why}");
    let agent = stage.jump_host_agent();

    stage
        .region
        .renew_power_port(&stage.site, &power, Validity::DAY)
        .unwrap();
    stage.condition_is(&shop, CONDITION, "True", "Available").await;
    assert_eq!(stage.jump_host_agent(), agent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_power_ca_that_is_lost_for_a_while_replaces_no_pod() {
    let mut stage = Stage::start("jump-ca-lost", &[]).await;
    let directory = tempfile::tempdir().unwrap();
    let mut power = stage.region.power_port(&stage.site).unwrap();
    let authority = mem::replace(&mut power.authority, directory.path().join("ca.crt"));
    fs::copy(&authority, &power.authority).unwrap();
    stage.start_jump_hosts(&power, None).await;
    stage.site.create_tenant_namespace("jump-lost").await.unwrap();
    let hosts = [
        host("jump-lost", "cp", "r1", "one"),
        host("jump-lost", "worker", "r2", "two"),
    ];
    stage.load(&hosts).await;
    let shop = with_jump_host("jump-lost", &json!({"nodePort": 31_541}));
    stage.create(&shop).await;
    stage.condition_is(&shop, CONDITION, "True", "Available").await;
    let before = deployment(&stage, "jump-lost").await.metadata.generation;
    let known = files(&stage, "jump-lost").await["power-ca.crt"].clone();

    fs::remove_file(&power.authority).unwrap();
    let entry = json!({
        "image": "jump-host:1", "nodeInterfaceId": NETWORK, "nodePort": 31_541, "sshAuthorizedKeys": [BEN],
    });
    stage
        .edit(&shop, json!({"services": {"jumpHost": [entry]}}))
        .await;
    stage
        .condition_is(&shop, CONDITION, "True", "PowerServiceUnavailable")
        .await;
    let after = files(&stage, "jump-lost").await;
    assert_eq!(after["authorized_keys"], format!("{BEN}\n"));
    assert_eq!(after["power-ca.crt"], known, "the last one that was read stays");
    assert_eq!(deployment(&stage, "jump-lost").await.metadata.generation, before);

    // An agent that starts without it has read none, and replaces no pod either.
    stage.agent(Agent::JumpHost).kill9().await.unwrap();
    stage.agent(Agent::JumpHost).restart().await.unwrap();
    let entry = json!({
        "image": "jump-host:1", "nodeInterfaceId": NETWORK, "nodePort": 31_541, "sshAuthorizedKeys": [KEY],
    });
    stage
        .edit(&shop, json!({"services": {"jumpHost": [entry]}}))
        .await;
    wait::until(
        api::<ConfigMap>(&stage, "jump-lost"),
        NAME,
        "ConfigMap to have the other key",
        PATIENCE,
        |map: &ConfigMap| {
            let files = map.data.as_ref();
            files.is_some_and(|files| files["authorized_keys"] == format!("{KEY}\n"))
        },
    )
    .await
    .unwrap();
    stage
        .condition_is(&shop, CONDITION, "True", "PowerServiceUnavailable")
        .await;
    assert_eq!(deployment(&stage, "jump-lost").await.metadata.generation, before);
}
