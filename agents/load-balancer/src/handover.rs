//! How clients are handed over from the pods that the Airship SIP operator made to those of the agent. A pod of that operator has no `preStop`: it
//! refuses connections as soon as it is deleted, while nodes still route to it. So the Service stops to select these pods while they still serve.
//! Pure.

use std::sync::Arc;

use api::{conditions::ready::PROGRESSING, labels};
use k8s_openapi::api::core::v1::Pod;
use kit::{
    load_balancers::is_finished,
    service::{
        Problem,
        pods::{is_of_deployment, is_ready},
    },
};
use kube::ResourceExt as _;
use render::load_balancer::Objects;

/// For how many seconds a pod of the agent must be ready before the Deployment deletes a pod of the Airship SIP operator for it. Within this time
/// the agent changes the Service, and the nodes observe that.
const MIN_READY_SECONDS: i32 = 10;

/// Which pods of a load balancer serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handover {
    /// No pod of the Airship SIP operator exists, but for those that get no clients any more.
    Complete,
    /// A pod of that operator exists, and none of the agent is ready.
    Pending,
    /// A pod of that operator exists, and one of the agent is ready.
    Ready,
}

impl Handover {
    /// Decides by the pods of a namespace, the name of the load balancer, and how many pods are ready by the status of its Deployment. The controllers
    /// that write this status and the endpoints of Services observe pods by one watch, so a Service that selects only pods that the status counts has
    /// endpoints. A pod of the Airship SIP operator that is being deleted counts until it is no longer ready, since the Service would select it again.
    pub(crate) fn new(pods: &[Arc<Pod>], name: &str, ready_replicas: i32) -> Self {
        let own = pods.iter().filter(|pod| {
            let instance = pod.labels().get(labels::INSTANCE);
            instance.is_some_and(|instance| instance == name)
                && is_of_deployment(pod, name)
                && !is_finished(pod)
        });
        let (ours, of_sip): (Vec<_>, Vec<_>) =
            own.partition(|pod| pod.labels().contains_key(labels::CLUSTER_NAME));
        // On a node that is lost, a pod that is being deleted exists until the node is deleted.
        let of_sip: Vec<_> = of_sip
            .into_iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none() || is_ready(pod))
            .collect();
        let of_sip_serve = of_sip.iter().filter(|pod| serves(pod)).count();
        let is_counted = usize::try_from(ready_replicas).is_ok_and(|ready| ready > of_sip_serve);
        if of_sip.is_empty() {
            Self::Complete
        } else if is_counted && ours.iter().any(|pod| serves(pod)) {
            Self::Ready
        } else {
            Self::Pending
        }
    }

    /// What the condition states for this time. Afterwards the Deployment changes once more, and its controller has not observed that change at
    /// first: a condition that was True in between would be False for a moment.
    pub(crate) fn problem(self) -> Option<Problem> {
        let message = "pods of Airship SIP have not ended yet";
        (self != Self::Complete).then(|| Problem::new(PROGRESSING, message))
    }

    /// Changes rendered objects for the time of the handover. The selector of the Deployment cannot change; that of the Service can.
    pub(crate) fn adjust(self, objects: &mut Objects) {
        if self == Self::Complete {
            return;
        }
        objects.deployment.spec.min_ready_seconds = Some(MIN_READY_SECONDS);
        if self == Self::Pending {
            return;
        }
        let on_pods = objects.deployment.spec.template.metadata.as_ref();
        let on_pods = on_pods.and_then(|metadata| metadata.labels.as_ref());
        let cluster = on_pods.and_then(|labels| labels.get(labels::CLUSTER_NAME));
        let service = objects.service.spec.as_mut();
        let selector = service.and_then(|spec| spec.selector.as_mut());
        if let (Some(cluster), Some(selector)) = (cluster, selector) {
            selector.insert(labels::CLUSTER_NAME.to_owned(), cluster.clone());
        }
    }
}

fn serves(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && is_ready(pod)
}

#[cfg(test)]
mod tests {
    use api::{Cluster, SIPCluster};
    use serde_json::{Value, json};

    use super::*;
    use crate::balancers::Balancer;

    const NAME: &str = "loadbalancer-controlplane-shop";

