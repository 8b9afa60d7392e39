//! The pods of instances: to which cluster and instance each belongs, and which parts of them are kept in memory.

use std::{mem, sync::Arc};

use api::{SIPCluster, labels};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use kube::{ResourceExt as _, runtime::reflector::ObjectRef};

use super::{by_namespace::TenantStore, objects::Objects};

/// The condition of a pod that serves.
const READY: &str = "Ready";

/// Labels that identify a pod of any service.
const LABELS: [&str; 3] = [labels::CLUSTER_NAME, labels::INSTANCE, labels::NAME];

/// The cluster that a pod serves.
#[must_use]
pub fn cluster(pod: &Pod) -> Option<ObjectRef<SIPCluster>> {
    let cluster = pod.labels().get(labels::CLUSTER_NAME)?;
    Some(ObjectRef::new(cluster).within(&pod.namespace()?))
}

/// Removes what no agent reads of a pod, since there are many pods. Keeps the labels that every service needs, and `more`.
pub(super) fn trim(pod: &mut Pod, more: &[&str]) {
    pod.labels_mut()
        .retain(|label, _| LABELS.contains(&&**label) || more.contains(&&**label));
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

/// The pods of an instance, by name: those that its Deployment selects, whoever created them. Services send traffic to all of them.
#[must_use]
pub fn selected<State>(pods: &TenantStore<Pod>, objects: &Objects<State>) -> Vec<Arc<Pod>> {
    let namespace = objects.namespace();
    // The watch keeps no other labels in memory.
    let selector = objects.pod_labels().iter();
    let selector: Vec<_> = selector
        .filter(|(label, _)| LABELS.contains(&label.as_str()))
        .collect();
    let mut own = pods.within(&namespace);
    own.retain(|pod| {
        !selector.is_empty()
            && selector
                .iter()
                .all(|(label, value)| pod.labels().get(*label) == Some(value))
    });
    own.sort_by_key(|pod| pod.name_any());
    own
}

/// The pods of an instance that its Deployment has created, by name. Anybody with the right to create pods in the namespace can set the same
/// labels: such pods are left out. One with a forged owner counts until a controller of Kubernetes deletes it.
#[must_use]
pub fn created<State>(pods: &TenantStore<Pod>, objects: &Objects<State>) -> Vec<Arc<Pod>> {
    let mut own = selected(pods, objects);
    own.retain(|pod| is_of_deployment(pod, &objects.name()));
    own
}

/// Whether the controller of a pod is a `ReplicaSet` of a Deployment: its name is that of the Deployment, a hyphen and a hash without hyphens.
fn is_of_deployment(pod: &Pod, deployment: &str) -> bool {
    let mut owners = pod.owner_references().iter();
    owners.any(|owner| {
        let prefix = owner.name.rsplit_once('-').map(|(prefix, _hash)| prefix);
        owner.controller == Some(true)
            && owner.api_version == "apps/v1"
            && owner.kind == "ReplicaSet"
            && prefix == Some(deployment)
    })
}

/// The pods of an instance that its Deployment has created and that are not being deleted, by name.
pub(super) fn lasting<State>(pods: &TenantStore<Pod>, objects: &Objects<State>) -> Vec<Arc<Pod>> {
    let mut own = created(pods, objects);
    own.retain(|pod| pod.metadata.deletion_timestamp.is_none());
    own
}

/// Whether a pod serves.
#[must_use]
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == READY && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
    use kube::runtime::{reflector::store, watcher::Event};
    use serde_json::{Value, json};

    use super::{super::watches::trim_deployment, *};

    fn rendered(selector: &Value) -> (Service, Deployment) {
        let metadata = json!({"namespace": "tenant", "name": "lb"});
        let service = json!({"metadata": metadata});
        let deployment = json!({"metadata": metadata, "spec": {"selector": selector, "template": {}}});
        (
            serde_json::from_value(service).unwrap(),
            serde_json::from_value(deployment).unwrap(),
        )
    }

    #[test]
    fn only_pods_of_the_deployment_count_as_created() {
        let (tenant, mut writer) = store::<Pod>();
        let read = TenantStore::default();
        read.set("tenant", tenant);
        let owner = |kind: &str, name: &str, controller: bool| {
            json!([{
                "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u", "controller": controller,
            }])
        };
        let labels = json!({ labels::INSTANCE: "lb", labels::NAME: "haproxy" });
        for (name, owners) in [
            ("lb-5d4f-a", owner("ReplicaSet", "lb-5d4f", true)),
            ("forged", json!([])),
            ("adopted", owner("ReplicaSet", "lb-5d4f", false)),
            ("daemon", owner("DaemonSet", "lb-5d4f", true)),
            ("other", owner("ReplicaSet", "lb-more-5d4f", true)),
        ] {
            let metadata =
                json!({"namespace": "tenant", "name": name, "labels": labels, "ownerReferences": owners});
            let mut pod: Pod = serde_json::from_value(json!({"metadata": metadata})).unwrap();
            trim(&mut pod, &[]);
            writer.apply_watcher_event(&Event::Apply(pod));
        }
        let (service, deployment) = rendered(&json!({"matchLabels": labels}));
        let objects = Objects::new(service, deployment, String::new());
        assert_eq!(selected(&read, &objects).len(), 5);
        for found in [created(&read, &objects), lasting(&read, &objects)] {
            let names: Vec<_> = found.iter().map(|pod| pod.name_any()).collect();
            assert_eq!(names, ["lb-5d4f-a"]);
        }
    }

    #[test]
    fn pods_of_other_instances_are_not_selected() {
        let (tenant, elsewhere) = (store::<Pod>(), store::<Pod>());
        let read = TenantStore::default();
        read.set("tenant", tenant.0);
        read.set("elsewhere", elsewhere.0);
        let mut writers = [tenant.1, elsewhere.1];
        for (writer, name, instance, software) in [
            (0, "lb-1", "lb", "haproxy"),
            (0, "check-1", "lb", "haproxy-check"),
            (0, "other-1", "other", "haproxy"),
            (1, "lb-2", "lb", "haproxy"),
        ] {
            let labels = json!({ labels::INSTANCE: instance, labels::NAME: software });
            let pod = json!({"metadata": {"namespace": "any", "name": name, "labels": labels}});
            writers[writer].apply_watcher_event(&Event::Apply(serde_json::from_value(pod).unwrap()));
        }

        let selector =
            json!({"matchLabels": {labels::INSTANCE: "lb", labels::NAME: "haproxy", labels::PART_OF: "sip"}});
        let (service, rendered) = rendered(&selector);
        let mut watched = rendered.clone();
        trim_deployment(&mut watched);
        for deployment in [rendered.clone(), watched] {
            let objects = Objects::new(service.clone(), rendered.clone(), String::new());
            let exposed = objects.exposed(service.clone(), Instant::now(), None);
            let names: Vec<_> = selected(&read, &exposed.applied(deployment))
                .iter()
                .map(|pod| pod.name_any())
                .collect();
            assert_eq!(names, ["lb-1"]);
        }
    }

    #[test]
    fn pods_are_ready_by_their_condition() {
        for (conditions, expected) in [
            (json!([]), false),
            (json!([{"type": "Ready", "status": "False"}]), false),
            (json!([{"type": "Ready", "status": "True"}]), true),
        ] {
            let pod = json!({"metadata": {"name": "lb-1"}, "status": {"conditions": conditions}});
            assert_eq!(is_ready(&serde_json::from_value(pod).unwrap()), expected);
        }
    }

    #[test]
    fn only_labels_that_are_needed_are_kept() {
        let labels = json!({
            "app.kubernetes.io/instance": "lb", "app.kubernetes.io/part-of": "sip", "own": "x",
        });
        let mut pod: Pod = serde_json::from_value(json!({"metadata": {"labels": labels}})).unwrap();
        trim(&mut pod, &["own"]);
        assert_eq!(
            pod.labels().keys().collect::<Vec<_>>(),
            ["app.kubernetes.io/instance", "own"]
        );
    }
}
