//! Hosts that fail are replaced within the limits, and nothing else is.

use kube::{
    ResourceExt as _,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use sandbox::{region::Agent, wait};
use serde_json::{Value, json};

use crate::fixtures::{
    AGENTS, Cluster, Held, PATIENCE, Role, Stage, cluster, fleet, given_back, held, host, members,
    on_shared_site, set_consumer, sip_labels, written_members, written_statuses,
};

const FAILED: &str = "sip.airshipit.org/failed";
const PAUSED: &str = "baremetalhost.metal3.io/paused";
const DETACHED: &str = "baremetalhost.metal3.io/detached";

async fn annotate(stage: &Stage, host: &str, annotations: Value) {
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    stage
        .hosts()
        .patch(host, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

async fn operational(stage: &Stage, host: &str, status: &str) {
    let patch = Patch::Merge(json!({"status": {"operationalStatus": status, "errorMessage": status}}));
    stage
        .hosts()
        .patch_status(host, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

async fn remove(stage: &Stage, host: &str) {
    stage
        .hosts()
        .delete(host, &DeleteParams::default())
        .await
        .unwrap();
    wait::until_gone(stage.hosts(), host, PATIENCE).await.unwrap();
}

/// A member as `status.placement` has it.
fn member<'a>(object: &'a DynamicObject, host: &str) -> Option<&'a Value> {
    let members = object.data.pointer("/status/placement/members")?.as_array()?;
    members.iter().find(|member| member["name"] == host)
}

fn state<'a>(object: &'a DynamicObject, host: &str) -> Option<&'a str> {
    member(object, host)?["state"].as_str()
}

/// Waits until the cluster holds exactly these, and every one is bound.
async fn until_bound(stage: &Stage, shop: &Cluster, hosts: &[&str]) -> DynamicObject {
    let what = format!("hold {hosts:?}, all of them bound");
    stage
        .until(shop, &what, |object| {
            let members = members(object);
            let names: Vec<&str> = members.iter().map(|member| &*member.name).collect();
            names == hosts && members.iter().all(|member| member.state == "Bound")
        })
        .await
}

async fn placed(stage: &Stage, shop: &Cluster) -> Held {
    stage.create(shop).await;
    held(&members(&stage.ready(shop).await))
}

#[test]
fn a_deleted_host_is_replaced_by_one_of_its_rack() {
    on_shared_site("gone", async |stage| {
        stage.load(&fleet("gone", 3, 1, 0)).await;
        let shop = cluster("gone", "shop")
            .role(Role::ControlPlane, 3)
            .balanced(31_000);
        placed(stage, &shop).await;
        stage.load(&[host("gone", "cp", "r2", "r2-spare")]).await;

        remove(stage, "gone-r2-cp1").await;

        until_bound(stage, &shop, &["gone-r1-cp1", "gone-r2-spare", "gone-r3-cp1"]).await;
        stage.ready(&shop).await;
        let failed = "gone-r2-cp1 (ControlPlane): its BareMetalHost is gone";
        stage.event(&shop, "HostFailed", failed).await;
        let instead = "metal/gone-r2-spare (ControlPlane) replaces metal/gone-r2-cp1";
        stage.event(&shop, "Replacing", instead).await;
        stage
            .event(&shop, "Releasing", "gone-r2-cp1 (ControlPlane): gone")
            .await;
        // It was to be read in the status before anything was done.
        let written = written_members(stage, &shop);
        assert!(
            written.iter().any(|member| member["name"] == "gone-r2-spare"
                && member["state"] == "Claimed"
                && member["replaces"] == "metal/gone-r2-cp1"),
            "{written:#?}"
        );
    });
}

#[test]
fn a_marked_host_is_replaced_and_released_after_its_consumer() {
    on_shared_site("marked", async |stage| {
        stage.load(&fleet("marked", 2, 0, 1)).await;
        let shop = cluster("marked", "shop").role(Role::Worker, 2).balanced(31_010);
        placed(stage, &shop).await;
        let machine = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Machine",
            "namespace": "marked", "name": "m-0",
        });
        set_consumer(stage, "marked-r1-w1", machine).await;

        // No other host is there: the conditions name the member that waits, and nothing is taken away.
        annotate(stage, "marked-r1-w1", json!({FAILED: ""})).await;
        let why = stage.condition_is(&shop, "Ready", "False", "Unschedulable").await;
        assert!(why.contains("Worker"), "{why}");
        let waits = "marked-r1-w1: it is marked as failed, and no host can replace it";
        stage
            .condition_mentions(&shop, "Scheduled", "False", "Unschedulable", waits)
            .await;
        stage
            .event(
                &shop,
                "HostFailed",
                "marked-r1-w1 (Worker): it is marked as failed",
            )
            .await;
        let waits = stage
            .until(&shop, "say since when", |object| {
                member(object, "marked-r1-w1").is_some_and(|member| member["failedSince"].is_string())
            })
            .await;
        assert_eq!(state(&waits, "marked-r1-w1"), Some("Bound"));
        let used = stage.hosts().get("marked-r1-w1").await.unwrap();
        assert_eq!(sip_labels(&used).len(), 3);

        // One comes at last.
        stage.load(&[host("marked", "worker", "r3", "spare")]).await;
        let replaced = stage
            .until(&shop, "have the new one bound and the old one go", |object| {
                state(object, "marked-spare") == Some("Bound")
                    && state(object, "marked-r1-w1") == Some("Releasing")
            })
            .await;
        let old = member(&replaced, "marked-r1-w1").unwrap();
        assert_eq!(old["releaseReason"], "failed");
        let why = stage
            .condition_mentions(&shop, "HostsLabeled", "False", "Waiting", "marked-r1-w1")
            .await;
        assert!(
            why.contains("to be released, it is still used by Metal3Machine marked/m-0"),
            "{why}"
        );

        set_consumer(stage, "marked-r1-w1", Value::Null).await;
        until_bound(stage, &shop, &["marked-r2-w1", "marked-spare"]).await;
        stage.ready(&shop).await;
        assert!(given_back(&stage.hosts().get("marked-r1-w1").await.unwrap()));
    });
}

