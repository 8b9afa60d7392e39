//! A host is free only when no pod of any load balancer routes to it. KWOK plays the nodes: a pod runs until it is gone, and
//! a finalizer keeps one that drains for as long as a test wants.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Pod, ResourceQuota, Service};
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use sandbox::{inventory::NETWORK, region::Agent, wait};
use serde_json::{Value, json};

use super::{objects, workers};
use crate::fixtures::{
    AGENTS, Cluster, PATIENCE, Role, Stage, cluster, fleet, given_back, on_shared_site, set_consumer,
    statuses_sent_by,
};

/// For how long something must not happen that took less than a second when it was wrong.
pub(super) const STAYS: Duration = Duration::from_secs(4);
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// Keeps every pod of a load balancer on the API server after it was deleted, as one that drains is.
pub(super) async fn keep_pods(stage: &Stage, namespace: &str, name: &str) {
    keep(stage, namespace, name, &json!(["example.org/drains"])).await;
}

/// Lets the pods go that were kept.
pub(super) async fn let_pods_go(stage: &Stage, namespace: &str, name: &str) {
    keep(stage, namespace, name, &Value::Null).await;
}

async fn keep(stage: &Stage, namespace: &str, name: &str, finalizers: &Value) {
    let pods: Api<Pod> = Api::namespaced(stage.site.client(), namespace);
    let own = ListParams::default().labels(&format!("app.kubernetes.io/instance={name}"));
    let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    let found = pods.list(&own).await.unwrap().items;
    assert!(!found.is_empty(), "{name} has no pods");
    for pod in found {
        let patched = pods.patch(&pod.name_any(), &PatchParams::default(), &patch).await;
        patched.unwrap();
    }
}

