//! The cluster for which an object without an owner was made: its labels name it, unless the Airship SIP operator made the object.

use std::collections::BTreeMap;

use api::{SIPCluster, labels};
use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Service},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt;

/// Labels that are kept, since they identify an object without an owner.
const IDENTIFYING_LABELS: [&str; 3] = [labels::PART_OF, labels::CLUSTER_NAME, labels::INSTANCE];

/// Removes all other labels: a tenant may write many.
pub(super) fn trim(on_object: &mut Option<BTreeMap<String, String>>) {
    if let Some(on_object) = on_object {
        on_object.retain(|key, _| IDENTIFYING_LABELS.contains(&key.as_str()));
    }
}

/// Name of the cluster for which an object with these labels was made; `None` if they do not name one.
#[must_use]
pub fn cluster(on_object: &BTreeMap<String, String>) -> Option<&str> {
    let label = |key: &str| on_object.get(key).map(String::as_str);
    let is_ours = label(labels::PART_OF) == Some(labels::PART_OF_SIP);
    label(labels::CLUSTER_NAME).filter(|name| is_ours && !name.is_empty())
}

/// Whether the labels of an object name the instance `name`. Somebody may have copied the labels to an object of another name, as `kubectl
/// expose` does.
pub(super) fn is_of_instance(object: &ObjectMeta, name: &str) -> bool {
    let instance = object
        .labels
        .as_ref()
        .and_then(|on_object| on_object.get(labels::INSTANCE));
    instance.is_some_and(|instance| instance == name)
}

/// The cluster to which an object belongs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Owner {
    /// The cluster with this uid owns it.
    Uid(String),
    /// No cluster owns it; it was made for the cluster of this name in its namespace.
    MadeFor(String),
}

impl Owner {
    /// By owner references, or else labels; `None` where neither name a cluster, as for objects of the Airship SIP operator.
    pub(super) fn of_object(object: &ObjectMeta) -> Option<Self> {
        let mut owners = object.owner_references.iter().flatten();
        if let Some(owner) = owners.find(|owner| owner.kind == "SIPCluster") {
            return Some(Self::Uid(owner.uid.clone()));
        }
        let made_for = object.labels.as_ref().and_then(cluster);
        made_for.map(|cluster| Self::MadeFor(cluster.to_owned()))
    }

    /// Whether it is of the cluster with this uid and name.
    pub(super) fn is_cluster(&self, (uid, name): (&str, &str)) -> bool {
        match self {
            Self::Uid(owner) => owner == uid,
            Self::MadeFor(cluster) => cluster == name,
        }
    }
}

/// Whether a Service belongs to a cluster: the cluster owns it, or the Service was made for it and has lost its owner.
pub(super) fn is_of(service: &Service, object: &SIPCluster) -> bool {
    let owners = service.owner_references().iter();
    let mut owners = owners.filter(|owner| owner.kind == "SIPCluster").peekable();
    if owners.peek().is_some() {
        return owners.any(|owner| Some(&owner.uid) == object.metadata.uid.as_ref());
    }
    service.namespace() == object.namespace() && cluster(service.labels()) == Some(&*object.name_any())
}

/// Whether a Deployment has the owner of a rendered one; those of SIP have none.
pub(super) fn has_owner_of(known: &Deployment, rendered: &Deployment) -> bool {
    let owners = rendered.owner_references().iter().map(|owner| &owner.uid);
    owners.clone().count() > 0
        && owners
            .into_iter()
            .all(|uid| known.owner_references().iter().any(|known| known.uid == *uid))
}
