//! Which objects of load balancers belong to a cluster, by their labels and owners. The status is not needed to find them.

use api::labels;
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::Pod,
};
use kube::ResourceExt;

/// Names of the objects that the Airship SIP operator made begin with these; the name of the cluster follows.
pub const SIP_PREFIXES: [&str; 2] = ["loadbalancer-controlplane-", "loadbalancer-worker-"];

/// Selects the objects of every load balancer, whatever created them.
#[must_use]
pub fn selector() -> String {
    format!(
        "{}={},{}={}",
        labels::PART_OF,
        labels::PART_OF_SIP,
        labels::COMPONENT,
        labels::COMPONENT_LOAD_BALANCER
    )
}

/// Whether an object in the namespace of a cluster belongs to one of its load balancers. Objects of the Airship SIP operator have neither a label
/// with the cluster's name nor an owner, so their names decide.
#[must_use]
pub fn belongs_to(object: &impl ResourceExt, cluster: &str) -> bool {
    if let Some(named) = object.labels().get(labels::CLUSTER_NAME) {
        return named == cluster;
    }
    let owner = object.owner_references().iter();
    let mut owner = owner.filter(|owner| owner.kind == "SIPCluster");
    if let Some(owner) = owner.next() {
        return owner.name == cluster;
    }
    let instance = object.labels().get(labels::INSTANCE);
    instance.is_some_and(|instance| is_of_sip(instance, cluster))
}

/// Whether the Airship SIP operator gave this name to the objects of a cluster's load balancer.
#[must_use]
pub fn is_of_sip(name: &str, cluster: &str) -> bool {
    SIP_PREFIXES
        .iter()
        .any(|prefix| name.strip_prefix(prefix) == Some(cluster))
}

/// Whether the pods of a Deployment are load balancers of the cluster that the Airship SIP operator made, and that is not adopted yet. It may have no
/// labels itself, so it is found by its name.
#[must_use]
pub fn starts_pods_of_sip(deployment: &Deployment, cluster: &str) -> bool {
    let pods = deployment.spec.template.metadata.as_ref();
    let on_pods = pods.and_then(|metadata| metadata.labels.as_ref());
    on_pods.is_some_and(|on_pods| {
        let instance = on_pods.get(labels::INSTANCE);
        let is_ours = on_pods.contains_key(labels::CLUSTER_NAME);
        !is_ours && instance.is_some_and(|instance| is_of_sip(instance, cluster))
    })
}

/// Whether a `ReplicaSet` may start a pod. It may have none for the moment, such as while a quota is used up.
#[must_use]
pub fn starts_pods(set: &ReplicaSet) -> bool {
    set.spec.replicas != Some(0)
}

/// Whether no container of a pod runs, or will run again.
#[must_use]
pub fn is_finished(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(metadata: &Value, status: &Value) -> Pod {
        serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
    }

    #[test]
    fn objects_belong_by_label_then_owner_then_sips_name() {
        let owner = |name: &str| json!([{"apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster", "name": name, "uid": "u"}]);
        let instance = |name: &str| json!({"app.kubernetes.io/instance": name});
        for (metadata, expected) in [
            (
                json!({"labels": {"sip.airshipit.org/cluster-name": "shop"}}),
                true,
            ),
            (
                json!({"labels": {
                    "sip.airshipit.org/cluster-name": "shop-1", "app.kubernetes.io/instance": "loadbalancer-worker-shop",
                }}),
                false,
            ),
            (json!({"ownerReferences": owner("shop")}), true),
            (
                json!({"ownerReferences": owner("other"), "labels": instance("loadbalancer-worker-shop")}),
                false,
            ),
            (json!({"labels": instance("loadbalancer-worker-shop")}), true),
            (
                json!({"labels": instance("loadbalancer-controlplane-shop")}),
                true,
            ),
            (json!({"labels": instance("loadbalancer-worker-shop-1")}), false),
            (json!({}), false),
        ] {
            assert_eq!(
                belongs_to(&pod(&metadata, &Value::Null), "shop"),
                expected,
                "{metadata}"
            );
        }
    }

    #[test]
    fn only_deployments_with_sips_pods_are_sips() {
        let instance = "loadbalancer-worker-shop";
        for (what, on_pods, expected) in [
            ("SIP's", json!({(labels::INSTANCE): instance}), true),
            (
                "taken over",
                json!({(labels::INSTANCE): instance, (labels::CLUSTER_NAME): "shop"}),
                false,
            ),
            ("of others", json!({"app": "theirs"}), false),
            ("of others without labels", Value::Null, false),
        ] {
            let deployment = json!({"spec": {
                "selector": {}, "template": {"metadata": {"labels": on_pods}},
            }});
            let deployment = serde_json::from_value(deployment).unwrap();
            assert_eq!(starts_pods_of_sip(&deployment, "shop"), expected, "{what}");
        }
    }

    #[test]
    fn a_replica_set_without_replicas_starts_no_pod() {
        for (spec, expected) in [
            (json!({"replicas": 0, "selector": {}}), false),
            (json!({"replicas": 2, "selector": {}}), true),
            // The default is 1.
            (json!({"selector": {}}), true),
        ] {
            let set = serde_json::from_value(json!({ "spec": spec })).unwrap();
            assert_eq!(starts_pods(&set), expected, "{spec}");
        }
    }

    #[test]
    fn a_pod_is_finished_by_its_phase_alone() {
        for (phase, expected) in [
            ("Pending", false),
            ("Running", false),
            ("Unknown", false),
            ("Succeeded", true),
            ("Failed", true),
        ] {
            assert_eq!(
                is_finished(&pod(&json!({}), &json!({"phase": phase}))),
                expected,
                "{phase}"
            );
        }
        assert!(!is_finished(&Pod::default()), "its status is not known");
    }
}
