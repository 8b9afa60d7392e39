//! The cluster for which an object without an owner was made: its labels name it, unless the Airship SIP operator made the object. An object may
//! also have an owner that is gone.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use api::{SIPCluster, labels};
use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Service},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{Resource as _, ResourceExt};

/// Within this time the agent deletes an object whose owner is gone, if the API server permits it and the namespace has few such objects.
pub(super) const FORMER_GONE_WITHIN: Duration = Duration::from_mins(2);

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

/// The cluster that made an object, as the object's labels name it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Maker {
    pub(super) name: String,
    /// The uid in the owner reference; `None` for an object that no cluster owns.
    pub(super) uid: Option<String>,
}

impl Maker {
    /// `None` if the labels name no cluster, if the object has other owners beside a cluster, or if that cluster has another name than the labels.
    /// The garbage collector keeps an object while one of its owners exists, and so does the agent.
    pub(super) fn of_object(object: &ObjectMeta) -> Option<Self> {
        let name = object.labels.as_ref().and_then(cluster)?;
        let owners = object.owner_references.as_deref().unwrap_or_default();
        let uid = match owners {
            _ if owners.iter().all(|owner| owner.kind != "SIPCluster") => None,
            [owner] if owner.name == name && is_of_this_group(owner) => Some(owner.uid.clone()),
            _ => return None,
        };
        Some(Self {
            name: name.to_owned(),
            uid,
        })
    }

    /// Whether it owns the object and has one of these uids.
    pub(super) fn is_owner_among(&self, uids: &BTreeSet<String>) -> bool {
        self.uid.as_ref().is_some_and(|uid| uids.contains(uid))
    }
}

/// Whether an owner is of the API group of `SIPCluster`s. A kind of another group may have the same name.
fn is_of_this_group(owner: &OwnerReference) -> bool {
    let group = owner.api_version.split_once('/').map(|(group, _)| group);
    group == Some(&*SIPCluster::group(&()))
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(cluster: &str, owners: &Value) -> ObjectMeta {
        let labels = json!({
            (labels::PART_OF): labels::PART_OF_SIP, (labels::CLUSTER_NAME): cluster, (labels::INSTANCE): "s",
        });
        serde_json::from_value(json!({"name": "s.keys", "labels": labels, "ownerReferences": owners}))
            .unwrap()
    }

    fn owner(kind: &str, name: &str, uid: &str) -> Value {
        json!({"apiVersion": "airship.airshipit.org/v1", "kind": kind, "name": name, "uid": uid})
    }

    #[test]
    fn a_maker_is_the_only_owner_and_has_the_name_of_the_label() {
        let (own, another) = (owner("SIPCluster", "shop", "u"), owner("SIPCluster", "shop", "v"));
        let mut of_another_group = own.clone();
        of_another_group["apiVersion"] = json!("example.org/v1");
        for (owners, expected) in [
            (json!([]), Some(None)),
            (json!([owner("Job", "j", "j")]), Some(None)),
            (json!([own]), Some(Some("u"))),
            // The Job may exist.
            (json!([owner("Job", "j", "j"), own]), None),
            (json!([of_another_group]), None),
            (json!([own, another]), None),
            (json!([owner("SIPCluster", "bank", "u")]), None),
        ] {
            let maker = Maker::of_object(&object("shop", &owners));
            let expected = expected.map(|uid: Option<&str>| Maker {
                name: "shop".to_owned(),
                uid: uid.map(str::to_owned),
            });
            assert_eq!(maker, expected, "{owners}");
        }
        let mut unlabelled = object("shop", &json!([own]));
        unlabelled.labels = None;
        assert_eq!(Maker::of_object(&unlabelled), None);
    }
}
