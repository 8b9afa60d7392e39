//! Whether one pod routes to hosts that leave, by its object in the API server. Pure.

use std::collections::BTreeMap;

use api::{annotations, labels};
use k8s_openapi::api::core::v1::{ContainerState, Pod};
use kit::{load_balancers::is_finished, pod_http, service::readiness};
use kube::ResourceExt as _;
use render::load_balancer::REPORT_PORT_NAME;

use crate::texts;

/// What the pods of load balancers are to run.
pub(crate) struct Desired<'a> {
    /// By name of the load balancer.
    pub(crate) configurations: BTreeMap<&'a str, &'a str>,
    /// Whether they have a sidecar.
    pub(crate) have_sidecars: bool,
}

/// Whether a pod routes to hosts that leave, as far as is known without asking it.
#[derive(Debug, PartialEq)]
pub(crate) enum Routing<'a> {
    /// It routes to no host that leaves.
    No,
    /// It may; for messages.
    Possible(String),
    /// The pod's sidecar reports whether HAProxy runs the configuration of this digest.
    QueryRunning(&'a str),
    /// HAProxy does not run in the pod. The sidecar reports whether HAProxy will start with the configuration of this digest: after HAProxy has
    /// refused a configuration, the one before is in its place.
    QueryStart(&'a str),
}

/// Whether a pod routes to hosts that leave.
pub(crate) fn routing<'a>(pod: &Pod, desired: &Desired<'a>) -> Routing<'a> {
    // The pod of a template check has no Service, and routes nothing.
    let checks = pod.labels().contains_key(labels::TEMPLATE_CHECK);
    if checks || is_finished(pod) {
        return Routing::No;
    }
    let name = pod.name_any();
    if pod.spec.as_ref().is_none_or(|spec| spec.node_name.is_none()) {
        // The pod has read no configuration yet, and will read one on the API server; a pod of the Airship SIP operator reads its own.
        let is_ours = pod.labels().contains_key(labels::CLUSTER_NAME);
        return if is_ours {
            Routing::No
        } else {
            Routing::Possible(format!(
                "pod {name} belongs to a Deployment of the Airship SIP operator, and may route to hosts that are being released"
            ))
        };
    }
    let instance = pod.labels().get(labels::INSTANCE).map_or("", String::as_str);
    let Some(configuration) = desired.configurations.get(instance) else {
        return Routing::Possible(format!(
            "pod {name} of {instance} still runs: the spec no longer has an entry for {instance}, or the agent cannot apply its change (another message of this condition has the cause)"
        ));
    };
    if pod_http::port(pod, REPORT_PORT_NAME).is_some() {
        if !desired.have_sidecars {
            // Without sidecars a text names no placement: the same text may have been replaced and restored, and the sidecar may still read the
            // one in between.
            return Routing::Possible(format!(
                "pod {name} still has a sidecar, which the site no longer has"
            ));
        }
        let digest = texts::digest(configuration);
        return if is_down(pod) {
            Routing::QueryStart(digest)
        } else {
            Routing::QueryRunning(digest)
        };
    }
    // Without a sidecar the pod runs the configuration for which it was made, at the latest when it starts. If load balancers are rendered with a
    // sidecar, nothing distinguishes it from a pod that has started with another configuration since.
    let made_for = pod.annotations().get(annotations::CONFIG_HASH);
    if !desired.have_sidecars && made_for.is_some_and(|made_for| made_for == configuration) {
        return Routing::No;
    }
    Routing::Possible(format!("pod {name} runs an earlier configuration"))
}

