//! A load balancer stays until the one that takes its place is made: an edit that is refused stops nothing that serves.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Pod, ResourceQuota},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use sandbox::{region::Agent, wait};
use serde_json::{Value, json};

use super::{
    Objects, objects,
    releases::{comes_to_rest, forbid, until_held},
    workers,
};
use crate::fixtures::{
    AGENTS, Cluster, PATIENCE, Role, Stage, applied, cluster, fleet, on_shared_site, set_consumer,
};

const A: &str = "loadbalancer-worker-shop-a";
const B: &str = "loadbalancer-worker-shop-b";
const C: &str = "loadbalancer-worker-shop-c";

fn entry(name: &str, port: u16) -> Value {
    workers(port, port, &json!({"name": name}))
}

fn with_pods(name: &str, port: u16, replicas: u8) -> Value {
    workers(port, port, &json!({"name": name, "replicas": replicas}))
}

fn is_published(object: &DynamicObject, instance: &str) -> bool {
    let endpoints = object.data["status"]["endpoints"].as_array();
    let mut endpoints = endpoints.into_iter().flatten();
    endpoints.any(|endpoint| endpoint["name"] == instance)
}

/// The site allows no such label.
fn refused(name: &str, port: u16) -> Value {
    let changes = json!({"service": {"metadata": {"labels": {"exposed-by": "blue"}}}});
    workers(port, port, &json!({"name": name, "override": changes}))
}

async fn ready_with(stage: &Stage, scenario: &str, entries: Value) -> Cluster {
    let shop = cluster(scenario, "shop")
        .role(Role::Worker, 0)
        .with("/services/loadBalancerWorker", entries);
    stage.create(&shop).await;
    stage.ready(&shop).await;
    shop
}

async fn edit(stage: &Stage, shop: &Cluster, entries: Value) {
    let entries = json!({"services": {"loadBalancerWorker": entries}});
    stage.edit(shop, entries).await;
}

impl Objects {
    /// The names of the Services, and of the Deployments behind them.
    async fn names(&self) -> Vec<String> {
        let services = self.services.list(&ListParams::default()).await.unwrap();
        let deployments = self.deployments.list(&ListParams::default()).await.unwrap();
        let names: Vec<String> = services.iter().map(ResourceExt::name_any).collect();
        let behind: Vec<String> = deployments.iter().map(ResourceExt::name_any).collect();
        assert_eq!(names, behind);
        names
    }

    async fn uid(&self, name: &str) -> String {
        self.services.get(name).await.unwrap().uid().unwrap()
    }
}

#[test]
fn a_refused_entry_takes_the_place_of_none() {
    on_shared_site("renamed-refused", async |stage| {
        let (kept, other) = (31_980, entry("c", 31_981));
        let of = objects(stage, "renamed-refused");
        let shop = ready_with(stage, "renamed-refused", json!([entry("a", kept), other])).await;
        let before = of.uid(A).await;

        // The entry that stays gets another port in the same edit.
        edit(stage, &shop, json!([refused("b", kept), entry("c", 31_982)])).await;
        stage
            .condition_is(&shop, "LoadBalancerReady", "False", "OverrideNotAllowed")
            .await;
        comes_to_rest(stage, &shop).await;
        assert_eq!(of.names().await, [A, C]);
        assert_eq!(of.uid(A).await, before);
        let object = stage.clusters("renamed-refused").get("shop").await.unwrap();
        assert!(is_published(&object, A), "it is reached as before");
        let served: Vec<String> = applied(&object)
            .into_iter()
            .map(|applied| applied.service)
            .collect();
        assert_eq!(served, [C]);
        let port = of.services.get(C).await.unwrap().spec.unwrap().ports.unwrap()[0].node_port;
        assert_eq!(port, Some(31_982));

        // An object of the entry's name is somebody else's, and the port that it wants is that of the one before.
        let theirs = json!({"metadata": {"name": B, "namespace": "renamed-refused"}});
        let maps: Api<ConfigMap> = Api::namespaced(stage.site.client(), "renamed-refused");
        let theirs = serde_json::from_value(theirs).unwrap();
        maps.create(&PostParams::default(), &theirs).await.unwrap();
        edit(stage, &shop, json!([entry("b", kept), entry("c", 31_982)])).await;
        stage
            .condition_mentions(&shop, "LoadBalancerReady", "False", "NameConflict", "ConfigMap")
            .await;
        comes_to_rest(stage, &shop).await;
        assert_eq!(of.uid(A).await, before);
        maps.delete(B, &DeleteParams::default()).await.unwrap();

        edit(stage, &shop, json!([with_pods("b", kept, 2), entry("c", 31_982)])).await;
        stage.ready(&shop).await;
        assert_eq!(of.names().await, [B, C]);

        // An entry that can be made takes the port of one, though another entry is refused.
        edit(stage, &shop, json!([refused("x", 31_983), entry("d", 31_982)])).await;
        stage
            .condition_is(&shop, "LoadBalancerReady", "False", "OverrideNotAllowed")
            .await;
        comes_to_rest(stage, &shop).await;
        assert_eq!(of.names().await, [B, "loadbalancer-worker-shop-d"]);

        edit(stage, &shop, json!([entry("d", 31_982)])).await;
        stage.ready(&shop).await;
        assert_eq!(of.names().await, ["loadbalancer-worker-shop-d"]);
    });
}

