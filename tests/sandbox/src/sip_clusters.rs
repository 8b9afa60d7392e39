//! `SIPClusters`, as somebody sees them who knows only the custom resource definition.

use std::collections::BTreeMap;

use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject},
    core::GroupVersionKind,
};

/// The label that says which cluster, by name, holds a host.
pub const CLUSTER_NAME: &str = "sip.airshipit.org/cluster-name";
/// The label that says in which namespace that cluster is.
pub const CLUSTER_NAMESPACE: &str = "sip.airshipit.org/cluster-namespace";
/// The label that says which role the host serves.
pub const NODE_TYPE: &str = "sip.airshipit.org/node-type";

/// The API of `SIPClusters`.
#[must_use]
pub fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("airship.airshipit.org", "v1", "SIPCluster"),
        "sipclusters",
    )
}

/// All `SIPClusters` of a namespace.
#[must_use]
pub fn api(client: Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client, namespace, &resource())
}

/// How many hosts a cluster asks for, per role: `active` and `standby` together.
#[must_use]
pub fn wanted(cluster: &DynamicObject) -> BTreeMap<String, u64> {
    let roles = cluster
        .data
        .pointer("/spec/nodes")
        .and_then(serde_json::Value::as_object);
    let count = |set: &serde_json::Value, field: &str| {
        set.pointer(&format!("/count/{field}"))
            .and_then(serde_json::Value::as_u64)
            .unwrap_or(0)
    };
    roles
        .into_iter()
        .flatten()
        .map(|(role, set)| (role.clone(), count(set, "active") + count(set, "standby")))
        .collect()
}

/// What a host's labels say: whose it is, as `NAMESPACE/NAME`, and in which role. `None` for a free host.
#[must_use]
pub fn holder(host: &DynamicObject) -> Option<(String, String)> {
    let label = |key: &str| host.labels().get(key).map_or("", String::as_str);
    let name = host.labels().get(CLUSTER_NAME)?;
    Some((
        format!("{}/{name}", label(CLUSTER_NAMESPACE)),
        label(NODE_TYPE).to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: serde_json::Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn standby_hosts_are_wanted_like_active_ones() {
        let cluster = object(json!({"metadata": {}, "spec": {"nodes": {
            "ControlPlane": {"count": {"active": 3, "standby": 0}},
            "Worker": {"count": {"active": 3, "standby": 1}},
        }}}));

        assert_eq!(
            wanted(&cluster),
            BTreeMap::from([("ControlPlane".to_owned(), 3), ("Worker".to_owned(), 4)])
        );
    }

    #[test]
    fn a_host_without_the_label_of_a_cluster_is_free() {
        let held = object(json!({"metadata": {"labels": {
            CLUSTER_NAME: "orders", CLUSTER_NAMESPACE: "shop", NODE_TYPE: "Worker",
        }}}));

        assert_eq!(
            holder(&held),
            Some(("shop/orders".to_owned(), "Worker".to_owned()))
        );
        assert_eq!(
            holder(&object(json!({"metadata": {"labels": {NODE_TYPE: "Worker"}}}))),
            None
        );
    }
}
