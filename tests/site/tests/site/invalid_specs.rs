//! What a cluster holds while its spec is not valid: nothing is written to its hosts, and nothing is lost.

use kube::api::{Patch, PatchParams};
use sandbox::region::Agent;
use serde_json::{Value, json};

use crate::fixtures::{
    AGENTS, Cluster, Role, Stage, cluster, fleet, given_back, held, host, members, on_shared_site,
    set_consumer,
};

fn consumer() -> Value {
    json!({"apiVersion": "v1", "kind": "Metal3Machine", "namespace": "elsewhere", "name": "m-0"})
}

async fn make_invalid(stage: &Stage, shop: &Cluster) {
    let negative = json!({"nodes": {"Worker": {"count": {"active": -7}}}});
    stage.edit(shop, negative).await;
    stage
        .condition_is(shop, "Scheduled", "False", "InvalidSpec")
        .await;
}

/// Another cluster of the scenario gets its host: whatever came before it has been observed.
async fn another_is_served(stage: &Stage, scenario: &str) {
    stage.load(&[host(scenario, "cp", "r9", "probe")]).await;
    let probe = cluster(scenario, "probe").role(Role::ControlPlane, 1);
    stage.create(&probe).await;
    stage.ready(&probe).await;
}

/// The state of a member in `status.placement`.
async fn until_state(stage: &Stage, shop: &Cluster, host: &str, state: &str) {
    stage
        .until(shop, &format!("have {host} {state}"), |object| {
            let members = members(object);
            members
                .iter()
                .any(|member| member.name == host && member.state == state)
        })
        .await;
}

/// The state of a host's member as the scheduler has it, or `none` if nobody holds the host.
async fn state_at_scheduler(stage: &Stage, host: &str) -> String {
    let asked = json!({"site": "shared", "namespace": "metal", "name": host});
    let answer = stage
        .call("sip.inventory.v1.InventoryService/GetHost", asked)
        .await;
    let holder = &answer["host"]["holder"];
    assert!(holder.is_null() || holder["state"].is_string(), "{answer}");
    holder["state"].as_str().unwrap_or("none").to_owned()
}

#[test]
fn an_invalid_spec_suspends_replacement_labels_and_release() {
    on_shared_site("suspended", async |stage| {
        stage.load(&fleet("suspended", 3, 0, 1)).await;
        stage.load(&[host("suspended", "cp", "r1", "leaving")]).await;
        let empty = |name| {
            cluster("suspended", name)
                .role(Role::ControlPlane, 0)
                .role(Role::Worker, 0)
                .balanced(31_910)
        };
        // The ports that shop wants are taken, so its hosts are claimed, and not labelled.
        let first = empty("first");
        stage.create(&first).await;
        stage
            .until(&first, "have its load balancers", |object| {
                sandbox::wait::is_true(object, "LoadBalancerReady")
            })
            .await;
        let shop = empty("shop").role(Role::ControlPlane, 1).role(Role::Worker, 3);
        stage.create(&shop).await;
        let [failing, _, claimed] = ["r1", "r2", "r3"].map(|rack| format!("suspended-{rack}-w1"));
        until_state(stage, &shop, &claimed, "Claimed").await;
        set_consumer(stage, &claimed, consumer()).await;
        stage.delete(&first).await;
        stage.gone(&first).await;
        let blocked = format!("metal/{claimed}: it is used by");
        stage
            .condition_mentions(&shop, "HostsLabeled", "False", "Blocked", &blocked)
            .await;
        until_state(stage, &shop, &failing, "Bound").await;
        until_state(stage, &shop, "suspended-leaving", "Bound").await;
        set_consumer(stage, "suspended-leaving", consumer()).await;
        stage
            .edit(
                &shop,
                json!({"nodes": {"ControlPlane": {"count": {"active": 0}}}}),
            )
            .await;
        until_state(stage, &shop, "suspended-leaving", "Releasing").await;
        let before = stage.labelled("suspended", &shop).await;
        assert_eq!(before.len(), 3, "{before:?}");

        make_invalid(stage, &shop).await;
        // Now each of them could go on.
        set_consumer(stage, &claimed, Value::Null).await;
        set_consumer(stage, "suspended-leaving", Value::Null).await;
        let failed = json!({"metadata": {"annotations": {"sip.airshipit.org/failed": ""}}});
        stage
            .hosts()
            .patch(&failing, &PatchParams::default(), &Patch::Merge(failed))
            .await
            .unwrap();
        stage.load(&[host("suspended", "worker", "r4", "spare")]).await;
        another_is_served(stage, "suspended").await;

        assert_eq!(stage.labelled("suspended", &shop).await, before);
        // Nor has the scheduler decided what the agent does not show.
        for (host, state) in [
            (&*failing, "MEMBER_STATE_BOUND"),
            (&claimed, "MEMBER_STATE_CLAIMED"),
            ("suspended-leaving", "MEMBER_STATE_RELEASING"),
            ("suspended-spare", "none"),
        ] {
            assert_eq!(state_at_scheduler(stage, host).await, state, "{host}");
        }

        stage
            .edit(&shop, json!({"nodes": {"Worker": {"count": {"active": 3}}}}))
            .await;
        stage
            .until_hosts("suspended", "be released where they must", |hosts| {
                let back = hosts.iter().filter(|host| given_back(host)).count();
                back == 2
            })
            .await;
        let ready = stage.ready(&shop).await;
        let names: Vec<String> = members(&ready).into_iter().map(|member| member.name).collect();
        assert_eq!(names, ["suspended-r2-w1", "suspended-r3-w1", "suspended-spare"]);
        assert_eq!(stage.labelled("suspended", &shop).await, held(&members(&ready)));
    });
}