/// What is refused of a new load balancer, by a quota on it.
async fn stays(stage: &Stage, scenario: &str, what: &str) {
    let of = objects(stage, scenario);
    stage.load(&fleet(scenario, 1, 0, 1)).await;
    let port = |offset: u16| if what == "pods" { 31_992 } else { 31_990 } + offset;
    let shop = cluster(scenario, "shop")
        .role(Role::Worker, 1)
        .with("/services/loadBalancerWorker", json!([entry("a", port(0))]));
    stage.create(&shop).await;
    stage.ready(&shop).await;
    let before = of.uid(A).await;
    forbid(stage, scenario, what).await;

    edit(stage, &shop, json!([entry("b", port(1))])).await;
    let stays = "this stays: loadbalancer-worker-shop-a";
    let reason = if what == "pods" { "Progressing" } else { "Refused" };
    stage
        .condition_mentions(&shop, "LoadBalancerReady", "False", reason, stays)
        .await;
    comes_to_rest(stage, &shop).await;
    assert_eq!(of.uid(A).await, before);
    assert!(of.deployments.get_opt(A).await.unwrap().is_some());

    // The one that never served goes instead, whatever port the next one wants.
    edit(stage, &shop, json!([refused("c", port(1))])).await;
    stage
        .condition_mentions(&shop, "LoadBalancerReady", "False", "OverrideNotAllowed", stays)
        .await;
    wait::until_gone(of.services.clone(), B, PATIENCE).await.unwrap();
    assert_eq!(of.uid(A).await, before);

    let quotas: Api<ResourceQuota> = Api::namespaced(stage.site.client(), scenario);
    quotas.delete("none", &DeleteParams::default()).await.unwrap();
    edit(stage, &shop, json!([entry("b", port(1))])).await;
    stage.ready(&shop).await;
    assert_eq!(of.names().await, [B]);

    // Nothing new is made for a cluster that is being deleted, so nothing waits for it.
    forbid(stage, scenario, what).await;
    edit(stage, &shop, json!([entry("a", port(0))])).await;
    stage
        .condition_mentions(&shop, "LoadBalancerReady", "False", reason, "this stays")
        .await;
    let host = stage.hosts_of(scenario).await[0].name_any();
    let machine = json!({"apiVersion": "v1", "kind": "Metal3Machine", "namespace": scenario, "name": "m-0"});
    set_consumer(stage, &host, machine).await;
    stage.delete(&shop).await;
    wait::until_gone(of.deployments.clone(), B, PATIENCE)
        .await
        .unwrap();
    until_held(stage, scenario, 1).await;
    set_consumer(stage, &host, Value::Null).await;
    stage.gone(&shop).await;
    wait::until_gone(of.services.clone(), A, PATIENCE).await.unwrap();
}

#[test]
fn a_load_balancer_stays_while_its_successor_is_refused() {
    on_shared_site("renamed-quota", async |stage| {
        stays(stage, "renamed-quota", "count/deployments.apps").await;
    });
}

#[test]
fn a_load_balancer_stays_until_its_successor_has_pods() {
    on_shared_site("renamed-pods", async |stage| {
        stays(stage, "renamed-pods", "pods").await;
    });
}

/// Deletes the pods of an instance and waits until none is left; with a quota on pods no new ones are made.
async fn take_pods_away(stage: &Stage, scenario: &str, name: &str) {
    let pods: Api<Pod> = Api::namespaced(stage.site.client(), scenario);
    let own = ListParams::default().labels(&format!("app.kubernetes.io/instance={name}"));
    let now = DeleteParams::default().grace_period(0);
    pods.delete_collection(&now, &own).await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(stage.site.client(), scenario);
    let is_down = |deployment: &Deployment| {
        let status = deployment.status.as_ref();
        status.is_some_and(|status| status.available_replicas.unwrap_or_default() == 0)
    };
    wait::until(deployments, name, "its pods to be away", PATIENCE, is_down)
        .await
        .unwrap();
}

