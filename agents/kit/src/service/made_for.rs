//! For which cluster an object was made that has no owner: its labels tell, unless the Airship SIP operator made it.

use std::collections::BTreeMap;

use api::{SIPCluster, labels};
use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Service},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt;

/// Labels by which an object without an owner is found.
const LABELS: [&str; 3] = [labels::PART_OF, labels::CLUSTER_NAME, labels::INSTANCE];

/// Removes all other labels: a tenant may write many.
pub(super) fn trim(on_object: &mut Option<BTreeMap<String, String>>) {
    if let Some(on_object) = on_object {
        on_object.retain(|key, _| LABELS.contains(&key.as_str()));
    }
}

/// The name of the cluster for which an object with these labels was made; `None` if they do not tell.
#[must_use]
pub fn cluster(on_object: &BTreeMap<String, String>) -> Option<&str> {
    let label = |key: &str| on_object.get(key).map(String::as_str);
    let is_ours = label(labels::PART_OF) == Some(labels::PART_OF_SIP);
    label(labels::CLUSTER_NAME).filter(|name| is_ours && !name.is_empty())
}

/// Whether the labels of an object are of an instance of this name. Somebody may have copied them to an object of another name, as `kubectl
/// expose` does.
pub(super) fn is_of_instance(object: &ObjectMeta, name: &str) -> bool {
    let instance = object
        .labels
        .as_ref()
        .and_then(|on_object| on_object.get(labels::INSTANCE));
    instance.is_some_and(|instance| instance == name)
}

/// Whose an object is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Whose {
    /// The cluster's with this uid, which owns it.
    Owner(String),
    /// Nobody owns it, and it was made for the cluster of this name in its namespace.
    MadeFor(String),
}

impl Whose {
    /// By its owners and labels; `None` for one that neither tell, such as those of the Airship SIP operator.
    pub(super) fn by_metadata(object: &ObjectMeta) -> Option<Self> {
        let mut owners = object.owner_references.iter().flatten();
        if let Some(owner) = owners.find(|owner| owner.kind == "SIPCluster") {
            return Some(Self::Owner(owner.uid.clone()));
        }
        let made_for = object.labels.as_ref().and_then(cluster);
        made_for.map(|cluster| Self::MadeFor(cluster.to_owned()))
    }

    /// Whether it is of the cluster with this uid and name.
    pub(super) fn is(&self, (uid, name): (&str, &str)) -> bool {
        match self {
            Self::Owner(owner) => owner == uid,
            Self::MadeFor(cluster) => cluster == name,
        }
    }
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

/// Whether a Deployment was applied for the cluster of a rendered one: SIP's have no owner.
pub(super) fn has_owner_of(known: &Deployment, rendered: &Deployment) -> bool {
    let owners = rendered.owner_references().iter().map(|owner| &owner.uid);
    owners.clone().count() > 0
        && owners
            .into_iter()
            .all(|uid| known.owner_references().iter().any(|known| known.uid == *uid))
}