#[tokio::test]
async fn a_recreated_invalid_sipcluster_keeps_its_hosts() {
    let mut stage = Stage::start("predecessor", &AGENTS).await;
    stage.load(&fleet("kept", 2, 0, 1)).await;
    stage.site.create_tenant_namespace("kept").await.unwrap();
    let shop = cluster("kept", "shop").role(Role::Worker, 2);
    stage.create(&shop).await;
    stage.ready(&shop).await;
    for host in ["kept-r1-w1", "kept-r2-w1"] {
        set_consumer(&stage, host, consumer()).await;
    }
    stage
        .edit(&shop, json!({"nodes": {"Worker": {"count": {"active": 1}}}}))
        .await;
    let what = "have a releasing host";
    stage
        .until(&shop, what, |object| {
            members(object).iter().any(|member| member.state == "Releasing")
        })
        .await;
    let before = stage.labelled("kept", &shop).await;
    assert_eq!(before.len(), 2);

    // Deleted, and made again with a spec that is not valid, while no agent runs.
    stage.agent(Agent::Cluster).kill9().await.unwrap();
    stage.delete(&shop).await;
    let stripped = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    stage
        .clusters("kept")
        .patch(&shop.name, &PatchParams::default(), &stripped)
        .await
        .unwrap();
    stage.gone(&shop).await;
    for host in ["kept-r1-w1", "kept-r2-w1"] {
        set_consumer(&stage, host, Value::Null).await;
    }
    let invalid = shop.with("/nodes/Worker/count/active", json!(-1));
    stage.create(&invalid).await;
    stage.agent(Agent::Cluster).restart().await.unwrap();
    stage
        .condition_is(&invalid, "Scheduled", "False", "InvalidSpec")
        .await;
    another_is_served(&stage, "kept").await;
    assert_eq!(
        stage.labelled("kept", &invalid).await,
        before,
        "the releasing one too"
    );

    stage
        .edit(&invalid, json!({"nodes": {"Worker": {"count": {"active": 1}}}}))
        .await;
    stage
        .until_hosts("kept", "be released but for one", |hosts| {
            hosts.iter().filter(|host| given_back(host)).count() == 1
        })
        .await;
    let ready = stage.ready(&invalid).await;
    let now = held(&members(&ready));
    assert_eq!((now.len(), stage.labelled("kept", &invalid).await), (1, now));
    stage.nothing_was_forbidden();
}