#[tokio::test]
async fn control_planes_are_replaced_one_at_a_time() {
    let mut stage = Stage::start("limits", &AGENTS).await;
    stage.site.create_tenant_namespace("limits").await.unwrap();
    stage.load(&fleet("limits", 3, 1, 0)).await;
    let shop = cluster("limits", "shop")
        .role(Role::ControlPlane, 3)
        .balanced(31_020);
    let before = placed(&stage, &shop).await;
    // Nobody takes a new member into the load balancer: its replacement stays claimed.
    stage.agent(Agent::LoadBalancer).kill9().await.unwrap();
    stage
        .load(&["r4", "r5", "r6"].map(|rack| host("limits", "cp", rack, rack)))
        .await;
    for name in before.keys() {
        annotate(&stage, name, json!({FAILED: ""})).await;
    }

    let claimed = |object: &DynamicObject| {
        let members = members(object);
        members.iter().filter(|member| member.state == "Claimed").count()
    };
    let all_failed = stage
        .until(&shop, "have all failed, and replace one", |object| {
            let failed = before
                .keys()
                .filter(|name| member(object, name).is_none_or(|member| member["failedSince"].is_string()));
            failed.count() == 3 && claimed(object) == 1
        })
        .await;
    let (_, _, why) = wait::condition(&all_failed, "Scheduled").unwrap();
    assert!(why.contains("replacement"), "{why}");

    stage.start_agent(Agent::LoadBalancer, &["metal"]).await;
    until_bound(&stage, &shop, &["limits-r4", "limits-r5", "limits-r6"]).await;
    stage.ready(&shop).await;
    for status in written_statuses(&stage, &shop) {
        let claimed = status
            .iter()
            .filter(|member| member["state"] == "Claimed" && member["replaces"].is_string());
        assert!(claimed.count() <= 1, "{status:#?}");
    }
}

