//! An upgrade replaces the programs one after the other, in any order, with clusters in place and others that come.
//!
//! `SIP_BIN_DIR` names the directory with the programs of the earlier release: `make upgrade FROM=REVISION` builds them. Without it both
//! releases are the present one, and what is shown is that the end of a program touches nothing that runs.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{Api, ResourceExt as _, api::ListParams};
use sandbox::{
    programs,
    region::{Agent, HOSTS_NAMESPACE},
    sip_clusters::holder,
};
use serde_json::json;
use tokio::time::timeout;

use crate::{
    fixtures::{AGENTS, Cluster, PATIENCE, Role, Stage, cluster, fleet, held, members},
    steady_state::{SETTLED, quiet_for},
};

/// For how long a program may take to end.
const GRACE: Duration = Duration::from_secs(20);

/// A program that an upgrade replaces.
#[derive(Clone, Copy, Debug)]
enum Part {
    Scheduler,
    Agent(Agent),
}

impl Part {
    async fn upgrade(self, stage: &mut Stage) {
        match self {
            Self::Scheduler => {
                let binary = programs::built("sip-scheduler").unwrap();
                let region = stage.region_mut();
                region.scheduler().replace(binary, GRACE).await.unwrap();
                region.scheduler_is_ready().await.unwrap();
            }
            Self::Agent(agent) => {
                let binary = programs::built(agent.program()).unwrap();
                stage.agent(agent).replace(binary, GRACE).await.unwrap();
            }
        }
        stage.agents_are_ready().await;
    }
}

/// Versions of a cluster's hosts, and what its Deployments and pods are: all that an upgrade must leave alone.
async fn state(stage: &Stage, cluster: &Cluster) -> BTreeMap<String, String> {
    let object = stage
        .clusters(&cluster.namespace)
        .get(&cluster.name)
        .await
        .unwrap();
    let hosts = held(&members(&object));
    let mut state = BTreeMap::new();
    for host in stage.hosts().list(&ListParams::default()).await.unwrap() {
        if hosts.contains_key(&host.name_any()) {
            state.insert(
                format!("host {}", host.name_any()),
                host.resource_version().unwrap(),
            );
        }
    }
    let namespace = &cluster.namespace;
    let is_its = |name: &str| name.contains(&cluster.name);
    let deployments: Api<Deployment> = Api::namespaced(stage.site.client(), namespace);
    for deployment in deployments.list(&ListParams::default()).await.unwrap() {
        let (name, uid) = (deployment.name_any(), deployment.uid().unwrap());
        if is_its(&name) {
            state.insert(
                format!("deployment {name}"),
                format!("{uid} {:?}", deployment.metadata.generation),
            );
        }
    }
    let pods: Api<Pod> = Api::namespaced(stage.site.client(), namespace);
    for pod in pods.list(&ListParams::default()).await.unwrap() {
        if is_its(&pod.name_any()) {
            state.insert(format!("pod {}", pod.name_any()), pod.uid().unwrap());
        }
    }
    state
}

async fn replaced_in_order(scenario: &str, port: u16, order: [Part; 3]) {
    let mut stage = Stage::start("site-a", &AGENTS).await;
    stage.load(&fleet(scenario, 4, 1, 2)).await;
    stage.site.create_tenant_namespace(scenario).await.unwrap();
    let shop = cluster(scenario, "shop")
        .role(Role::ControlPlane, 3)
        .role(Role::Worker, 3)
        .balanced(port);
    stage.create(&shop).await;
    stage.ready(&shop).await;
    timeout(PATIENCE, quiet_for(&stage, SETTLED)).await.unwrap();
    let before = state(&stage, &shop).await;
    assert!(before.len() >= 6 + 2 + 2, "{before:?}");

    let mut others = Vec::new();
    for (index, part) in (1_u16..).zip(order) {
        part.upgrade(&mut stage).await;
        // Life goes on between two releases.
        let other = cluster(scenario, &format!("other-{index}"))
            .role(Role::Worker, 1)
            .balanced(port + 10 * index);
        stage.create(&other).await;
        stage.ready(&other).await;
        stage.ready(&shop).await;
        timeout(PATIENCE, quiet_for(&stage, SETTLED)).await.unwrap();
        assert_eq!(state(&stage, &shop).await, before, "after {part:?} of {order:?}");
        others.push(other);
    }

    let larger = json!({"nodes": {"Worker": {"count": {"active": 4}}}});
    stage.edit(&shop, larger).await;
    stage.ready(&shop).await;
    let hosts = state(&stage, &shop).await;
    for (name, version) in before.iter().filter(|(name, _)| name.starts_with("host ")) {
        assert_eq!(hosts.get(name), Some(version), "{name} after the growth");
    }
    for cluster in others.iter().chain([&shop]) {
        stage.delete(cluster).await;
        stage.gone(cluster).await;
    }
    let hosts = stage.hosts_of(scenario).await;
    let namespace = |host: &kube::api::DynamicObject| host.namespace().as_deref() == Some(HOSTS_NAMESPACE);
    assert!(
        hosts.iter().all(namespace) && hosts.iter().all(|host| holder(host).is_none()),
        "{hosts:?}"
    );
    stage.nothing_was_forbidden();
}

#[tokio::test]
async fn the_scheduler_first_touches_nothing_that_runs() {
    let order = [
        Part::Scheduler,
        Part::Agent(Agent::Cluster),
        Part::Agent(Agent::LoadBalancer),
    ];
    replaced_in_order("scheduler-first", 31_520, order).await;
}

#[tokio::test]
async fn the_agents_first_touch_nothing_that_runs() {
    let order = [
        Part::Agent(Agent::LoadBalancer),
        Part::Agent(Agent::Cluster),
        Part::Scheduler,
    ];
    replaced_in_order("agents-first", 31_560, order).await;
}
