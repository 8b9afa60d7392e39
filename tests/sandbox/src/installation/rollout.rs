//! Whether the pods of the scheduler and the agents run, as the statuses of their workloads report it.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::{
    Api,
    api::{ApiResource, DynamicObject},
    runtime::watcher,
};
use serde_json::Value;

use super::Error;
use crate::{region::AGENTS_NAMESPACE, site::Site, wait};

/// How long the pods may take together. Agents become ready when the scheduler answers them.
const PATIENCE: Duration = Duration::from_mins(3);

/// Waits until every `StatefulSet` and Deployment of the namespace has all its pods, and they are ready.
pub(super) async fn wait_until_ready(site: &Site) -> Result<(), Error> {
    for resource in [
        ApiResource::erase::<StatefulSet>(&()),
        ApiResource::erase::<Deployment>(&()),
    ] {
        let workloads: Api<DynamicObject> = Api::namespaced_with(site.client(), AGENTS_NAMESPACE, &resource);
        let what = format!("every {} of {AGENTS_NAMESPACE} to be ready", resource.kind);
        let config = watcher::Config::default();
        wait::until_all(workloads, config, &what, PATIENCE, |all: &[&DynamicObject]| {
            !all.is_empty() && all.iter().all(|one| is_complete(one))
        })
        .await?;
    }
    Ok(())
}

/// Whether a workload has as many pods as it should have, all of its present generation and ready.
fn is_complete(workload: &DynamicObject) -> bool {
    let number = |path: &str| workload.data.pointer(path).and_then(Value::as_i64);
    // The API server's default.
    let desired = number("/spec/replicas").unwrap_or(1);
    // The other numbers of the status are those of this generation.
    number("/status/observedGeneration") == workload.metadata.generation
        && number("/status/updatedReplicas").unwrap_or(0) == desired
        && number("/status/readyReplicas").unwrap_or(0) == desired
}

#[cfg(test)]
mod tests {
    use serde::{Serialize, de::DeserializeOwned};
    use serde_json::json;

    use super::*;

    /// A workload with the fields that its type has.
    fn typed<K: Serialize + DeserializeOwned>(workload: Value) -> DynamicObject {
        let workload: K = serde_json::from_value(workload).unwrap();
        serde_json::from_value(serde_json::to_value(workload).unwrap()).unwrap()
    }

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
            for object in [
                typed::<Deployment>(workload(&status)),
                typed::<StatefulSet>(workload(&status)),
            ] {
                assert_eq!(is_complete(&object), expected, "{object:?}");
            }
        }
    }
}
