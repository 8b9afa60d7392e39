//! Pods of Deployments and `StatefulSets`: which of them run, how a container is killed and comes back, and how pods are evicted.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ContainerStatus, Pod},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, ResourceExt as _,
    api::{EvictParams, ListParams},
    runtime::watcher,
};
use sandbox::{site::Site, wait};

use super::RECOVERY;

/// Kinds that replace a pod that is evicted. Other pods, such as those that check templates, end by themselves.
const OWNERS: [&str; 2] = ["ReplicaSet", "StatefulSet"];

/// The name of the `ReplicaSet` or `StatefulSet` that a pod counts for: for none while it is being deleted.
fn workload(pod: &Pod) -> Option<&str> {
    let mut owners = pod.owner_references().iter();
    let owner = owners.find(|owner| OWNERS.contains(&owner.kind.as_str()))?;
    let stays = pod.metadata.deletion_timestamp.is_none();
    stays.then_some(owner.name.as_str())
}

fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn container<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses.iter().find(|container| container.name == name)
}

/// The pods of a namespace by their `ReplicaSet` or `StatefulSet`, without those that are being deleted.
pub(super) async fn by_workload(site: &Site, namespace: &str) -> BTreeMap<String, Vec<Pod>> {
    let pods: Api<Pod> = Api::namespaced(site.client(), namespace);
    let mut found: BTreeMap<String, Vec<Pod>> = BTreeMap::new();
    for pod in pods.list(&ListParams::default()).await.unwrap() {
        if let Some(name) = workload(&pod).map(str::to_owned) {
            found.entry(name).or_default().push(pod);
        }
    }
    found
}

/// The pods whose names begin with that of a Deployment or `StatefulSet`.
pub(super) async fn pods_of(site: &Site, namespace: &str, name: &str) -> Vec<Pod> {
    let prefix = format!("{name}-");
    let pods = by_workload(site, namespace).await.into_values().flatten();
    pods.filter(|pod| pod.name_any().starts_with(&prefix)).collect()
}

/// How often containers of these pods were started again, by the names of the pods.
pub(super) fn restarts(pods: &[Pod]) -> BTreeMap<String, i32> {
    let of_pod = |pod: &Pod| {
        let status = pod.status.as_ref();
        let all = status.map(|status| [&status.container_statuses, &status.init_container_statuses]);
        let all = all.into_iter().flatten().flatten().flatten();
        all.map(|container| container.restart_count).sum::<i32>()
    };
    pods.iter().map(|pod| (pod.name_any(), of_pod(pod))).collect()
}

/// A running container.
#[derive(Debug)]
pub(super) struct Container {
    namespace: String,
    pod: String,
    name: &'static str,
    id: String,
    restarts: i32,
}

impl Container {
    /// The container of this name in a pod.
    pub(super) fn find(pod: &Pod, name: &'static str) -> Self {
        let status = container(pod, name).unwrap();
        Self {
            namespace: pod.namespace().unwrap(),
            pod: pod.name_any(),
            name,
            id: status.container_id.clone().unwrap(),
            restarts: status.restart_count,
        }
    }

    /// Sends SIGKILL to its processes, as the kernel does for lack of memory: nothing is released or closed by them.
    pub(super) async fn kill(&self, site: &Site) {
        site.node().unwrap().kill_container(&self.id).await.unwrap();
    }

    /// Waits until the kubelet has started it again and its pod is ready.
    pub(super) async fn is_back(&self, site: &Site) -> Result<(), wait::Error> {
        let pods: Api<Pod> = Api::namespaced(site.client(), &self.namespace);
        let what = format!("{} of {} to be started again", self.name, self.pod);
        let is_back = |pod: &Pod| {
            let restarts = container(pod, self.name).map(|container| container.restart_count);
            restarts.is_some_and(|restarts| restarts > self.restarts) && is_ready(pod)
        };
        wait::until(pods, &self.pod, &what, RECOVERY, is_back)
            .await
            .map(drop)
    }
}

/// Waits until every Deployment of a namespace has all its pods, of its present template.
pub(super) async fn deployments_are_complete(site: &Site, namespace: &str) -> Result<(), wait::Error> {
    let deployments: Api<Deployment> = Api::namespaced(site.client(), namespace);
    let what = format!("the Deployments of {namespace} to be complete");
    let is_complete = |deployment: &Deployment| {
        let wanted = deployment.spec.replicas.unwrap_or(1);
        deployment.status.as_ref().is_some_and(|status| {
            status.observed_generation == deployment.metadata.generation
                && status.updated_replicas.unwrap_or_default() == wanted
                && status.available_replicas.unwrap_or_default() == wanted
        })
    };
    let complete = |all: &[&Deployment]| all.iter().all(|deployment| is_complete(deployment));
    let config = watcher::Config::default();
    wait::until_all(deployments, config, &what, RECOVERY, complete)
        .await
        .map(drop)
}

/// Waits until so many pods of each `ReplicaSet` and `StatefulSet` are ready.
pub(super) async fn pods_are_ready(
    site: &Site,
    namespace: &str,
    wanted: &BTreeMap<String, usize>,
) -> Result<(), wait::Error> {
    let pods: Api<Pod> = Api::namespaced(site.client(), namespace);
    let what = format!("the pods of {namespace} to be ready: {wanted:?}");
    let ready = |all: &[&Pod]| {
        wanted.iter().all(|(name, wanted)| {
            let own = all.iter().filter(|pod| workload(pod) == Some(name.as_str()));
            own.filter(|pod| is_ready(pod)).count() == *wanted
        })
    };
    let config = watcher::Config::default();
    wait::until_all(pods, config, &what, RECOVERY, ready)
        .await
        .map(drop)
}

/// Waits until every `PodDisruptionBudget` of a namespace allows an eviction.
pub(super) async fn budgets_allow_evictions(site: &Site, namespace: &str) -> Result<(), wait::Error> {
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(site.client(), namespace);
    let what = format!("the PodDisruptionBudgets of {namespace} to allow evictions");
    let allows = |budget: &PodDisruptionBudget| {
        let status = budget.status.as_ref();
        let allowed = status.and_then(|status| status.disruptions_allowed);
        allowed.is_some_and(|allowed| allowed > 0)
    };
    let allow = |all: &[&PodDisruptionBudget]| !all.is_empty() && all.iter().all(|budget| allows(budget));
    let config = watcher::Config::default();
    wait::until_all(budgets, config, &what, RECOVERY, allow)
        .await
        .map(drop)
}

/// Evicts a pod, as `kubectl drain` does. `false`: a `PodDisruptionBudget` does not allow it, also not when the client of the sandbox
/// repeats the call.
pub(super) async fn evict(site: &Site, namespace: &str, pod: &str) -> bool {
    let pods: Api<Pod> = Api::namespaced(site.client(), namespace);
    match pods.evict(pod, &EvictParams::default()).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.code == 429 => {
            assert!(status.message.contains("disruption budget"), "{status:?}");
            false
        }
        Err(why) => panic!("evict {namespace}/{pod}: {why}"),
    }
}
