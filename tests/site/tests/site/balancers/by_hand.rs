//! Releases that a person confirms while the load-balancer agent is away.

use std::fs;

use kube::api::DynamicObject;
use sandbox::{region::Agent, repository};
use serde_json::json;

use super::releases::behind;
use crate::{
    fixtures::{AGENTS, Stage, fleet, members, set_consumer},
    sipctl_maintenance::{does, sipctl},
};

/// Of a command in the page about deletions that do not end: what precedes its patch of a host.
const COMMAND: &str = "`kubectl patch bmh -n metal r001-h0002 --type merge -p '";

/// Runs the command of that page whose patch contains a text, for another host and revision.
async fn patch(stage: &Stage, containing: &str, host: &str, revision: &str) {
    let page = fs::read_to_string(repository::root().join("docs/force-deletion.md")).unwrap();
    let commands = page.split(COMMAND).skip(1);
    let mut patches = commands.filter_map(|command| Some(command.split_once("'`")?.0));
    let documented = patches.find(|patch| patch.contains(containing)).unwrap();
    let change = documented.replace("REVISION", revision);
    let arguments = [
        "patch", "bmh", "-n", "metal", host, "--type", "merge", "-p", &change,
    ];
    stage.site.kubectl_ok(&arguments).await.unwrap();
}

#[tokio::test]
async fn a_person_can_mark_a_release_while_the_agent_is_away() {
    let mut stage = Stage::start("by-hand", &AGENTS).await;
    stage.site.create_tenant_namespace("by-hand").await.unwrap();
    stage.load(&fleet("by-hand", 3, 0, 1)).await;
    let shop = behind("by-hand", &[31_312]);
    stage.create(&shop).await;
    stage.ready(&shop).await;
    stage.agent(Agent::LoadBalancer).kill9().await.unwrap();
    let held = members(&stage.clusters("by-hand").get("shop").await.unwrap());
    let first = format!("metal/{}", held[0].name);
    let confirm = ["confirm-release", first.as_str()];
    let (code, _, error) = sipctl(&stage, &confirm).await;
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("it is not released by by-hand/shop"), "{error}");
    stage.delete(&shop).await;
    stage
        .condition_mentions(&shop, "HostsLabeled", "False", "Waiting", "load-balancer agent")
        .await;
    let consumer = json!({"kind": "Metal3Machine", "namespace": "by-hand", "name": "m-0"});
    set_consumer(&stage, &held[0].name, consumer).await;
    let (code, _, error) = sipctl(&stage, &confirm).await;
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("it is still used"), "{error}");
    patch(&stage, "consumerRef", &held[0].name, "").await;
    let dry = [&confirm[..], &["--dry-run"]].concat();
    does(&stage, &dry, "Nothing was changed").await;
    does(&stage, &confirm, "Done: the cluster agent confirms the release").await;

    let held = stage.clusters("by-hand").get("shop").await.unwrap();
    let held = held.data["status"]["placement"]["members"].clone();
    let others = held.as_array().unwrap().iter();
    for member in others.filter(|member| format!("metal/{}", member["name"].as_str().unwrap()) != first) {
        let revision = member["revision"].to_string();
        patch(&stage, "REVISION", member["name"].as_str().unwrap(), &revision).await;
    }
    let held_none = |object: &DynamicObject| members(object).is_empty();
    stage.until(&shop, "hold no host", held_none).await;
}
