//! The pods of instances: to which cluster and instance each belongs, and which parts of them are kept in memory.

use std::{mem, sync::Arc};

use api::{
    SIPCluster,
    annotations::{CONFIG_HASH, NETWORK_STATUS},
    labels,
};
use k8s_openapi::api::core::v1::{Container, ContainerPort, Pod, PodSpec};
use kube::{ResourceExt as _, runtime::reflector::ObjectRef};

use super::{by_namespace::TenantStore, identity::Identity, kept_metadata, objects::Objects};

/// The condition of a pod that serves.
const READY_CONDITION: &str = "Ready";

/// Labels that identify a pod of any service.
const IDENTIFYING_LABELS: [&str; 3] = [labels::CLUSTER_NAME, labels::INSTANCE, labels::NAME];

/// The cluster that a pod serves.
#[must_use]
pub fn cluster(pod: &Pod) -> Option<ObjectRef<SIPCluster>> {
    let cluster = pod.labels().get(labels::CLUSTER_NAME)?;
    Some(ObjectRef::new(cluster).within(&pod.namespace()?))
}

/// Removes what no agent reads of a pod, since there are many pods, and tenants may create more. Keeps the labels that every service needs, and
/// the labels and ports that the service of this identity reads.
pub(super) fn trim(pod: &mut Pod, identity: &Identity) {
    kept_metadata::trim(&mut pod.metadata, &[CONFIG_HASH, NETWORK_STATUS]);
    pod.labels_mut()
        .retain(|label, _| IDENTIFYING_LABELS.contains(&&**label) || identity.pod_labels.contains(&&**label));
    let conditions = pod
        .status
        .iter_mut()
        .filter_map(|status| status.conditions.as_mut());
    for conditions in conditions {
        conditions.retain(|condition| condition.type_ == READY_CONDITION);
    }
    let Some(spec) = &mut pod.spec else {
        return;
    };
    let mut names = identity.pod_ports.to_vec();
    let containers = keep_ports(mem::take(&mut spec.containers), &mut names);
    let init_containers = spec.init_containers.take();
    *spec = PodSpec {
        node_name: spec.node_name.take(),
        containers,
        init_containers: init_containers.map(|containers| keep_ports(containers, &mut names)),
        ..PodSpec::default()
    };
}

/// Keeps the first port of each of these names, and the containers that have one. Takes the names that it has found.
fn keep_ports(containers: Vec<Container>, names: &mut Vec<&str>) -> Vec<Container> {
    let mut kept = Vec::new();
    for Container { name, ports, .. } in containers {
        let ports = ports.into_iter().flatten().filter(|port| {
            let place = names.iter().position(|name| port.name.as_deref() == Some(*name));
            place.map(|place| names.swap_remove(place)).is_some()
        });
        let ports: Vec<ContainerPort> = ports.collect();
        if !ports.is_empty() {
            kept.push(Container {
                name,
                ports: Some(ports),
                ..Container::default()
            });
        }
    }
    kept
}

/// The pods of an instance, by name: those that its Deployment selects, whoever created them. Services send traffic to all of them.
#[must_use]
pub fn selected<State>(pods: &TenantStore<Pod>, objects: &Objects<State>) -> Vec<Arc<Pod>> {
    let namespace = objects.namespace();
    // The watch keeps no other labels in memory.
    let selector = objects.pod_labels().iter();
    let selector: Vec<_> = selector
        .filter(|(label, _)| IDENTIFYING_LABELS.contains(&label.as_str()))
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
#[must_use]
pub fn is_of_deployment(pod: &Pod, deployment: &str) -> bool {
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
        .any(|condition| condition.type_ == READY_CONDITION && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
    use kube::runtime::{reflector::store, watcher::Event};
    use serde_json::{Value, json};

    use super::{
        super::{identity::BALANCERS, watches::trim_deployment},
        *,
    };

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
            trim(&mut pod, BALANCERS);
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
        let identity = Identity {
            pod_labels: &["own"],
            ..*BALANCERS
        };
        trim(&mut pod, &identity);
        assert_eq!(
            pod.labels().keys().collect::<Vec<_>>(),
            ["app.kubernetes.io/instance", "own"]
        );
    }

    #[test]
    fn large_pods_and_deployments_take_no_memory() {
        let large = "x".repeat(200_000);
        let annotations = json!({CONFIG_HASH: "00ff", NETWORK_STATUS: large, "a": large});
        let ports: Vec<Value> = (1..2_000)
            .map(|port| json!({"name": format!("p{port}"), "containerPort": port}))
            .chain([json!({"name": "report", "containerPort": 8405})])
            .collect();
        let containers =
            json!([{"name": "first"}, {"name": "a", "ports": ports}, {"name": "b", "ports": ports}]);
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "lb-1", "annotations": annotations, "finalizers": [large]},
            "spec": {"nodeName": "n", "containers": containers, "initContainers": containers},
        }))
        .unwrap();
        let identity = Identity {
            pod_ports: &["report", "other"],
            ..*BALANCERS
        };
        trim(&mut pod, &identity);
        let kept = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "lb-1", "annotations": {CONFIG_HASH: "00ff"}, "labels": {}},
            "spec": {
                "nodeName": "n", "initContainers": [],
                "containers": [{"name": "a", "ports": [{"name": "report", "containerPort": 8405}]}],
            },
        });
        assert_eq!(serde_json::to_value(&pod).unwrap(), kept);

        let (_, mut deployment) = rendered(&json!({}));
        deployment.metadata.annotations = serde_json::from_value(annotations).unwrap();
        trim_deployment(&mut deployment);
        assert!(deployment.annotations().is_empty());
    }
}
