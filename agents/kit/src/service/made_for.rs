//! For which cluster an object was made that has no owner: its labels tell, unless the Airship SIP operator made it.

use std::collections::BTreeMap;

use api::{SIPCluster, labels};
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;

/// Labels by which an object without an owner is found.
const LABELS: [&str; 2] = [labels::PART_OF, labels::CLUSTER_NAME];

/// Removes all other labels: a tenant may write many.
pub(super) fn trim(on_object: &mut Option<BTreeMap<String, String>>) {
    if let Some(on_object) = on_object {
        on_object.retain(|key, _| LABELS.contains(&key.as_str()));
    }
}

/// The name of the cluster.
pub(super) fn cluster(on_object: &BTreeMap<String, String>) -> Option<&str> {
    let label = |key: &str| on_object.get(key).map(String::as_str);
    label(labels::CLUSTER_NAME).filter(|_| label(labels::PART_OF) == Some(labels::PART_OF_SIP))
}

/// Whether a Service is a cluster's: it owns it, or it was made for it and has lost its owner.
pub(super) fn is_of(service: &Service, object: &SIPCluster) -> bool {
    let owners = service.owner_references().iter();
    let mut owners = owners.filter(|owner| owner.kind == "SIPCluster").peekable();
    if owners.peek().is_some() {
        return owners.any(|owner| Some(&owner.uid) == object.metadata.uid.as_ref());
    }
    service.namespace() == object.namespace() && cluster(service.labels()) == Some(&*object.name_any())
}
