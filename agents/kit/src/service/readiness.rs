//! Whether the pods of an instance work, and why not.

use api::{annotations, conditions::Reason};
use k8s_openapi::api::{
    apps::v1::{Deployment, DeploymentCondition},
    core::v1::{ContainerStatus, Pod},
};
use kube::ResourceExt as _;

use super::problem::{IMAGE_PULL, PODS_FAIL, PROGRESSING, Problem};

/// Reasons of the kubelet for a container that waits for its image.
const IMAGE_REASONS: [&str; 6] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
];
/// Its reasons for one that cannot be started, or does not stay.
const FAILURE_REASONS: [&str; 5] = [
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "StartError",
];

/// Whether this is a kubelet's reason for a container that does not run, and that it will not start now.
#[must_use]
pub fn is_stuck(reason: &str) -> bool {
    IMAGE_REASONS.contains(&reason) || FAILURE_REASONS.contains(&reason)
}

/// The configuration of a Deployment's pods, where a change of it starts new ones.
pub(super) fn config_hash(deployment: &Deployment) -> Option<&str> {
    let metadata = deployment.spec.template.metadata.as_ref()?;
    let annotations = metadata.annotations.as_ref()?;
    annotations.get(annotations::CONFIG_HASH).map(String::as_str)
}

/// Whether pods are still being made: the controller must have observed this generation, and every pod must be of it and
/// available.
#[must_use]
pub fn rollout(deployment: &Deployment) -> Option<Problem> {
    let wanted = deployment.spec.replicas.unwrap_or(1);
    let status = deployment.status.clone().unwrap_or_default();
    let seen =
        status.observed_generation.is_some() && status.observed_generation >= deployment.metadata.generation;
    let updated = if seen {
        status.updated_replicas.unwrap_or(0)
    } else {
        0
    };
    let available = status.available_replicas.unwrap_or(0).min(updated);
    let surplus = status.replicas.unwrap_or(0).saturating_sub(wanted);
    if seen && available >= wanted && surplus <= 0 {
        return None;
    }
    let of_before = if available >= wanted && surplus > 0 {
        format!("; old pods that still run: {surplus}")
    } else {
        String::new()
    };
    let message = format!("{available} of {wanted} pods are up to date and available{of_before}");
    Some(Problem::new(PROGRESSING, message))
}

/// Whether a condition of a Deployment shows that its pods were available: they are now, or were at the end of the last rollout.
pub(super) fn shows_service(condition: &DeploymentCondition) -> bool {
    match condition.type_.as_deref() {
        Some("Available") => condition.status.as_deref() == Some("True"),
        Some("Progressing") => condition.reason.as_deref() == Some("NewReplicaSetAvailable"),
        _ => false,
    }
}

/// Whether pods of a Deployment may serve at present, whatever changes of it are under way.
pub(super) fn may_serve(deployment: &Deployment) -> bool {
    let status = deployment.status.clone().unwrap_or_default();
    let conditions = status.conditions.as_deref().unwrap_or_default();
    deployment.spec.replicas != Some(0)
        && (status.available_replicas > Some(0) || conditions.iter().any(shows_service))
}

/// Whether pods of a Deployment serve as the spec asks: while new ones are made, those of before are available, or some of a rollout that is over.
/// Without pods the Deployment is complete and available, and stays complete when it is scaled up.
pub(super) fn serves_as_specified(deployment: &Deployment) -> bool {
    let Some(status) = &deployment.status else {
        return false;
    };
    let generation = deployment.metadata.generation;
    let is_observed = status.observed_generation.is_some() && status.observed_generation >= generation;
    let has_pods = status.available_replicas > Some(0);
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let mut shown = conditions.iter().filter(|condition| shows_service(condition));
    is_observed
        && deployment.spec.replicas != Some(0)
        && shown.any(|condition| has_pods || condition.type_.as_deref() == Some("Available"))
}

/// Why the pods do not work, by the kubelet's message. An image that cannot be pulled is reported before its consequences.
#[must_use]
pub fn trouble(pods: &[impl AsRef<Pod>]) -> Option<Problem> {
    let found = |reasons: &[&str], reason: Reason| {
        pods.iter().map(AsRef::as_ref).find_map(|pod| {
            let why = containers(pod).find_map(|container| waiting(container, reasons))?;
            Some(Problem::new(reason, format!("pod {}: {why}", pod.name_any())))
        })
    };
    found(&IMAGE_REASONS, IMAGE_PULL).or_else(|| found(&FAILURE_REASONS, PODS_FAIL))
}

fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    pod.status.iter().flat_map(|status| {
        let first = status.init_container_statuses.iter().flatten();
        first.chain(status.container_statuses.iter().flatten())
    })
}

