//! What happens to the pods of a Node that is drained. Pure.

use kit::tenant::page::First;
use serde::Deserialize;

use super::node::is_name;

/// Owners of a pod that are read at most.
const MAX_OWNERS: usize = 64;

/// A pod as it is listed.
#[derive(Deserialize)]
pub(super) struct PodItem {
    metadata: Meta,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    name: String,
    namespace: String,
    uid: String,
    #[serde(default)]
    annotations: Annotations,
    #[serde(default)]
    owner_references: First<Owner, MAX_OWNERS>,
    #[serde(default)]
    deletion_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
struct Annotations {
    /// On the mirror pod of a kubelet's static pod: it cannot be evicted.
    #[serde(default, rename = "kubernetes.io/config.mirror")]
    mirror: Option<String>,
}

#[derive(Deserialize)]
struct Owner {
    kind: String,
    #[serde(default)]
    controller: Option<bool>,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    phase: Option<String>,
}

/// A pod that is to be evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

/// What happens to a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is evicted, as `PodDisruptionBudget`s allow.
    Evict(Pod),
    /// It is ending: the drain waits for it.
    Ends,
    /// It stays: it has ended, is a `DaemonSet`'s, or is of the kubelet itself.
    Stays,
}

/// Decides what happens to a pod of a Node. `is_ready`: whether the Node is ready; the kubelet of another one may never report that a pod has
/// ended.
pub(super) fn fate(pod: PodItem, is_ready: bool) -> Fate {
    let PodItem {
        metadata:
            Meta {
                name,
                namespace,
                uid,
                annotations: Annotations { mirror },
                owner_references: First(owners),
                deletion_timestamp,
            },
        status: Status { phase },
    } = pod;
    let is_of_daemon_set = owners
        .iter()
        .any(|owner| owner.kind == "DaemonSet" && owner.controller == Some(true));
    let has_ended = matches!(phase.as_deref(), Some("Succeeded" | "Failed"));
    let has_names = [&name, &namespace, &uid].into_iter().all(|text| is_name(text));
    if mirror.is_some() || is_of_daemon_set || has_ended || !has_names {
        Fate::Stays
    } else if deletion_timestamp.is_none() {
        Fate::Evict(Pod { namespace, name, uid })
    } else if is_ready {
        Fate::Ends
    } else {
        Fate::Stays
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn pods_are_evicted_awaited_or_left() {
        let evict = Fate::Evict(Pod {
            namespace: "default".to_owned(),
            name: "web-0".to_owned(),
            uid: "u".to_owned(),
        });
        let pod = |metadata: Value, phase: &str| {
            let mut pod = json!({
                "metadata": {"name": "web-0", "namespace": "default", "uid": "u"}, "status": {"phase": phase},
            });
            for (field, value) in metadata.as_object().unwrap() {
                pod["metadata"][field] = value.clone();
            }
            pod
        };
        let owned = |kind: &str, controller: bool| json!({"ownerReferences": [{"kind": kind, "controller": controller}]});
        let ending = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        for (what, pod, is_ready, expected) in [
            ("alone", pod(json!({}), "Running"), true, evict.clone()),
            ("not started", pod(json!({}), "Pending"), true, evict.clone()),
            (
                "of a ReplicaSet",
                pod(owned("ReplicaSet", true), "Running"),
                true,
                evict.clone(),
            ),
            (
                "beside a DaemonSet",
                pod(owned("DaemonSet", false), "Running"),
                true,
                evict.clone(),
            ),
            (
                "of a DaemonSet",
                pod(owned("DaemonSet", true), "Running"),
                true,
                Fate::Stays,
            ),
            (
                "a mirror",
                pod(
                    json!({"annotations": {"kubernetes.io/config.mirror": "x"}}),
                    "Running",
                ),
                true,
                Fate::Stays,
            ),
            ("completed", pod(json!({}), "Succeeded"), true, Fate::Stays),
            ("failed", pod(json!({}), "Failed"), true, Fate::Stays),
            ("ending", pod(ending.clone(), "Running"), true, Fate::Ends),
            (
                "on a Node that is not ready",
                pod(json!({}), "Running"),
                false,
                evict,
            ),
            (
                "ending on such a Node",
                pod(ending, "Running"),
                false,
                Fate::Stays,
            ),
            (
                "no name",
                pod(json!({"name": "a/../b"}), "Running"),
                true,
                Fate::Stays,
            ),
        ] {
            let pod: PodItem = serde_json::from_value(pod).unwrap();
            assert_eq!(fate(pod, is_ready), expected, "{what}");
        }
    }
}