#[test]
fn an_entry_that_served_before_keeps_no_removed_one() {
    on_shared_site("renamed-removed", async |stage| {
        let scenario = "renamed-removed";
        let of = objects(stage, scenario);
        let entries = json!([entry("a", 31_984), entry("b", 31_985)]);
        let shop = ready_with(stage, scenario, entries).await;
        comes_to_rest(stage, &shop).await;
        let recorded = of.services.get(B).await.unwrap();
        assert_eq!(recorded.annotations()["sip.airshipit.org/served"], "true");

        // Its pods are away, and no rollout of it ends. The other one stays for a new one.
        forbid(stage, scenario, "pods").await;
        take_pods_away(stage, scenario, B).await;
        edit(stage, &shop, json!([entry("b", 31_986), refused("c", 31_985)])).await;
        stage
            .condition_mentions(
                &shop,
                "LoadBalancerReady",
                "False",
                "OverrideNotAllowed",
                "this stays: loadbalancer-worker-shop-a",
            )
            .await;
        comes_to_rest(stage, &shop).await;
        assert_eq!(of.names().await, [A, B]);
        let at_rest = of.services.get(B).await.unwrap().resource_version();
        comes_to_rest(stage, &shop).await;
        let later = of.services.get(B).await.unwrap();
        assert_eq!(later.resource_version(), at_rest, "nothing is written at rest");
        assert_eq!(later.annotations()["sip.airshipit.org/served"], "true");

        edit(stage, &shop, json!([entry("b", 31_986)])).await;
        wait::until_gone(of.services.clone(), A, PATIENCE).await.unwrap();
        assert_eq!(of.names().await, [B]);
    });
}

/// The Services are as an earlier revision of the agent leaves them, which records nothing.
#[tokio::test]
async fn an_upgrade_while_pods_are_away_keeps_what_served() {
    const SCENARIO: &str = "renamed-upgrade";
    let mut stage = Stage::start(SCENARIO, &AGENTS).await;
    stage.site.create_tenant_namespace(SCENARIO).await.unwrap();
    let of = objects(&stage, SCENARIO);
    let entries = json!([entry("a", 31_994), entry("b", 31_995)]);
    let shop = ready_with(&stage, SCENARIO, entries).await;
    let before = of.uid(A).await;

    stage.agent(Agent::LoadBalancer).stop(PATIENCE).await.unwrap();
    forbid(&stage, SCENARIO, "pods").await;
    let unrecorded = json!({"metadata": {"annotations": {"sip.airshipit.org/served": null}}});
    for name in [A, B] {
        take_pods_away(&stage, SCENARIO, name).await;
        of.services
            .patch(name, &PatchParams::default(), &Patch::Merge(&unrecorded))
            .await
            .unwrap();
    }
    edit(&stage, &shop, json!([entry("b", 31_995), entry("c", 31_996)])).await;
    stage.agent(Agent::LoadBalancer).restart().await.unwrap();
    let stays = "this stays: loadbalancer-worker-shop-a";
    stage
        .condition_mentions(&shop, "LoadBalancerReady", "False", "Progressing", stays)
        .await;
    comes_to_rest(&stage, &shop).await;
    assert_eq!(of.names().await, [A, B, C]);
    assert_eq!(of.uid(A).await, before);

    // The one that never served goes. Of the one that remains it is not known whether it has.
    edit(&stage, &shop, json!([entry("b", 31_995)])).await;
    stage
        .condition_mentions(&shop, "LoadBalancerReady", "False", "Progressing", stays)
        .await;
    comes_to_rest(&stage, &shop).await;
    assert_eq!(of.names().await, [A, B]);
    assert_eq!(of.uid(A).await, before);

    let quotas: Api<ResourceQuota> = Api::namespaced(stage.site.client(), SCENARIO);
    quotas.delete("none", &DeleteParams::default()).await.unwrap();
    wait::until_gone(of.services.clone(), A, PATIENCE).await.unwrap();
    stage.ready(&shop).await;
    assert_eq!(of.names().await, [B]);
    let recorded = of.services.get(B).await.unwrap();
    assert_eq!(recorded.annotations()["sip.airshipit.org/served"], "true");
    stage.nothing_was_forbidden();
}

#[test]
fn an_entry_that_is_scaled_up_from_none_is_new() {
    on_shared_site("renamed-scaled", async |stage| {
        let scenario = "renamed-scaled";
        let of = objects(stage, scenario);
        let entries = json!([entry("a", 31_987), with_pods("b", 31_988, 1)]);
        let shop = ready_with(stage, scenario, entries).await;
        let before = of.uid(A).await;
        edit(
            stage,
            &shop,
            json!([entry("a", 31_987), with_pods("b", 31_988, 0)]),
        )
        .await;
        stage.ready(&shop).await;
        comes_to_rest(stage, &shop).await;
        let scaled = of.services.get(B).await.unwrap();
        assert_eq!(scaled.annotations()["sip.airshipit.org/served"], "false");

        forbid(stage, scenario, "pods").await;
        edit(stage, &shop, json!([with_pods("b", 31_988, 1)])).await;
        let stays = "this stays: loadbalancer-worker-shop-a";
        stage
            .condition_mentions(&shop, "LoadBalancerReady", "False", "Progressing", stays)
            .await;
        comes_to_rest(stage, &shop).await;
        assert_eq!(of.uid(A).await, before);

        let quotas: Api<ResourceQuota> = Api::namespaced(stage.site.client(), scenario);
        quotas.delete("none", &DeleteParams::default()).await.unwrap();
        wait::until_gone(of.services.clone(), A, PATIENCE).await.unwrap();
        stage.ready(&shop).await;
        assert_eq!(of.names().await, [B]);
    });
}
