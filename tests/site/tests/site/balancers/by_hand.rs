//! Releases that a person confirms while the load-balancer agent is away.

use kube::api::{DynamicObject, Patch, PatchParams};
use sandbox::region::Agent;
use serde_json::json;

use super::releases::behind;
use crate::{
    fixtures::{AGENTS, Stage, fleet, members},
    sipctl_maintenance::{does, sipctl},
};

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
    let dry = [&confirm[..], &["--dry-run"]].concat();
    does(&stage, &dry, "Nothing was changed").await;
    does(&stage, &confirm, "Done: the cluster agent confirms the release").await;

    // As docs/force-deletion.md says, of the others.
    let held = stage.clusters("by-hand").get("shop").await.unwrap();
    let held = held.data["status"]["placement"]["members"].clone();
    let others = held.as_array().unwrap().iter();
    for member in others.filter(|member| format!("metal/{}", member["name"].as_str().unwrap()) != first) {
        let change = json!({"metadata": {
            "labels": {
                "sip.airshipit.org/cluster-namespace": null,
                "sip.airshipit.org/cluster-name": null,
                "sip.airshipit.org/node-type": null,
            },
            "annotations": {"sip.airshipit.org/placement-revision": member["revision"].to_string()},
        }});
        let name = member["name"].as_str().unwrap();
        let patched = stage
            .hosts()
            .patch(name, &PatchParams::default(), &Patch::Merge(change))
            .await;
        patched.unwrap();
    }
    let held_none = |object: &DynamicObject| members(object).is_empty();
    stage.until(&shop, "hold no host", held_none).await;
}
