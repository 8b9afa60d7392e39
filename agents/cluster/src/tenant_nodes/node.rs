//! What the agent reads of a tenant's Nodes. The tenant chooses all of it: texts that are too long, or that are no names, are not read.

use std::net::IpAddr;

use serde::Deserialize;

use kit::tenant::page::First;

/// Bytes of the name of an object, at most.
const MAX_NAME_BYTES: usize = 253;
/// Bytes of a uid that is read, at most.
const MAX_UID_BYTES: usize = 64;
/// Bytes of a providerID that is read, at most: `metal3://` with three names.
const MAX_PROVIDER_ID_BYTES: usize = 9 + 3 * (MAX_NAME_BYTES + 1);
/// Addresses of a Node, and conditions of it, that are read, each at most.
const MAX_LIST_ITEMS: usize = 64;
/// Characters of a reason that is kept, at most.
const MAX_REASON_CHARACTERS: usize = 64;

/// Whether a Node is ready, by its condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    /// Its condition is `False`, or `Unknown` since its kubelet has not reported for a while; the reason in one word.
    NotReady(String),
    /// The Node has no condition `Ready`.
    Unknown,
}

/// A Node of a tenant's cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) provider_id: String,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) readiness: Readiness,
    /// Whether no pods are scheduled to it.
    pub(super) is_cordoned: bool,
    /// Whether this agent has cordoned it.
    pub(super) is_cordoned_by_us: bool,
    /// Whether Cluster API has a Machine for it.
    pub(super) is_of_cluster_api: bool,
}

/// A Node as it is listed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeItem {
    metadata: Meta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Meta {
    name: String,
    uid: String,
    #[serde(default)]
    annotations: Annotations,
}

#[derive(Default, Deserialize)]
struct Annotations {
    /// [`api::annotations::CORDONED_FOR`].
    #[serde(default, rename = "sip.airshipit.org/cordoned-for")]
    cordoned: Option<String>,
    /// On a Node that Cluster API's Machine controller knows: it drains and deletes that one itself.
    #[serde(default, rename = "cluster.x-k8s.io/machine")]
    machine: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default, rename = "providerID")]
    provider_id: Option<String>,
    #[serde(default)]
    unschedulable: Option<bool>,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    addresses: First<Address, MAX_LIST_ITEMS>,
    #[serde(default)]
    conditions: First<Condition, MAX_LIST_ITEMS>,
}

#[derive(Deserialize)]
struct Address {
    address: String,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    reason: Option<String>,
}

/// Whether a text can be the name of an object, and so be written into a path, a message and a status.
pub(super) fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':');
    let first = text.bytes().next();
    first.is_some_and(|byte| byte.is_ascii_alphanumeric())
        && text.len() <= MAX_NAME_BYTES
        && text.bytes().all(allowed)
}

impl NodeItem {
    /// The parsed Node; `None` for an object that no API server would store.
    pub(super) fn parse(self) -> Option<Node> {
        let Self {
            metadata:
                Meta {
                    name,
                    uid,
                    annotations: Annotations { cordoned, machine },
                },
            spec: Spec {
                provider_id,
                unschedulable,
            },
            status:
                Status {
                    addresses: First(addresses),
                    conditions: First(conditions),
                },
        } = self;
        if !is_name(&name) || !is_name(&uid) || uid.len() > MAX_UID_BYTES {
            return None;
        }
        let ready = conditions.into_iter().find(|condition| condition.kind == "Ready");
        Some(Node {
            name,
            uid,
            provider_id: provider_id
                .filter(|id| id.len() <= MAX_PROVIDER_ID_BYTES)
                .unwrap_or_default(),
            addresses: addresses
                .into_iter()
                .filter_map(|address| address.address.parse().ok())
                .collect(),
            readiness: match ready {
                None => Readiness::Unknown,
                Some(condition) if condition.status == "True" => Readiness::Ready,
                Some(condition) => Readiness::NotReady(word(condition.reason)),
            },
            is_cordoned: unschedulable == Some(true),
            is_cordoned_by_us: cordoned.is_some(),
            is_of_cluster_api: machine.is_some(),
        })
    }
}

