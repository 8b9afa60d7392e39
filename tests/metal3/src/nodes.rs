//! How the Node of a Machine in a tenant's cluster is linked to it: `SetProviderIDFromNodeLabel` and `getPossibleProviderIDs` of CAPM3 v1.13.2,
//! and `GetManagedAnnotations` (`util/annotations/helpers.go`) of Cluster API v1.13.4.
//!
//! The real ones find the Node by a label that its kubelet has from bootstrap. There is no bootstrap here: a test sets the label.

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::names::CLUSTER;

/// On a Node: the uid of its host.
pub const HOST_UID: &str = "metal3.io/uuid";
/// On a Node: the namespace of its Machine.
const CLUSTER_NAMESPACE: &str = "cluster.x-k8s.io/cluster-namespace";
/// On a Node: its Machine.
pub const MACHINE: &str = "cluster.x-k8s.io/machine";
const SCHEME: &str = "metal3://";

/// A Machine with a host, as far as its Node has to be found and linked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its namespace, and that of its `Metal3Machine` and host.
    pub namespace: String,
    /// The Cluster that it belongs to.
    pub cluster: String,
    /// Its name.
    pub machine: String,
    /// The name of its `Metal3Machine`.
    pub metal3_machine: String,
    /// The name of its host.
    pub host: String,
    /// The uid of its host.
    pub host_uid: String,
}

impl Link {
    /// The providerID that CAPM3 writes.
    #[must_use]
    pub fn provider_id(&self) -> String {
        let Self {
            namespace,
            host,
            metal3_machine,
            ..
        } = self;
        format!("{SCHEME}{namespace}/{host}/{metal3_machine}")
    }

    /// The providerID of older versions, which CAPM3 accepts where a Node has it already.
    #[must_use]
    pub fn legacy_provider_id(&self) -> String {
        format!("{SCHEME}{}", self.host_uid)
    }

    /// What is written to the Node; `None` for a Node with another providerID, which is not linked.
    #[must_use]
    pub fn patch(&self, node: &Node) -> Option<Value> {
        let own = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        let id = match own.filter(|id| !id.is_empty()) {
            None => self.provider_id(),
            Some(id) if id == self.provider_id() || id == self.legacy_provider_id() => id.to_owned(),
            Some(_) => return None,
        };
        let annotations = json!({
            CLUSTER: self.cluster, CLUSTER_NAMESPACE: self.namespace, MACHINE: self.machine,
        });
        Some(json!({"metadata": {"annotations": annotations}, "spec": {"providerID": id}}))
    }
}

/// Links the one Node with the label of the Machine's host; whether there is one, and it can be linked.
///
/// # Errors
/// What the tenant's API server answers.
pub async fn link(tenant: Client, link: &Link) -> kube::Result<bool> {
    let nodes: Api<Node> = Api::all(tenant);
    let selected = ListParams::default().labels(&format!("{HOST_UID}={}", link.host_uid));
    let found = nodes.list(&selected).await?.items;
    let [node] = found.as_slice() else {
        return Ok(false);
    };
    let Some(patch) = link.patch(node) else {
        return Ok(false);
    };
    nodes
        .patch(&node.name_any(), &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_gets_one_provider_id_and_keeps_the_older_one() {
        let link = Link {
            namespace: "metal".to_owned(),
            cluster: "shop".to_owned(),
            machine: "shop-x".to_owned(),
            metal3_machine: "shop-m".to_owned(),
            host: "h1".to_owned(),
            host_uid: "uid-h1".to_owned(),
        };
        for (own, expected) in [
            (Value::Null, Some("metal3://metal/h1/shop-m")),
            (json!(""), Some("metal3://metal/h1/shop-m")),
            (
                json!("metal3://metal/h1/shop-m"),
                Some("metal3://metal/h1/shop-m"),
            ),
            (json!("metal3://uid-h1"), Some("metal3://uid-h1")),
            (json!("metal3://metal/h1/other"), None),
            (json!("metal3://metal/h1"), None),
            (json!("aws:///uid-h1"), None),
        ] {
            let node = json!({"metadata": {"name": "n"}, "spec": {"providerID": own}});
            let patch = link.patch(&serde_json::from_value(node).unwrap());
            let id = patch
                .as_ref()
                .and_then(|patch| patch["spec"]["providerID"].as_str());
            assert_eq!(id, expected, "{own}");
            if let Some(patch) = patch {
                let annotations = &patch["metadata"]["annotations"];
                assert_eq!(
                    (&annotations[MACHINE], &annotations[CLUSTER]),
                    (&json!("shop-x"), &json!("shop"))
                );
            }
        }
    }
}
