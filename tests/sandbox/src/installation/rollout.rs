//! Whether the pods of the scheduler and the agents run, as the statuses of their workloads report it.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::{Api, runtime::watcher};

use super::Error;
use crate::{region::AGENTS_NAMESPACE, site::Site, wait};

/// How long the pods may take together. Agents become ready when the scheduler answers them.
const PATIENCE: Duration = Duration::from_mins(3);

/// Waits until every `StatefulSet` and Deployment of the namespace has all its pods, and they are ready.
pub(super) async fn wait_until_ready(site: &Site) -> Result<(), Error> {
    let sets: Api<StatefulSet> = Api::namespaced(site.client(), AGENTS_NAMESPACE);
    let what = format!("every StatefulSet of {AGENTS_NAMESPACE} to be ready");
    let config = watcher::Config::default();
    wait::until_all(sets, config, &what, PATIENCE, |sets: &[&StatefulSet]| {
        !sets.is_empty() && sets.iter().all(|set| Rollout::from(*set).is_complete())
    })
    .await?;
    let deployments: Api<Deployment> = Api::namespaced(site.client(), AGENTS_NAMESPACE);
    let what = format!("every Deployment of {AGENTS_NAMESPACE} to be ready");
    let config = watcher::Config::default();
    wait::until_all(deployments, config, &what, PATIENCE, |all: &[&Deployment]| {
        !all.is_empty() && all.iter().all(|one| Rollout::from(*one).is_complete())
    })
    .await?;
    Ok(())
}

/// The pods that a workload should have, and those that its controller reports.
#[derive(Clone, Copy, Debug)]
struct Rollout {
    generation: Option<i64>,
    /// The generation that the other numbers are of.
    observed: Option<i64>,
    desired: Option<i32>,
    updated: Option<i32>,
    ready: Option<i32>,
}

impl From<&StatefulSet> for Rollout {
    fn from(set: &StatefulSet) -> Self {
        let status = set.status.as_ref();
        Self {
            generation: set.metadata.generation,
            observed: status.and_then(|status| status.observed_generation),
            desired: set.spec.replicas,
            updated: status.and_then(|status| status.updated_replicas),
            ready: status.and_then(|status| status.ready_replicas),
        }
    }
}

impl From<&Deployment> for Rollout {
    fn from(deployment: &Deployment) -> Self {
        let status = deployment.status.as_ref();
        Self {
            generation: deployment.metadata.generation,
            observed: status.and_then(|status| status.observed_generation),
            desired: deployment.spec.replicas,
            updated: status.and_then(|status| status.updated_replicas),
            ready: status.and_then(|status| status.ready_replicas),
        }
    }
}

impl Rollout {
    fn is_complete(self) -> bool {
        let Self {
            generation,
            observed,
            desired,
            updated,
            ready,
        } = self;
        // What the API server takes a workload without a number for.
        let desired = desired.unwrap_or(1);
        observed == generation && updated.unwrap_or(0) == desired && ready.unwrap_or(0) == desired
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_workload_is_complete_when_all_its_new_pods_are_ready() {
        let cases = [
            (json!({}), false),
            (
                json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2}),
                false,
            ),
            (
                json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 1}),
                false,
            ),
            (
                json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2}),
                false,
            ),
            (
                json!({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 1, "readyReplicas": 2}),
                false,
            ),
            (
                json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2}),
                true,
            ),
        ];
        let workload = |status: &Value| {
            json!({
                "metadata": {"name": "sip-scheduler", "generation": 2},
                "spec": {
                    "replicas": 2, "serviceName": "sip-scheduler", "selector": {},
                    "template": {"spec": {"containers": []}},
                },
                "status": status,
            })
        };

        for (status, expected) in cases {
            let deployment: Deployment = serde_json::from_value(workload(&status)).unwrap();
            assert_eq!(Rollout::from(&deployment).is_complete(), expected, "{status}");
            let set: StatefulSet = serde_json::from_value(workload(&status)).unwrap();
            assert_eq!(Rollout::from(&set).is_complete(), expected, "{status}");
        }
    }
}