/// A reason of a condition, if it is one word.
fn word(reason: Option<String>) -> String {
    let is_word = |text: &String| {
        text.len() <= MAX_REASON_CHARACTERS
            && !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    reason.filter(is_word).unwrap_or_else(|| "NotReady".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(node: Value) -> Option<Node> {
        serde_json::from_value::<NodeItem>(node).unwrap().parse()
    }

    #[test]
    fn a_node_is_read_as_kubernetes_writes_it() {
        let node = parse(json!({
            "metadata": {"name": "w-1", "uid": "u-1", "annotations": {
                "cluster.x-k8s.io/machine": "m-1", (api::annotations::CORDONED_FOR): "h", "other": "x",
            }},
            "spec": {"providerID": "metal3://uid-h1", "unschedulable": true, "taints": []},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}, {"type": "Hostname", "address": "w-1"}],
                "conditions": [
                    {"type": "MemoryPressure", "status": "False"},
                    {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"},
                ],
                "images": [{"names": ["x"], "sizeBytes": 1}],
            },
        }));
        let expected = Node {
            name: "w-1".to_owned(),
            uid: "u-1".to_owned(),
            provider_id: "metal3://uid-h1".to_owned(),
            addresses: vec!["192.0.2.1".parse().unwrap()],
            readiness: Readiness::NotReady("NodeStatusUnknown".to_owned()),
            is_cordoned: true,
            is_cordoned_by_us: true,
            is_of_cluster_api: true,
        };
        assert_eq!(node, Some(expected));
        let bare = parse(json!({"metadata": {"name": "w-1", "uid": "u-1"}})).unwrap();
        assert_eq!(bare.readiness, Readiness::Unknown);
        assert!(!bare.is_cordoned && !bare.is_of_cluster_api);
    }

    #[test]
    fn a_node_that_is_kept_is_small() {
        let addresses: Vec<Value> = (0..1_000).map(|_| json!({"address": "192.0.2.1"})).collect();
        let of = |provider_id: &str| {
            let node = json!({
                "metadata": {"name": "a", "uid": "u"}, "spec": {"providerID": provider_id},
                "status": {"addresses": addresses, "conditions": null},
            });
            let Node {
                provider_id,
                addresses,
                ..
            } = parse(node).unwrap();
            assert_eq!(addresses.len(), 64);
            provider_id.len()
        };
        let longest = format!("metal3://{0}/{0}/{0}", "a".repeat(253));
        assert_eq!(of(&longest), longest.len());
        assert_eq!(of(&"a".repeat(100_000)), 0);
    }

    #[test]
    fn what_no_api_server_stores_is_not_read() {
        for (name, uid) in [
            ("", "u"),
            ("a/../../secrets", "u"),
            ("a\nb", "u"),
            ("a?x=1", "u"),
            (&*"a".repeat(254), "u"),
            ("a", ""),
            ("a", &*"u".repeat(65)),
        ] {
            assert_eq!(
                parse(json!({"metadata": {"name": name, "uid": uid}})),
                None,
                "{name}"
            );
        }
        let reason = |reason: &str| {
            let condition = json!({"type": "Ready", "status": "False", "reason": reason});
            parse(json!({"metadata": {"name": "a", "uid": "u"}, "status": {"conditions": [condition]}}))
                .unwrap()
                .readiness
        };
        assert_eq!(
            reason("KubeletNotReady"),
            Readiness::NotReady("KubeletNotReady".to_owned())
        );
        for hostile in ["", "two words", "a\nb", &*"a".repeat(65)] {
            assert_eq!(reason(hostile), Readiness::NotReady("NotReady".to_owned()));
        }
    }
}
