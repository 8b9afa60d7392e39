//! Whether any pod of a cluster's load balancers may still route to hosts that leave. Hosts are released on this evidence, so what is
//! not known counts as routing.
//!
//! Every pod that belongs to the cluster is asked, whichever load balancer it is of: of one that the spec asks for, of one
//! that it no longer names, and of one whose changes are refused.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::{Drained, MemberState, Placement, annotations, conditions::ready::PROGRESSING, labels};
use futures::{FutureExt as _, StreamExt as _, stream};
use k8s_openapi::{
    api::core::v1::{ContainerState, Pod},
    jiff::Timestamp,
};
use kit::{
    apply,
    load_balancers::{belongs_to, is_finished, selector},
    pod_http,
    service::{Drain, Observed, Problem, TenantStore, readiness, revision},
};
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use render::load_balancer::REPORT_PORT_NAME;

use crate::pod_config::{self, Follows};

/// The configuration that the pods of each load balancer are to run: its name, and the SHA-256 of the configuration.
type Desired<'a> = BTreeMap<&'a str, &'a str>;

/// Observes whether the hosts that leave may be released. The configurations of `desired` are on the API server, and every load
/// balancer that is not in it has been deleted or could not be changed.
pub(crate) async fn drain(
    client: &Client,
    seen: &TenantStore<Pod>,
    observed: &Observed<'_>,
    desired: &[(String, String)],
) -> Drain {
    let known = observed.drained();
    let Some((held, goal)) = observed
        .placement()
        .and_then(|held| Some((held, goal(held)?)))
        .filter(|(_, goal)| Some(*goal) != known)
    else {
        return Drain::unchanged(known);
    };
    let desired = desired
        .iter()
        .map(|(name, digest)| (name.as_str(), digest.as_str()))
        .collect();
    match blocker(client, seen, observed, &desired).await {
        None => Drain::unchanged(Some(goal)),
        Some(Blocker { why, forbidden }) => Drain {
            forbidden,
            ..waits(known, &why, waited(held, Timestamp::now()))
        },
    }
}

/// The hosts that leave wait; that is reported when it takes longer than usual.
fn waits(known: Option<Drained>, why: &str, waited: Duration) -> Drain {
    let slow = waited >= pod_config::SLOW;
    Drain {
        drained: known,
        problem: slow.then(|| Problem::new(PROGRESSING, format!("hosts are not released: {why}"))),
        requeue: Some(pod_config::pause(waited)),
        ..Drain::default()
    }
}

/// Why hosts that leave cannot be released yet.
struct Blocker {
    /// For people.
    why: String,
    /// The API server refuses to list pods.
    forbidden: bool,
}