/// Nothing of a scenario is released for a while.
pub(super) async fn nothing_is_given_back(stage: &Stage, scenario: &str, hosts: usize) {
    let until = tokio::time::Instant::now() + STAYS;
    while tokio::time::Instant::now() < until {
        let held = stage.hosts_of(scenario).await;
        let labelled = held.iter().filter(|host| !given_back(host)).count();
        assert_eq!(labelled, hosts, "a host was released that a pod routes to");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits until so many hosts of a scenario are held, and returns those that were released.
pub(super) async fn until_held(stage: &Stage, scenario: &str, wanted: usize) -> Vec<DynamicObject> {
    let hosts = stage
        .until_hosts(scenario, &format!("be {wanted} that are held"), |hosts| {
            hosts.iter().filter(|host| !given_back(host)).count() == wanted
        })
        .await;
    hosts.into_iter().filter(given_back).collect()
}

/// Three workers behind load balancers on these ports.
pub(super) fn behind(scenario: &str, ports: &[u16]) -> Cluster {
    let entries: Vec<Value> = ports
        .iter()
        .map(|port| workers(*port, *port, &json!({})))
        .collect();
    cluster(scenario, "shop")
        .role(Role::Worker, 3)
        .with("/services/loadBalancerWorker", json!(entries))
}

pub(super) const FIRST: &str = "loadbalancer-worker-shop";
pub(super) const SECOND: &str = "loadbalancer-worker-shop-1";

#[test]
fn deleted_clusters_hosts_leave_the_configuration_first() {
    on_shared_site("leaves-first", async |stage| {
        stage.load(&fleet("leaves-first", 3, 0, 1)).await;
        let shop = behind("leaves-first", &[31_300]);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let used = "leaves-first-r1-w1";
        let machine =
            json!({"apiVersion": "v1", "kind": "Metal3Machine", "namespace": "leaves-first", "name": "m-0"});
        set_consumer(stage, used, machine).await;

        stage.delete(&shop).await;
        for host in until_held(stage, "leaves-first", 1).await {
            let config = stage.haproxy_config(&shop, "worker").await;
            assert!(
                !config.contains(&host.name_any()),
                "{} is released and still in\n{config}",
                host.name_any()
            );
        }
        let services: Api<Service> = Api::namespaced(stage.site.client(), "leaves-first");
        assert!(
            services.get_opt(FIRST).await.unwrap().is_some(),
            "a host is still held"
        );

        set_consumer(stage, used, Value::Null).await;
        stage.gone(&shop).await;
        assert!(services.get_opt(FIRST).await.unwrap().is_none());
    });
}

#[test]
fn deleted_clusters_hosts_wait_for_pods_that_drain() {
    on_shared_site("drains", async |stage| {
        stage.load(&fleet("drains", 3, 0, 1)).await;
        let shop = behind("drains", &[31_301]);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        keep_pods(stage, "drains", FIRST).await;

        stage.delete(&shop).await;
        stage.condition_is(&shop, "Scheduled", "False", "Deleting").await;
        nothing_is_given_back(stage, "drains", 3).await;
        stage
            .condition_mentions(&shop, "HostsLabeled", "False", "Waiting", "load-balancer agent")
            .await;

        let_pods_go(stage, "drains", FIRST).await;
        stage.gone(&shop).await;
        assert!(stage.hosts_of("drains").await.iter().all(given_back));
    });
}

#[test]
fn hosts_wait_for_the_pods_of_a_dropped_entry() {
    on_shared_site("dropped", async |stage| {
        stage.load(&fleet("dropped", 3, 0, 1)).await;
        let shop = behind("dropped", &[31_302, 31_303]);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        keep_pods(stage, "dropped", SECOND).await;

        let entries = json!([workers(31_302, 31_302, &json!({}))]);
        let one_edit = json!({
            "nodes": {"Worker": {"count": {"active": 2}}}, "services": {"loadBalancerWorker": entries},
        });
        stage.edit(&shop, one_edit).await;
        let of = objects(stage, "dropped");
        wait::until_gone(of.services, SECOND, PATIENCE).await.unwrap();
        nothing_is_given_back(stage, "dropped", 3).await;

        let_pods_go(stage, "dropped", SECOND).await;
        until_held(stage, "dropped", 2).await;
        stage.ready(&shop).await;
    });
}

#[test]
fn hosts_wait_for_the_last_dropped_entry_too() {
    on_shared_site("dropped-last", async |stage| {
        stage.load(&fleet("dropped-last", 3, 0, 1)).await;
        let shop = behind("dropped-last", &[31_304]);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        keep_pods(stage, "dropped-last", FIRST).await;

        let one_edit = json!({
            "nodes": {"Worker": {"count": {"active": 2}}}, "services": {"loadBalancerWorker": null},
        });
        stage.edit(&shop, one_edit).await;
        let of = objects(stage, "dropped-last");
        wait::until_gone(of.services, FIRST, PATIENCE).await.unwrap();
        nothing_is_given_back(stage, "dropped-last", 3).await;

        let_pods_go(stage, "dropped-last", FIRST).await;
        until_held(stage, "dropped-last", 2).await;
        stage.ready(&shop).await;
    });
}

#[test]
fn a_refused_entry_that_is_dropped_leaves_nothing() {
    on_shared_site("refused-entry", async |stage| {
        stage.load(&fleet("refused-entry", 3, 0, 1)).await;
        let theirs: Service = serde_json::from_value(json!({
            "metadata": {"name": "theirs", "namespace": "refused-entry"},
            "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 31_306}]},
        }))
        .unwrap();
        let of = objects(stage, "refused-entry");
        of.services.create(&PostParams::default(), &theirs).await.unwrap();
        let shop = behind("refused-entry", &[31_305]);
        stage.create(&shop).await;
        stage.ready(&shop).await;

        let taken = json!([workers(31_306, 31_306, &json!({}))]);
        stage
            .edit(&shop, json!({"services": {"loadBalancerWorker": taken}}))
            .await;
        stage
            .condition_is(&shop, "LoadBalancerReady", "False", "PortConflict")
            .await;
        stage
            .until(&shop, "say that nothing is applied", |object| {
                object.data.pointer("/status/applied").is_none()
            })
            .await;

        stage
            .edit(&shop, json!({"services": {"loadBalancerWorker": null}}))
            .await;
        wait::until_gone(of.services, FIRST, PATIENCE).await.unwrap();
        wait::until_gone(of.deployments, FIRST, PATIENCE).await.unwrap();
        wait::until_gone(of.policies, FIRST, PATIENCE).await.unwrap();
        stage.ready(&shop).await;
    });
}

/// A quota on an object that is used by nobody else in the namespace.
pub(super) async fn forbid(stage: &Stage, namespace: &str, what: &str) {
    let quotas: Api<ResourceQuota> = Api::namespaced(stage.site.client(), namespace);
    let none = json!({"metadata": {"name": "none"}, "spec": {"hard": {what: "0"}}});
    let none = serde_json::from_value(none).unwrap();
    quotas.create(&PostParams::default(), &none).await.unwrap();
    let in_force = |quota: &ResourceQuota| quota.status.as_ref().is_some_and(|status| status.used.is_some());
    wait::until(quotas, "none", "the quota to be in force", PATIENCE, in_force)
        .await
        .unwrap();
}

/// How often the load-balancer agent has written the status of a cluster.
pub(super) fn status_writes(stage: &Stage, cluster: &Cluster) -> usize {
    statuses_sent_by(Agent::LoadBalancer, stage, cluster).len()
}

/// Waits until the load-balancer agent has not written the status for a while: the passes after the last change are over.
pub(super) async fn comes_to_rest(stage: &Stage, cluster: &Cluster) {
    let begun = Instant::now();
    let (mut before, mut since) = (status_writes(stage, cluster), begun);
    while since.elapsed() < STAYS {
        tokio::time::sleep(5 * PAUSE).await;
        let sent = statuses_sent_by(Agent::LoadBalancer, stage, cluster);
        if sent.len() > before {
            (before, since) = (sent.len(), Instant::now());
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "the status is written again and again, at last: {:?}",
            sent.last()
        );
    }
}

#[test]
fn a_refused_deployment_is_reported_once_and_holds_no_host() {
    on_shared_site("no-deployment", async |stage| {
        stage.load(&fleet("no-deployment", 3, 0, 1)).await;
        forbid(stage, "no-deployment", "count/deployments.apps").await;
        let shop = behind("no-deployment", &[31_307]);
        stage.create(&shop).await;
        stage
            .condition_mentions(
                &shop,
                "LoadBalancerReady",
                "False",
                "Refused",
                "exceeded quota: none",
            )
            .await;
        stage
            .until(&shop, "have its hosts labelled", |object| {
                wait::is_true(object, "HostsLabeled")
            })
            .await;

        let before = status_writes(stage, &shop);
        tokio::time::sleep(STAYS).await;
        let after = status_writes(stage, &shop);
        assert_eq!(after - before, 0, "status writes within {STAYS:?}");

        stage
            .edit(&shop, json!({"nodes": {"Worker": {"count": {"active": 2}}}}))
            .await;
        until_held(stage, "no-deployment", 2).await;
        stage.delete(&shop).await;
        stage.gone(&shop).await;
    });
}

/// The load-balancer agent may list pods, or not.
pub(crate) async fn may_list_pods(stage: &Stage, may: bool) {
    let verbs = if may { json!(["list", "watch"]) } else { json!([]) };
    let roles: Api<k8s_openapi::api::rbac::v1::ClusterRole> = Api::all(stage.site.client());
    let mut role = roles.get("sip-load-balancer-agent-tenant").await.unwrap();
    for rule in role.rules.iter_mut().flatten() {
        if rule.resources.as_deref() == Some(&["pods".to_owned()]) {
            rule.verbs = serde_json::from_value(if may { verbs.clone() } else { json!(["get"]) }).unwrap();
        }
    }
    roles
        .replace("sip-load-balancer-agent-tenant", &PostParams::default(), &role)
        .await
        .unwrap();
}

#[tokio::test]
async fn hosts_wait_while_pods_cannot_be_listed() {
    let mut stage = Stage::start("unlisted", &AGENTS).await;
    stage.site.create_tenant_namespace("unlisted").await.unwrap();
    stage.load(&fleet("unlisted", 3, 0, 1)).await;
    let shop = behind("unlisted", &[31_308]);
    stage.create(&shop).await;
    stage.ready(&shop).await;

    may_list_pods(&stage, false).await;
    stage.agent(Agent::LoadBalancer).restart().await.unwrap();
    stage.agents_are_ready().await;
    stage
        .edit(&shop, json!({"nodes": {"Worker": {"count": {"active": 2}}}}))
        .await;
    stage
        .until(&shop, "release a host", |object| {
            crate::fixtures::members(object)
                .iter()
                .any(|member| member.state == "Releasing")
        })
        .await;
    nothing_is_given_back(&stage, "unlisted", 3).await;

    may_list_pods(&stage, true).await;
    until_held(&stage, "unlisted", 2).await;
    stage.ready(&shop).await;
}

#[tokio::test]
async fn hosts_wait_for_an_agent_that_is_away() {
    let mut stage = Stage::start("away", &AGENTS).await;
    stage.site.create_tenant_namespace("away").await.unwrap();
    stage.load(&fleet("away", 3, 0, 1)).await;
    let shop = behind("away", &[31_309]);
    stage.create(&shop).await;
    stage.ready(&shop).await;
    stage.agent(Agent::LoadBalancer).kill9().await.unwrap();

    let one_edit = json!({
        "nodes": {"Worker": {"count": {"active": 2}}}, "services": {"loadBalancerWorker": null},
    });
    stage.edit(&shop, one_edit).await;
    stage
        .condition_mentions(&shop, "HostsLabeled", "False", "Waiting", "load-balancer agent")
        .await;
    nothing_is_given_back(&stage, "away", 3).await;
    stage.delete(&shop).await;
    nothing_is_given_back(&stage, "away", 3).await;

    stage.agent(Agent::LoadBalancer).restart().await.unwrap();
    stage.gone(&shop).await;
    assert!(stage.hosts_of("away").await.iter().all(given_back));
    stage.nothing_was_forbidden();
}

#[test]
fn a_removed_clusters_hosts_wait_for_its_pods() {
    on_shared_site("removed", async |stage| {
        stage.load(&fleet("removed", 3, 0, 1)).await;
        let shop = behind("removed", &[31_310]);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        keep_pods(stage, "removed", FIRST).await;
        let used = "removed-r1-w1";
        let machine =
            json!({"apiVersion": "v1", "kind": "Metal3Machine", "namespace": "removed", "name": "m-0"});
        set_consumer(stage, used, machine).await;
        stage.delete(&shop).await;
        stage.condition_is(&shop, "Scheduled", "False", "Deleting").await;
        let stripped = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        stage
            .clusters("removed")
            .patch("shop", &PatchParams::default(), &stripped)
            .await
            .unwrap();
        stage.gone(&shop).await;

        set_consumer(stage, used, Value::Null).await;
        nothing_is_given_back(stage, "removed", 3).await;
        let_pods_go(stage, "removed", FIRST).await;
        until_held(stage, "removed", 0).await;
    });
}

#[test]
fn a_control_plane_that_shrinks_asks_every_pod() {
    on_shared_site("shrinks", async |stage| {
        stage.load(&fleet("shrinks", 3, 1, 0)).await;
        let entry = json!([{"image": "haproxy:2.8", "nodeInterfaceId": NETWORK, "nodePort": 31_311}]);
        let shop = cluster("shrinks", "shop")
            .role(Role::ControlPlane, 3)
            .with("/services/loadBalancerControlPlane", entry);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let name = "loadbalancer-controlplane-shop";
        keep_pods(stage, "shrinks", name).await;
        stage
            .edit(
                &shop,
                json!({"nodes": {"ControlPlane": {"count": {"active": 1}}}}),
            )
            .await;
        nothing_is_given_back(stage, "shrinks", 3).await;
        let_pods_go(stage, "shrinks", name).await;
        until_held(stage, "shrinks", 1).await;
        stage.ready(&shop).await;
    });
}