/// Whether the kubelet reports that no container runs, and why. A container that is about to start counts as running.
fn is_down(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_deref());
    let down = |state: &ContainerState| match state {
        ContainerState {
            running: None,
            waiting: Some(waiting),
            terminated: _,
        } => waiting.reason.as_deref().is_some_and(readiness::is_stuck),
        ContainerState {
            running: None,
            waiting: None,
            terminated,
        } => terminated.is_some(),
        ContainerState {
            running: Some(_),
            waiting: _,
            terminated: _,
        } => false,
    };
    containers.is_some_and(|containers| {
        !containers.is_empty()
            && containers
                .iter()
                .all(|container| container.state.as_ref().is_some_and(down))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const DIGEST: &str = "00ff";

    /// A pod of the load balancer `lb` on a node, with a sidecar, whose HAProxy is in this state.
    fn pod(state: &Value) -> Value {
        json!({
            "metadata": {"name": "lb-1", "labels": {(labels::INSTANCE): "lb", (labels::CLUSTER_NAME): "shop"}},
            "spec": {
                "nodeName": "node",
                "initContainers": [{"name": "follow-config", "ports": [{"name": REPORT_PORT_NAME, "containerPort": 8405}]}],
                "containers": [{"name": "loadbalancer"}],
            },
            "status": {"phase": "Running", "containerStatuses": [{
                "name": "loadbalancer", "image": "haproxy:0", "imageID": "", "ready": false, "restartCount": 1, "state": state,
            }]},
        })
    }

    fn without_sidecar(mut pod: Value, made_for: &str) -> Value {
        pod["spec"]["initContainers"] = Value::Null;
        pod["metadata"]["annotations"] = json!({(annotations::CONFIG_HASH): made_for});
        pod
    }

    fn with(mut pod: Value, pointer: &str, value: Value) -> Value {
        *pod.pointer_mut(pointer).unwrap() = value;
        pod
    }

    #[test]
    fn only_pods_that_cannot_route_are_not_asked() {
        let up = json!({"running": {}});
        let crashed = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let other = with(
            pod(&up),
            "/metadata/labels",
            json!({(labels::INSTANCE): "dropped", (labels::CLUSTER_NAME): "shop"}),
        );
        let check = with(
            pod(&up),
            "/metadata/labels",
            json!({(labels::INSTANCE): "lb", (labels::TEMPLATE_CHECK): "true"}),
        );
        let of_sip = with(pod(&up), "/metadata/labels", json!({(labels::INSTANCE): "lb"}));
        let earlier = "pod lb-1 runs an earlier configuration";
        let dropped = "pod lb-1 of dropped still runs: the spec no longer has an entry for dropped, or the agent cannot apply its change (another message of this condition has the cause)";
        let some = |why: &str| Routing::Possible(why.to_owned());
        for (what, pod, expected) in [
            ("it runs", pod(&up), Routing::QueryRunning(DIGEST)),
            (
                "it is about to start",
                pod(&json!({"waiting": {"reason": "ContainerCreating"}})),
                Routing::QueryRunning(DIGEST),
            ),
            (
                "its state is not known",
                pod(&json!({})),
                Routing::QueryRunning(DIGEST),
            ),
            (
                "no container is known",
                with(pod(&up), "/status/containerStatuses", json!([])),
                Routing::QueryRunning(DIGEST),
            ),
            ("HAProxy has crashed", pod(&crashed), Routing::QueryStart(DIGEST)),
            (
                "HAProxy has ended",
                pod(&json!({"terminated": {"exitCode": 1}})),
                Routing::QueryStart(DIGEST),
            ),
            (
                "it is on no node",
                with(pod(&up), "/spec/nodeName", Value::Null),
                Routing::No,
            ),
            (
                "it has ended",
                with(pod(&up), "/status/phase", json!("Failed")),
                Routing::No,
            ),
            ("a template is checked", check, Routing::No),
            ("its entry is dropped", other.clone(), some(dropped)),
            (
                "dropped, and on no node: its configuration is asked",
                with(other, "/spec/nodeName", Value::Null),
                Routing::No,
            ),
            (
                "the Airship SIP operator made it, and it is on no node",
                with(of_sip, "/spec/nodeName", Value::Null),
                some(
                    "pod lb-1 belongs to a Deployment of the Airship SIP operator, and may route to hosts that are being released",
                ),
            ),
            ("made for this", without_sidecar(pod(&up), DIGEST), Routing::No),
            (
                "made for another",
                without_sidecar(pod(&up), "11ee"),
                some(earlier),
            ),
            (
                "made for another, and crashed",
                without_sidecar(pod(&crashed), "11ee"),
                some(earlier),
            ),
        ] {
            let have_sidecars = pod["spec"]["initContainers"].is_array();
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(routing(&pod, &desired(DIGEST, have_sidecars)), expected, "{what}");
        }
    }

    fn desired(configuration: &str, have_sidecars: bool) -> Desired<'_> {
        Desired {
            configurations: [("lb", configuration)].into(),
            have_sidecars,
        }
    }

    #[test]
    fn a_pod_is_believed_by_what_it_was_made_for() {
        let up = pod(&json!({"running": {}}));
        let again = "00ff.8";
        let earlier = || Routing::Possible("pod lb-1 runs an earlier configuration".to_owned());
        for (what, pod, configuration, have_sidecars, expected) in [
            (
                "the text is that of before again",
                without_sidecar(up.clone(), DIGEST),
                again,
                false,
                earlier(),
            ),
            (
                "it was made for the text that came back",
                without_sidecar(up.clone(), again),
                again,
                false,
                Routing::No,
            ),
            (
                "its sidecar knows the text",
                up.clone(),
                again,
                true,
                Routing::QueryRunning(DIGEST),
            ),
            (
                "its sidecar may read later what has come and gone",
                up.clone(),
                again,
                false,
                Routing::Possible("pod lb-1 still has a sidecar, which the site no longer has".to_owned()),
            ),
            (
                "it has no sidecar yet",
                without_sidecar(up, DIGEST),
                DIGEST,
                true,
                earlier(),
            ),
        ] {
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(
                routing(&pod, &desired(configuration, have_sidecars)),
                expected,
                "{what}"
            );
        }
    }
}