async fn blocker(
    client: &Client,
    seen: &TenantStore<Pod>,
    observed: &Observed<'_>,
    desired: &Desired<'_>,
) -> Option<Blocker> {
    let routes = |why| Blocker {
        why,
        forbidden: false,
    };
    let (namespace, name) = (observed.namespace(), observed.object().name_any());
    // The watch shows cheaply that it is too early. Only a list that the API server makes now shows that it is time: the watch may
    // be behind, or have shown nothing yet.
    if let Some(why) = routing_pod(&seen.within(&namespace), &name, desired).await {
        return Some(routes(why));
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let listed = match pods.list(&ListParams::default().labels(&selector())).await {
        Ok(listed) => listed.items.into_iter().map(Arc::new).collect::<Vec<_>>(),
        Err(error) => {
            return Some(Blocker {
                why: format!("its pods cannot be listed: {}", apply::reason(&error)),
                forbidden: apply::code(&error) == Some(403),
            });
        }
    };
    routing_pod(&listed, &name, desired).await.map(routes)
}

/// The value of `status.drained` once no pod routes to the hosts that leave; `None` while none leaves.
fn goal(held: &Placement) -> Option<Drained> {
    let leaves = |member: &api::Member| member.state == MemberState::Releasing;
    let leave = held.former_release.is_some() || held.members.iter().any(leaves);
    leave.then(|| Drained {
        epoch: held.epoch,
        revision: revision(held),
    })
}

/// For how long the host, or the former address of one, that left last has been leaving.
fn waited(held: &Placement, now: Timestamp) -> Duration {
    let leaving = held
        .members
        .iter()
        .filter(|member| member.state == MemberState::Releasing);
    let former = held.former_since.iter();
    let since = leaving
        .filter_map(|member| member.since.as_ref())
        .chain(former)
        .max();
    since
        .and_then(|since| now.duration_since(since.0).try_into().ok())
        .unwrap_or_default()
}

/// The first of the cluster's pods that may route to hosts that leave, and why; for people.
async fn routing_pod(pods: &[Arc<Pod>], cluster: &str, desired: &Desired<'_>) -> Option<String> {
    let own = pods.iter().filter(|pod| belongs_to(&***pod, cluster));
    let mut asked = Vec::new();
    for pod in own {
        match routing(pod, desired) {
            Routing::None => {}
            Routing::Some(why) => return Some(why),
            Routing::Ask(digest) => asked.push(pod_config::follows_one(Arc::clone(pod), digest).boxed()),
            Routing::AskDown(digest) => asked.push(pod_config::starts_with(Arc::clone(pod), digest).boxed()),
        }
    }
    // Whoever may make pods decides how many have these labels; the first that does not confirm decides.
    let mut answers = stream::iter(asked).buffered(pod_config::AT_ONCE);
    while let Some(answer) = answers.next().await {
        if let Follows::Not { pod, failed } = answer {
            let failed = failed.map_or_else(String::new, |words| format!(": {words}"));
            return Some(format!(
                "pod {pod} has not confirmed that it runs the newest configuration{failed}"
            ));
        }
    }
    None
}

/// Whether a pod routes to hosts that leave, as far as is known without asking it.
#[derive(Debug, PartialEq)]
enum Routing<'a> {
    /// It routes to no host that leaves.
    None,
    /// It may; for people.
    Some(String),
    /// It reports itself whether it runs the configuration of this digest.
    Ask(&'a str),
    /// HAProxy does not run in it. It reports itself whether HAProxy will start with the configuration of this digest: after HAProxy
    /// has refused a configuration, the one before is in its place.
    AskDown(&'a str),
}

fn routing<'a>(pod: &Pod, desired: &Desired<'a>) -> Routing<'a> {
    // A check has no Service, and balances nothing.
    let checks = pod.labels().contains_key(labels::TEMPLATE_CHECK);
    // Before a pod is on a node it has read no configuration.
    let waits = pod.spec.as_ref().is_none_or(|spec| spec.node_name.is_none());
    if checks || waits || is_finished(pod) {
        return Routing::None;
    }
    let name = pod.name_any();
    let instance = pod.labels().get(labels::INSTANCE).map_or("", String::as_str);
    let Some(digest) = desired.get(instance) else {
        return Routing::Some(format!(
            "pod {name} still runs, and {instance} is no longer asked for or cannot be changed"
        ));
    };
    if pod_http::port(pod, REPORT_PORT_NAME).is_some() {
        return if is_down(pod) {
            Routing::AskDown(digest)
        } else {
            Routing::Ask(digest)
        };
    }
    // Without a sidecar it runs what it was made for, if not now, then when it starts.
    match pod.annotations().get(annotations::CONFIG_HASH) {
        Some(made_for) if made_for == digest => Routing::None,
        Some(_) | None => Routing::Some(format!("pod {name} runs an earlier configuration")),
    }
}

