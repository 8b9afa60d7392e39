//! The pods of load balancers: whose they are, and why they do not work.

use std::{mem, sync::Arc};

use api::{
    SIPCluster,
    conditions::{
        Reason,
        load_balancer::{IMAGE_PULL, PODS_FAIL},
    },
    labels,
};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec};
use kube::{
    ResourceExt as _,
    runtime::reflector::{ObjectRef, Store},
};
use render::load_balancer::Objects;

use super::apply::Lack;

/// The condition of a pod that serves.
const READY: &str = "Ready";
/// Reasons of the kubelet for a container that waits for its image.
const IMAGE: [&str; 6] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
];
/// Its reasons for one that cannot be started, or does not stay.
const FAILING: [&str; 5] = [
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "StartError",
];

/// What tells whose it is, and what for.
const LABELS: [&str; 3] = [labels::CLUSTER_NAME, labels::INSTANCE, labels::TEMPLATE_CHECK];

/// The cluster whose load balancer a pod belongs to.
#[must_use]
#[expect(clippy::needless_pass_by_value, reason = "the controller calls it so")]
pub fn owner_of(pod: Pod) -> Option<ObjectRef<SIPCluster>> {
    let cluster = pod.labels().get(labels::CLUSTER_NAME)?;
    Some(ObjectRef::new(cluster).within(&pod.namespace()?))
}

/// Leaves of a pod what is asked of it here: there are many.
pub fn trim(pod: &mut Pod) {
    pod.labels_mut().retain(|label, _| LABELS.contains(&&**label));
    let conditions = pod
        .status
        .iter_mut()
        .filter_map(|status| status.conditions.as_mut());
    for conditions in conditions {
        conditions.retain(|condition| condition.type_ == READY);
    }
    let Some(spec) = &mut pod.spec else {
        return;
    };
    let ports = |containers: Vec<Container>| -> Vec<Container> {
        let containers = containers.into_iter();
        let trimmed = containers.map(|Container { name, ports, .. }| Container {
            name,
            ports,
            ..Container::default()
        });
        trimmed.collect()
    };
    *spec = PodSpec {
        node_name: spec.node_name.take(),
        containers: ports(mem::take(&mut spec.containers)),
        init_containers: spec.init_containers.take().map(ports),
        ..PodSpec::default()
    };
}

/// The pods of a namespace, whichever load balancer they are of.
pub(super) fn in_namespace(pods: &Store<Pod>, namespace: Option<&str>) -> Vec<Arc<Pod>> {
    let mut own = pods.state();
    own.retain(|pod| pod.metadata.namespace.as_deref() == namespace);
    own
}

/// Whether this is a reason of the kubelet's for a container that does not run, and that it will not start now.
pub(super) fn is_stuck(reason: &str) -> bool {
    IMAGE.contains(&reason) || FAILING.contains(&reason)
}

/// The pods of a load balancer that are to stay, by name.
pub(super) fn of(pods: &Store<Pod>, objects: &Objects) -> Vec<Arc<Pod>> {
    let mut own = every(pods, objects);
    own.retain(|pod| pod.metadata.deletion_timestamp.is_none());
    own
}

/// The pods of a load balancer, by name.
pub(super) fn every(pods: &Store<Pod>, objects: &Objects) -> Vec<Arc<Pod>> {
    let (namespace, name) = (objects.service.namespace(), objects.service.name_any());
    let mut own = pods.state();
    own.retain(|pod| {
        pod.namespace() == namespace
            && pod.labels().get(labels::INSTANCE) == Some(&name)
            && !pod.labels().contains_key(labels::TEMPLATE_CHECK)
    });
    own.sort_by_key(|pod| pod.name_any());
    own
}

/// Whether it serves.
pub(super) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == READY && condition.status == "True")
}

/// Why the pods do not work, in the kubelet's words. An image that cannot be had says more than what comes of it.
pub(super) fn trouble(pods: &[impl AsRef<Pod>]) -> Option<Lack> {
    let found = |reasons: &[&str], reason: Reason| {
        pods.iter().map(AsRef::as_ref).find_map(|pod| {
            let why = containers(pod).find_map(|container| waits(container, reasons))?;
            Some(Lack::new(reason, format!("pod {}: {why}", pod.name_any())))
        })
    };
    found(&IMAGE, IMAGE_PULL).or_else(|| found(&FAILING, PODS_FAIL))
}

fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    pod.status.iter().flat_map(|status| {
        let first = status.init_container_statuses.iter().flatten();
        first.chain(status.container_statuses.iter().flatten())
    })
}

/// What is said of a container that waits for one of these reasons.
fn waits(container: &ContainerStatus, reasons: &[&str]) -> Option<String> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting
        .reason
        .as_deref()
        .filter(|reason| reasons.contains(reason))?;
    let words = waiting.message.as_deref().unwrap_or_default();
    let last = container
        .last_state
        .as_ref()
        .and_then(|last| last.terminated.as_ref())
        .and_then(|last| last.message.as_deref())
        .unwrap_or_default();
    let words: Vec<&str> = [reason, words, last.trim()]
        .into_iter()
        .filter(|words| !words.is_empty())
        .collect();
    Some(format!("image {}: {}", container.image, words.join(": ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(status: &serde_json::Value) -> Arc<Pod> {
        let pod = serde_json::json!({"metadata": {"name": "lb-1"}, "status": status});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn waiting(reason: &str, message: &str) -> Arc<Pod> {
        pod(&serde_json::json!({"containerStatuses": [{
            "name": "loadbalancer", "image": "haproxy:0", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": reason, "message": message}},
            "lastState": {"terminated": {"exitCode": 1, "message": "[ALERT] no such file\n"}},
        }]}))
    }

    #[test]
    fn what_is_wrong_with_pods_is_told_in_the_words_of_the_kubelet() {
        let starting = waiting("ContainerCreating", "");
        assert_eq!(trouble(&[starting]), None);
        let pull = trouble(&[
            waiting("CrashLoopBackOff", "back-off"),
            waiting("ImagePullBackOff", "no such manifest"),
        ]);
        let pull = pull.unwrap();
        assert_eq!(pull.reason, IMAGE_PULL);
        assert!(
            pull.message
                .starts_with("pod lb-1: image haproxy:0: ImagePullBackOff: no such manifest"),
            "{pull:?}"
        );
        let fails = trouble(&[waiting("CrashLoopBackOff", "back-off")]).unwrap();
        assert_eq!(fails.reason, PODS_FAIL);
        assert!(
            fails.message.ends_with("back-off: [ALERT] no such file"),
            "{fails:?}"
        );
    }

    #[test]
    fn pods_are_ready_by_their_condition() {
        for (conditions, expected) in [
            (serde_json::json!([]), false),
            (serde_json::json!([{"type": "Ready", "status": "False"}]), false),
            (serde_json::json!([{"type": "Ready", "status": "True"}]), true),
        ] {
            assert_eq!(
                is_ready(&pod(&serde_json::json!({"conditions": conditions}))),
                expected
            );
        }
    }
}
