//! Writes to a `SIPCluster` that arrive after somebody else has written to it.

use std::{collections::BTreeSet, time::Duration};

use http::StatusCode;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use sandbox::{
    inventory::Host,
    region::{Agent, AgentProcess, Replica},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::on_a_site_with_a_proxy;
use crate::{
    faults::{ApiProxy, Call, Fault},
    fixtures::{Cluster, PATIENCE, Role, Stage, addresses, cluster, host, statuses_sent},
    steady_state::{SETTLED, quiet_for},
};

/// Short enough to wait for it, long enough for a busy machine.
const LEASE: Duration = Duration::from_secs(6);

/// The project's own finalizer.
const FINALIZER: &str = "sip.airship.airshipit.org/finalizer";

/// Writes of the configuration of the API servers' load balancer.
fn configures(scenario: &'static str) -> impl Fn(&Call) -> bool + Send + Sync {
    move |call| patches("configmaps", scenario)(call) && call.name == "loadbalancer-controlplane-shop"
}

/// A patch of this resource in a scenario's namespace.
pub(super) fn patches(
    resource: &'static str,
    scenario: &'static str,
) -> impl Fn(&Call) -> bool + Send + Sync {
    move |call| call.verb == "patch" && call.resource == resource && call.namespace == scenario
}

#[test]
fn a_finalizer_that_others_set_meanwhile_stays() {
    on_a_site_with_a_proxy("finalizers", async |site| {
        site.stage.load(&[host("finalizers", "cp", "r1", "only")]).await;
        let late = site
            .proxy()
            .inject(patches("sipclusters", "finalizers"), 0, Fault::HeldBefore);
        let shop = cluster("finalizers", "shop").role(Role::ControlPlane, 1);
        site.stage.create(&shop).await;
        late.happens().await;
        let foreign = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/backup"]}}));
        let clusters = site.stage.clusters("finalizers");
        clusters
            .patch(&shop.name, &PatchParams::default(), &foreign)
            .await
            .unwrap();
        late.open();

        let ready = site.stage.ready(&shop).await;
        let finalizers: BTreeSet<&str> = ready.finalizers().iter().map(String::as_str).collect();
        assert_eq!(finalizers, BTreeSet::from(["example.com/backup", FINALIZER]));
    });
}

/// The answer to each status with a placement that was written, and the placement's epoch and revision, in the order of the
/// writes.
fn written(stage: &Stage, cluster: &Cluster) -> Vec<(u16, (u64, u64))> {
    let placement = |status: &Value| {
        let number = |field: &str| status.pointer(&format!("/status/placement/{field}"))?.as_u64();
        Some((number("epoch")?, number("revision")?))
    };
    statuses_sent(stage, cluster)
        .into_iter()
        .filter_map(|entry| Some((entry.response_status.code, placement(&entry.request_object)?)))
        .collect()
}

/// A replica of an agent that reaches the API server by a proxy.
pub(super) async fn replica(
    stage: &Stage,
    agent: Agent,
    name: &'static str,
    proxy: &ApiProxy,
) -> AgentProcess {
    let config = stage.region.site_config(&stage.site);
    let replica = Replica {
        name,
        lease: LEASE,
        api_server: proxy.url(),
    };
    let started = stage.region.start_as(&stage.site, agent, &config, replica);
    let mut started = started.await.unwrap();
    started.is_ready().await.unwrap();
    started
}

#[tokio::test]
async fn a_late_configuration_puts_no_member_back() {
    let stage = Stage::start("site-a", &[Agent::Cluster]).await;
    let (old, new) = (ApiProxy::to(&stage.site).await, ApiProxy::to(&stage.site).await);
    let mut first = replica(&stage, Agent::LoadBalancer, "first", &old).await;
    let _second = replica(&stage, Agent::LoadBalancer, "second", &new).await;
    let hosts = [host("late", "cp", "r1", "a"), host("late", "cp", "r2", "b")];
    stage.load(&hosts).await;
    stage.site.create_tenant_namespace("late").await.unwrap();
    let of = |count| {
        cluster("late", "shop")
            .role(Role::ControlPlane, count)
            .balanced(31_940)
    };
    let shop = of(1);
    stage.create(&shop).await;
    stage.ready(&shop).await;
    let addresses = addresses(&hosts);
    let balanced = async || {
        let config = stage.haproxy_config(&shop, "controlplane").await;
        let named = addresses
            .values()
            .filter(|address| config.contains(&address.to_string()));
        named.count()
    };
    let reaches = async |count: usize| {
        let reached = async {
            while balanced().await != count {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        timeout(PATIENCE, reached).await.unwrap();
    };
    assert_eq!(balanced().await, 1);

    // The configuration with the second member is on its way while the other replica writes it, and the one without that member.
    let late = old.inject(configures("late"), 0, Fault::HeldBefore);
    stage.edit(&shop, of(2).spec().clone()).await;
    late.happens().await;
    first.process().pause().unwrap();
    reaches(2).await;
    stage.edit(&shop, of(1).spec().clone()).await;
    reaches(1).await;
    assert_eq!(late.answer().await, StatusCode::CONFLICT);
    assert_eq!(balanced().await, 1);
}

/// Waits until the load balancer of the API servers leads to so many of these hosts.
async fn leads_to(stage: &Stage, cluster: &Cluster, hosts: &[Host], count: usize) {
    let config_maps: Api<ConfigMap> = Api::namespaced(stage.site.client(), &cluster.namespace);
    let name = format!("loadbalancer-controlplane-{}", cluster.name);
    let addresses = addresses(hosts);
    let reached = async {
        loop {
            let found = config_maps.get_opt(&name).await.unwrap();
            let config = found.and_then(|found| found.data?.remove("haproxy.cfg"));
            let named = config.map(|config| {
                let addresses = addresses.values();
                addresses
                    .filter(|address| config.contains(&address.to_string()))
                    .count()
            });
            if named == Some(count) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, reached).await.unwrap();
}

#[tokio::test]
async fn a_late_first_configuration_replaces_none() {
    let stage = Stage::start("site-a", &[Agent::Cluster]).await;
    let (old, new) = (ApiProxy::to(&stage.site).await, ApiProxy::to(&stage.site).await);
    let mut first = replica(&stage, Agent::LoadBalancer, "first", &old).await;
    let _second = replica(&stage, Agent::LoadBalancer, "second", &new).await;
    let hosts = [host("fresh", "cp", "r1", "a")];
    stage.load(&hosts).await;
    stage.site.create_tenant_namespace("fresh").await.unwrap();
    let of = |count| {
        cluster("fresh", "shop")
            .role(Role::ControlPlane, count)
            .balanced(31_950)
    };
    let late = old.inject(configures("fresh"), 0, Fault::HeldBefore);
    let shop = of(1);
    stage.create(&shop).await;
    late.happens().await;
    first.process().pause().unwrap();
    // The other replica makes what the first was about to make, and then takes the member out.
    leads_to(&stage, &shop, &hosts, 1).await;
    stage.edit(&shop, of(0).spec().clone()).await;
    leads_to(&stage, &shop, &hosts, 0).await;
    assert_eq!(late.answer().await, StatusCode::CONFLICT);
    leads_to(&stage, &shop, &hosts, 0).await;
}

/// The text of the configuration is the same before the member came and after it left: nobody but the replica that is late has written
/// one with it.
#[tokio::test]
async fn a_member_that_nobody_wrote_is_not_put_back_late() {
    let stage = Stage::start("site-a", &[Agent::Cluster]).await;
    let (old, new) = (ApiProxy::to(&stage.site).await, ApiProxy::to(&stage.site).await);
    let mut first = replica(&stage, Agent::LoadBalancer, "first", &old).await;
    let _second = replica(&stage, Agent::LoadBalancer, "second", &new).await;
    let hosts = [
        host("unwritten", "cp", "r1", "a"),
        host("unwritten", "cp", "r2", "b"),
    ];
    stage.load(&hosts).await;
    stage.site.create_tenant_namespace("unwritten").await.unwrap();
    let of = |count| {
        cluster("unwritten", "shop")
            .role(Role::ControlPlane, count)
            .balanced(31_960)
    };
    let shop = of(1);
    stage.create(&shop).await;
    stage.ready(&shop).await;

    let late = old.inject(configures("unwritten"), 0, Fault::HeldBefore);
    stage.edit(&shop, of(2).spec().clone()).await;
    late.happens().await;
    first.process().pause().unwrap();
    stage.edit(&shop, of(1).spec().clone()).await;
    // The other replica serves the cluster as it was; one of the hosts is free again.
    let released = stage.until(&shop, "hold one host of this generation", |object| {
        let placement = &object.data["status"]["placement"];
        placement["generation"].as_i64() == object.metadata.generation
            && placement["members"]
                .as_array()
                .is_some_and(|members| members.len() == 1)
    });
    released.await;
    assert_eq!(late.answer().await, StatusCode::CONFLICT);
    leads_to(&stage, &shop, &hosts, 1).await;
}

#[tokio::test]
async fn a_placement_in_status_never_regresses() {
    let stage = Stage::start("site-a", &[]).await;
    let (old, new) = (ApiProxy::to(&stage.site).await, ApiProxy::to(&stage.site).await);
    let mut first = replica(&stage, Agent::Cluster, "first", &old).await;
    let _second = replica(&stage, Agent::Cluster, "second", &new).await;
    stage.load(&[host("back", "cp", "r1", "only")]).await;
    stage.site.create_tenant_namespace("back").await.unwrap();

    // The first status says Claimed. It is on its way while the other replica writes it and the next ones.
    let late = old.inject(patches("sipclusters/status", "back"), 0, Fault::HeldBefore);
    let shop = cluster("back", "shop").role(Role::ControlPlane, 1);
    stage.create(&shop).await;
    late.happens().await;
    first.process().pause().unwrap();
    stage.ready(&shop).await;
    // The audit log is behind what it reports.
    timeout(PATIENCE, quiet_for(&stage, SETTLED)).await.unwrap();
    let before = written(&stage, &shop).len();

    late.open();
    let arrives = async {
        while written(&stage, &shop).len() == before {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, arrives).await.expect("the late write arrives");
    stage.ready(&shop).await;
    let all = written(&stage, &shop);
    let accepted: Vec<(u64, u64)> = all
        .iter()
        .filter(|(code, _)| *code < 300)
        .map(|(_, of)| *of)
        .collect();
    assert!(accepted.is_sorted(), "a placement went back: {accepted:?}");
    assert_eq!(all[before].0, 409, "{all:?}");
}