    fn pod(changes: &[(&str, Value)]) -> Arc<Pod> {
        let mut pod = json!({
            "metadata": {
                "name": format!("{NAME}-5d4f-x"), "labels": {(labels::INSTANCE): NAME},
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{NAME}-5d4f"), "uid": "u", "controller": true,
                }],
            },
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        for (pointer, value) in changes {
            *pod.pointer_mut(pointer).unwrap() = value.clone();
        }
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn ours(changes: &[(&str, Value)]) -> Arc<Pod> {
        let labels = json!({(labels::INSTANCE): NAME, (labels::CLUSTER_NAME): "shop"});
        let labels = [("/metadata/labels", labels)];
        pod(&[&labels[..], changes].concat())
    }

    #[test]
    fn clients_are_handed_over_once_a_pod_of_ours_is_ready() {
        let sips = || pod(&[]);
        let not_ready = || ("/status/conditions/0/status", json!("False"));
        let deleted = |labels: Value| {
            let metadata = json!({
                "name": "p", "labels": labels, "deletionTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": pod(&[]).metadata.owner_references,
            });
            ("/metadata", metadata)
        };
        let ends = |labels: Value| pod(&[deleted(labels)]);
        let of_sip = || json!({(labels::INSTANCE): NAME});
        let on_ours = json!({(labels::INSTANCE): NAME, (labels::CLUSTER_NAME): "shop"});
        let other = json!({(labels::INSTANCE): "loadbalancer-worker-shop"});
        for (what, pods, ready, expected) in [
            ("no pod", vec![], 0, Handover::Complete),
            ("ours", vec![ours(&[])], 1, Handover::Complete),
            ("SIP's", vec![sips()], 1, Handover::Pending),
            (
                "ours starts",
                vec![sips(), ours(&[not_ready()])],
                1,
                Handover::Pending,
            ),
            ("ours ends", vec![sips(), ends(on_ours)], 1, Handover::Pending),
            (
                "ours is not counted",
                vec![sips(), ours(&[])],
                1,
                Handover::Pending,
            ),
            ("both serve", vec![sips(), ours(&[])], 2, Handover::Ready),
            ("SIP's ends", vec![ends(of_sip()), ours(&[])], 1, Handover::Ready),
            (
                "SIP's is deleted on a lost node",
                vec![pod(&[deleted(of_sip()), not_ready()]), ours(&[])],
                1,
                Handover::Complete,
            ),
            (
                "SIP's starts again",
                vec![pod(&[not_ready()]), ours(&[])],
                1,
                Handover::Ready,
            ),
            (
                "SIP's has ended",
                vec![pod(&[("/status/phase", json!("Failed"))]), ours(&[])],
                1,
                Handover::Complete,
            ),
            (
                "of another load balancer",
                vec![pod(&[("/metadata/labels", other)]), ours(&[])],
                1,
                Handover::Complete,
            ),
            (
                "of a tenant, with SIP's labels",
                vec![pod(&[("/metadata/ownerReferences", json!([]))]), ours(&[])],
                1,
                Handover::Complete,
            ),
        ] {
            let handover = Handover::new(&pods, NAME, ready);
            assert_eq!(handover, expected, "{what}");
            assert_eq!(
                handover.problem().is_none(),
                expected == Handover::Complete,
                "{what}"
            );
        }
    }

    #[test]
    fn the_service_leaves_sips_pods_before_they_are_deleted() {
        let object = json!({
            "metadata": {"namespace": "tenant", "name": "shop", "uid": "u"},
            "spec": {"nodes": {}, "services": {"loadBalancerControlPlane": [
                {"image": "haproxy:2.8", "nodeInterfaceId": "oam"},
            ]}},
        });
        let object: SIPCluster = serde_json::from_value(object).unwrap();
        let cluster = Cluster::parse(&object).unwrap();
        let balancer = Balancer::all(&cluster).remove(0);
        let plain = balancer.plan(&cluster, None).objects(&[]);
        let adjusted = |handover: Handover| {
            let mut objects = plain.clone();
            handover.adjust(&mut objects);
            objects
        };
        assert_eq!(adjusted(Handover::Complete), plain);
        for (handover, cluster_name) in [(Handover::Pending, None), (Handover::Ready, Some("shop"))] {
            let objects = adjusted(handover);
            assert_eq!(
                objects.deployment.spec.min_ready_seconds,
                Some(10),
                "{handover:?}"
            );
            assert_eq!(objects.deployment.spec.selector, plain.deployment.spec.selector);
            assert_eq!(objects.deployment.spec.template, plain.deployment.spec.template);
            let mut selector = objects.service.spec.unwrap().selector.unwrap();
            let found = selector.remove(labels::CLUSTER_NAME);
            assert_eq!(found.as_deref(), cluster_name, "{handover:?}");
            assert_eq!(Some(selector), plain.service.spec.clone().unwrap().selector);
        }
    }
}
