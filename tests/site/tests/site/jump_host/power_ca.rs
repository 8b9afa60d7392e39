//! The CA of the power service, which the agent gives to jump hosts: without it the command `host` works on none.

use std::{fs, mem};

use serde_json::json;

use super::{CONDITION, with_jump_host};
use crate::fixtures::{Stage, host};

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
        "the jump-host agent cannot read the file of --power-ca, so `host` does not work on jumphost-shop"
    );
    let agent = stage.jump_host_agent();

    fs::copy(&authority, &power.authority).unwrap();
    stage.condition_is(&shop, CONDITION, "True", "Available").await;
    assert_eq!(stage.jump_host_agent(), agent);
}