/// Whether the kubelet reports that no container runs, and why. One that is about to start may run by now.
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
            "metadata": {"name": "lb-1", "labels": {(labels::INSTANCE): "lb"}},
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
            json!({(labels::INSTANCE): "dropped"}),
        );
        let check = with(
            pod(&up),
            "/metadata/labels",
            json!({(labels::INSTANCE): "lb", (labels::TEMPLATE_CHECK): "true"}),
        );
        let earlier = "pod lb-1 runs an earlier configuration";
        let dropped = "pod lb-1 still runs, and dropped is no longer asked for or cannot be changed";
        let some = |why: &str| Routing::Some(why.to_owned());
        for (what, pod, expected) in [
            ("it runs", pod(&up), Routing::Ask(DIGEST)),
            (
                "it is about to start",
                pod(&json!({"waiting": {"reason": "ContainerCreating"}})),
                Routing::Ask(DIGEST),
            ),
            ("its state is not known", pod(&json!({})), Routing::Ask(DIGEST)),
            (
                "no container is known",
                with(pod(&up), "/status/containerStatuses", json!([])),
                Routing::Ask(DIGEST),
            ),
            ("HAProxy has crashed", pod(&crashed), Routing::AskDown(DIGEST)),
            (
                "HAProxy has ended",
                pod(&json!({"terminated": {"exitCode": 1}})),
                Routing::AskDown(DIGEST),
            ),
            (
                "it is on no node",
                with(pod(&up), "/spec/nodeName", Value::Null),
                Routing::None,
            ),
            (
                "it has ended",
                with(pod(&up), "/status/phase", json!("Failed")),
                Routing::None,
            ),
            ("a template is checked", check, Routing::None),
            ("its entry is dropped", other, some(dropped)),
            ("made for this", without_sidecar(pod(&up), DIGEST), Routing::None),
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
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(
                routing(&pod, &Desired::from([("lb", DIGEST)])),
                expected,
                "{what}"
            );
        }
    }

    #[test]
    fn a_release_that_members_do_not_show_is_drained() {
        let member = json!({
            "namespace": "metal", "name": "h1", "uid": "again", "role": "Worker", "state": "Bound", "revision": 5,
        });
        let held = |former: Value| {
            let held = json!({
                "epoch": 1, "revision": 9, "generation": 1, "members": [member], "formerRelease": former,
            });
            serde_json::from_value::<Placement>(held).unwrap()
        };
        assert_eq!(goal(&held(json!(null))), None);
        let drained = Drained {
            epoch: 1,
            revision: 7,
        };
        assert_eq!(goal(&held(json!(7))), Some(drained));
    }

    #[test]
    fn a_release_waits_since_the_newest_began() {
        let member = |state: &str| {
            json!({
                "namespace": "metal", "name": "h1", "uid": "h1", "role": "Worker", "state": state, "revision": 5,
                "since": "2026-01-01T00:00:10Z",
            })
        };
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        for (state, former, expected) in [
            ("Bound", None, 0),
            ("Releasing", None, 50),
            ("Bound", Some("2026-01-01T00:00:00Z"), 60),
            ("Releasing", Some("2026-01-01T00:00:00Z"), 50),
            ("Releasing", Some("2026-01-01T00:00:20Z"), 40),
        ] {
            let held = json!({
                "epoch": 1, "revision": 9, "generation": 1, "members": [member(state)],
                "formerRelease": former.map(|_| 7), "formerSince": former,
            });
            let held: Placement = serde_json::from_value(held).unwrap();
            assert_eq!(
                waited(&held, now),
                Duration::from_secs(expected),
                "{state} {former:?}"
            );
        }
    }

    #[test]
    fn hosts_that_wait_long_are_reported() {
        let known = Some(Drained {
            epoch: 1,
            revision: 2,
        });
        let soon = waits(known, "pod x still runs", Duration::from_secs(1));
        assert_eq!((soon.drained, soon.problem), (known, None));
        let long = waits(known, "pod x still runs", Duration::from_mins(1));
        assert_eq!(
            long.problem.unwrap().message,
            "hosts are not released: pod x still runs"
        );
        assert!(long.requeue > soon.requeue);
    }
}