#[test]
fn only_a_role_with_replacement_replaces_a_host_in_error() {
    on_shared_site("in-error", async |stage| {
        stage.load(&fleet("in-error", 2, 2, 2)).await;
        let shop = cluster("in-error", "shop")
            .role(Role::ControlPlane, 2)
            .role(Role::Worker, 2)
            .with("/nodes/Worker/replaceAfterError", json!("1s"))
            .balanced(31_030);
        let before = placed(stage, &shop).await;
        let of = |role: &str| {
            let found = before.iter().find(|(_, of)| *of == role);
            found.unwrap().0.clone()
        };
        let (control_plane, worker) = (of("ControlPlane"), of("Worker"));
        operational(stage, &control_plane, "error").await;
        operational(stage, &worker, "error").await;

        let after = stage
            .until(&shop, "hold another worker", |object| {
                member(object, &worker).is_none() && members(object).iter().all(|m| m.state == "Bound")
            })
            .await;

        let after = held(&members(&after));
        assert_eq!(after.len(), 4, "{after:?}");
        assert!(after.contains_key(&control_plane), "{after:?}");
        stage
            .event(&shop, "HostFailed", "it has been in error for too long: error")
            .await;
    });
}

#[test]
fn what_metal3_or_cluster_api_do_to_hosts_replaces_none() {
    on_shared_site("moved", async |stage| {
        // One per rack and role; the second of each rack is a spare.
        stage.load(&fleet("moved", 4, 2, 0)).await;
        let shop = cluster("moved", "shop")
            .role(Role::ControlPlane, 4)
            .with("/nodes/ControlPlane/replaceAfterError", json!("0s"))
            .balanced(31_040);
        let before: Vec<String> = placed(stage, &shop).await.into_keys().collect();
        let [paused, detached, serviced, moved] = [0, 1, 2, 3].map(|at| &*before[at]);
        let machine = |name: &str| {
            json!({
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Machine",
                "namespace": "moved", "name": name,
            })
        };

        annotate(stage, paused, json!({PAUSED: ""})).await;
        operational(stage, paused, "error").await;
        annotate(stage, detached, json!({DETACHED: ""})).await;
        operational(stage, serviced, "servicing").await;
        // A rolling control plane: consumers come, go, and come again.
        for (host, name) in [(serviced, "m-0"), (detached, "m-1"), (serviced, "m-2")] {
            set_consumer(stage, host, machine(name)).await;
            set_consumer(stage, host, Value::Null).await;
        }
        let again = move_host(stage, moved, &machine("m-3")).await;

        let uid = again.uid().unwrap();
        let now = stage
            .until(&shop, "go on with the host that was moved", |object| {
                member(object, moved)
                    .is_some_and(|member| member["uid"] == *uid && member["state"] == "Bound")
            })
            .await;
        assert_eq!(held(&members(&now)).into_keys().collect::<Vec<_>>(), before);

        // That the scheduler was awake is shown by a host that has failed.
        annotate(stage, detached, json!({DETACHED: null, FAILED: ""})).await;
        stage
            .until(&shop, "replace the one that has failed", |object| {
                member(object, detached).is_none()
            })
            .await;
        let strange: Vec<Value> = written_members(stage, &shop)
            .into_iter()
            .filter(|member| {
                let name = member["name"].as_str().unwrap_or_default();
                let old = before.iter().any(|known| known == name);
                let replaces_another = !old && member["replaces"] != json!(format!("metal/{detached}"));
                let fails = old
                    && name != detached
                    && (member["state"] == "Releasing" || member["failedSince"].is_string());
                (replaces_another && member["state"] == "Claimed") || fails
            })
            .collect();
        assert!(strange.is_empty(), "{strange:#?}");
    });
}

/// What `clusterctl move` does to a host: paused, its consumer rewritten, deleted, and made again with another uid.
async fn move_host(stage: &Stage, name: &str, consumer: &Value) -> DynamicObject {
    annotate(stage, name, json!({PAUSED: "metal3.io/capm3"})).await;
    set_consumer(stage, name, consumer.clone()).await;
    let before = stage.hosts().get(name).await.unwrap();
    remove(stage, name).await;
    let mut again = before.clone();
    again.metadata.uid = None;
    again.metadata.resource_version = None;
    again.metadata.creation_timestamp = None;
    again.metadata.managed_fields = None;
    let made = stage
        .hosts()
        .create(&PostParams::default(), &again)
        .await
        .unwrap();
    let status = Patch::Merge(json!({"status": before.data["status"]}));
    stage
        .hosts()
        .patch_status(name, &PatchParams::default(), &status)
        .await
        .unwrap();
    annotate(stage, name, json!({PAUSED: null})).await;
    assert_ne!(made.uid(), before.uid());
    made
}
