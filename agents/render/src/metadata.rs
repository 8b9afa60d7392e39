//! What every child of a SIPCluster carries: its names, labels and owner. They are SIP's, so that its objects are taken
//! over: a Deployment's selector can never change.

use std::collections::BTreeMap;

use api::{Cluster, ObjectName, SIPCluster, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource as _;

/// Labels of an object, and selector of its pods.
pub(crate) fn labels(component: &str, software: &str, name: &ObjectName) -> BTreeMap<String, String> {
    [
        (labels::PART_OF, labels::PART_OF_SIP),
        (labels::COMPONENT, component),
        (labels::NAME, software),
        (labels::INSTANCE, name.as_str()),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

/// Metadata of a child. The owner reference is the safety net behind the agents' own deletion.
pub(crate) fn child(cluster: &Cluster, name: &ObjectName, labels: BTreeMap<String, String>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_string()),
        namespace: Some(cluster.namespace().to_owned()),
        labels: Some(labels),
        owner_references: Some(vec![OwnerReference {
            api_version: SIPCluster::api_version(&()).into_owned(),
            kind: SIPCluster::kind(&()).into_owned(),
            name: cluster.name().to_owned(),
            uid: cluster.uid().to_owned(),
            controller: Some(true),
            block_owner_deletion: None,
        }]),
        ..ObjectMeta::default()
    }
}