/// Why a container waits, if it is for one of these reasons.
fn waiting(container: &ContainerStatus, reasons: &[&str]) -> Option<String> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting
        .reason
        .as_deref()
        .filter(|reason| reasons.contains(reason))?;
    let message = waiting.message.as_deref().unwrap_or_default();
    let last = container
        .last_state
        .as_ref()
        .and_then(|last| last.terminated.as_ref())
        .and_then(|last| last.message.as_deref())
        .unwrap_or_default();
    let parts: Vec<&str> = [reason, message, last.trim()]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect();
    Some(format!("image {}: {}", container.image, parts.join(": ")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::apps::v1::{DeploymentSpec, DeploymentStatus};
    use kube::core::ObjectMeta;

    use serde_json::json;

    use super::*;

    #[test]
    fn only_pods_that_were_available_serve() {
        let available = |status: &str| json!({"type": "Available", "status": status});
        let rollout = |reason: &str| json!({"type": "Progressing", "status": "True", "reason": reason});
        let (over, updated) = ("NewReplicaSetAvailable", "ReplicaSetUpdated");
        for (replicas, observed, pods, conditions, as_specified, may) in [
            (2, 3, 2, vec![available("True"), rollout(updated)], true, true),
            (2, 3, 1, vec![available("False"), rollout(over)], true, true),
            // It was scaled up from 0.
            (2, 3, 0, vec![available("False"), rollout(over)], false, true),
            (2, 3, 0, vec![available("False"), rollout(updated)], false, false),
            // Its rollout cannot end, and one of the nodes is down.
            (2, 3, 1, vec![available("False"), rollout(updated)], false, true),
            (2, 3, 0, vec![], false, false),
            // An edit that the controller has not observed.
            (2, 2, 2, vec![available("True"), rollout(over)], false, true),
            (0, 3, 0, vec![available("True"), rollout(over)], false, false),
        ] {
            let deployment = json!({
                "metadata": {"generation": 3}, "spec": {"replicas": replicas, "selector": {}, "template": {}},
                "status": {"observedGeneration": observed, "availableReplicas": pods, "conditions": conditions},
            });
            let deployment: Deployment = serde_json::from_value(deployment).unwrap();
            assert_eq!(serves_as_specified(&deployment), as_specified, "{deployment:?}");
            assert_eq!(may_serve(&deployment), may, "{deployment:?}");
        }
        let new = json!({"metadata": {"generation": 1}, "spec": {"selector": {}, "template": {}}});
        let new = serde_json::from_value(new).unwrap();
        assert!(!serves_as_specified(&new) && !may_serve(&new));
    }

    fn deployment(generation: i64, observed: i64, updated: i32, available: i32, total: i32) -> Deployment {
        Deployment {
            metadata: ObjectMeta {
                generation: Some(generation),
                ..ObjectMeta::default()
            },
            spec: DeploymentSpec {
                replicas: Some(2),
                ..DeploymentSpec::default()
            },
            status: Some(DeploymentStatus {
                observed_generation: Some(observed),
                replicas: Some(total),
                updated_replicas: Some(updated),
                available_replicas: Some(available),
                ..DeploymentStatus::default()
            }),
        }
    }

    #[test]
    fn a_rollout_ends_when_every_pod_is_new_and_available() {
        for (name, deployment, complete) in [
            ("done", deployment(2, 2, 2, 2, 2), true),
            ("the controller has not seen it", deployment(2, 1, 2, 2, 2), false),
            ("an old pod is still there", deployment(2, 2, 2, 3, 3), false),
            ("a new pod is not available", deployment(2, 2, 2, 1, 2), false),
            ("only old pods are available", deployment(2, 2, 0, 2, 2), false),
        ] {
            assert_eq!(rollout(&deployment).is_none(), complete, "{name}");
        }
        let mut rendered = deployment(2, 2, 0, 0, 0);
        rendered.spec.replicas = Some(0);
        assert_eq!(rollout(&rendered), None, "no pod is wanted");
        (rendered.metadata.generation, rendered.status) = (None, None);
        assert!(rollout(&rendered).is_some(), "it is not applied yet");
    }

    fn pod(status: &serde_json::Value) -> Arc<Pod> {
        let pod = serde_json::json!({"metadata": {"name": "lb-1"}, "status": status});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn waits(reason: &str, message: &str) -> Arc<Pod> {
        pod(&serde_json::json!({"containerStatuses": [{
            "name": "loadbalancer", "image": "haproxy:0", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": reason, "message": message}},
            "lastState": {"terminated": {"exitCode": 1, "message": "[ALERT] no such file\n"}},
        }]}))
    }

    #[test]
    fn pod_trouble_is_in_the_words_of_the_kubelet() {
        let starting = waits("ContainerCreating", "");
        assert_eq!(trouble(&[starting]), None);
        let pull = trouble(&[
            waits("CrashLoopBackOff", "back-off"),
            waits("ImagePullBackOff", "no such manifest"),
        ]);
        let pull = pull.unwrap();
        assert_eq!(pull.reason, IMAGE_PULL);
        assert!(
            pull.message
                .starts_with("pod lb-1: image haproxy:0: ImagePullBackOff: no such manifest"),
            "{pull:?}"
        );
        let fails = trouble(&[waits("CrashLoopBackOff", "back-off")]).unwrap();
        assert_eq!(fails.reason, PODS_FAIL);
        assert!(
            fails.message.ends_with("back-off: [ALERT] no such file"),
            "{fails:?}"
        );
    }
}
