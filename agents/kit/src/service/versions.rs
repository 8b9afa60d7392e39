//! Versions of the objects of a kind in a namespace, and the cluster and instance of each, kept by a watch that keeps nothing else of them: each
//! instance has several.

use std::{
    collections::{BTreeSet, HashMap},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use api::labels;
use kube::{Resource, ResourceExt as _, runtime::watcher::Event};

use super::made_for::{Maker, Owner};

/// The versions that a watch of one namespace has shown. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Versions(Arc<Mutex<Known>>);

/// By name.
type ByName = HashMap<String, Recorded>;

/// What is kept of an object.
#[derive(Debug)]
struct Recorded {
    version: String,
    /// The text by which changes are detected.
    change_key: String,
    /// Whether it is being deleted.
    is_deleting: bool,
    owner: Option<Owner>,
    maker: Option<Maker>,
    instance: Option<String>,
}

impl Recorded {
    fn is_of(&self, cluster: (&str, &str)) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.is_cluster(cluster))
    }
}

#[derive(Debug, Default)]
struct Known {
    objects: ByName,
    /// The objects of a list that is not complete yet.
    listing: ByName,
}

impl Versions {
    /// Records an event of the watch.
    pub(super) fn observe(&self, event: &Event<impl Resource>) {
        let mut known = self.known();
        match event {
            Event::Init => known.listing.clear(),
            Event::InitApply(object) => known.listing.extend(recorded(object)),
            Event::InitDone => known.objects = mem::take(&mut known.listing),
            Event::Apply(object) => known.objects.extend(recorded(object)),
            Event::Delete(object) => {
                known.objects.remove(&object.name_any());
            }
        }
    }

    /// The text by which changes of the object with this name are detected, if it belongs to the cluster that owns `object`. It also changes when
    /// the object loses its owner. `None` for an object of another or an unknown cluster: before the agent writes that, it asks the API server to
    /// whom it belongs.
    pub(super) fn get(&self, object: &impl Resource) -> Option<String> {
        let mut owners = object.owner_references().iter();
        let owner = owners.find(|owner| owner.kind == "SIPCluster")?;
        let known = self.known();
        let recorded = known.objects.get(&object.name_any());
        let recorded = recorded.filter(|recorded| recorded.is_of((&owner.uid, &owner.name)))?;
        Some(recorded.change_key.clone())
    }

    /// The version of the object of a name, if it is of the cluster with this uid and name.
    pub(super) fn by_name(&self, name: &str, cluster: (&str, &str)) -> Option<String> {
        let known = self.known();
        let recorded = known.objects.get(name).filter(|recorded| recorded.is_of(cluster));
        recorded.map(|recorded| recorded.version.clone())
    }

    /// Names of the objects of a cluster, by its uid and name, each with that of its instance.
    pub(super) fn of_cluster(&self, cluster: (&str, &str)) -> Vec<(String, String)> {
        let known = self.known();
        let own = known
            .objects
            .iter()
            .filter(|(_, recorded)| recorded.is_of(cluster));
        let own = own.filter_map(|(name, recorded)| Some((name.clone(), recorded.instance.clone()?)));
        own.collect()
    }

    /// Names of the objects that stay and that none of the clusters with these uids owns, each with that of its instance and with its maker.
    pub(super) fn without_live_owner(&self, live: &BTreeSet<String>) -> Vec<(String, String, Maker)> {
        let known = self.known();
        let stay = known.objects.iter().filter(|(_, recorded)| !recorded.is_deleting);
        let found = stay.filter_map(|(name, recorded)| {
            let maker = recorded.maker.as_ref();
            let maker = maker.filter(|maker| !maker.is_owner_among(live))?;
            Some((name.clone(), recorded.instance.clone()?, maker.clone()))
        });
        found.collect()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn recorded(object: &impl Resource) -> Option<(String, Recorded)> {
    let (version, owner) = (version(object)?, Owner::of_object(object.meta()));
    let change_key = match &owner {
        // The generation does not change when the object loses its owner, so the resource version is used.
        Some(Owner::MadeFor(_)) => format!("{} without owner", object.resource_version()?),
        Some(Owner::Uid(_)) | None => version.clone(),
    };
    let recorded = Recorded {
        version,
        change_key,
        is_deleting: object.meta().deletion_timestamp.is_some(),
        owner,
        maker: Maker::of_object(object.meta()),
        instance: object.labels().get(labels::INSTANCE).cloned(),
    };
    Some((object.name_any(), recorded))
}

/// A text that changes with the desired state of an object: where objects have a generation, not with their status, labels and annotations.
pub(super) fn version(object: &impl Resource) -> Option<String> {
    let meta = object.meta();
    let generation = meta.generation.map(|generation| generation.to_string());
    generation.or_else(|| meta.resource_version.clone())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::ObjectMeta;
    use serde_json::json;

    use super::*;

    fn config_map(name: &str, generation: Option<i64>, resource_version: &str) -> ConfigMap {
        let owner = json!([{
            "apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster", "name": "shop", "uid": "now",
        }]);
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                owner_references: serde_json::from_value(owner).unwrap(),
                generation,
                resource_version: Some(resource_version.to_owned()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        }
    }

    #[test]
    fn objects_are_known_by_cluster_and_instance() {
        let object = |name: &str, kind: &str, instance: Option<&str>| -> ConfigMap {
            let owner = json!([{"apiVersion": "v1", "kind": kind, "name": "shop", "uid": "now"}]);
            let metadata = json!({
                "name": name, "resourceVersion": "7", "ownerReferences": owner,
                "labels": instance.map(|instance| json!({(labels::INSTANCE): instance})),
            });
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        let versions = Versions::default();
        for object in [
            object("lb-keys", "SIPCluster", Some("lb")),
            object("check", "Job", Some("lb")),
            object("unlabelled", "SIPCluster", None),
        ] {
            versions.observe(&Event::Apply(object));
        }
        let own = [("lb-keys".to_owned(), "lb".to_owned())];
        assert_eq!(versions.of_cluster(("now", "shop")), own);
        assert_eq!(versions.of_cluster(("before", "shop")), []);
    }

    #[test]
    fn only_the_version_of_the_clusters_own_object_is_known() {
        let versions = Versions::default();
        let own = config_map("lb", None, "");
        let made = |change: &dyn Fn(&mut ObjectMeta)| {
            let mut object = config_map("lb", None, "7");
            change(&mut object.metadata);
            versions.observe(&Event::Apply(object));
            let change_key = versions.get(&own);
            assert_eq!(
                change_key.is_some(),
                versions.by_name("lb", ("now", "shop")).is_some()
            );
            (change_key.is_some(), versions.of_cluster(("now", "shop")).len())
        };
        let labelled = |cluster: Option<&str>| {
            let labels = json!({
                (labels::PART_OF): labels::PART_OF_SIP, (labels::CLUSTER_NAME): cluster, (labels::INSTANCE): "lb",
            });
            let mut labels = labels.as_object().unwrap().clone();
            labels.retain(|_, value| !value.is_null());
            serde_json::from_value(labels.into()).unwrap()
        };
        let orphan = |cluster| {
            move |object: &mut ObjectMeta| {
                object.owner_references = None;
                object.labels = labelled(cluster);
            }
        };
        assert_eq!(made(&|_| {}), (true, 0), "it has no instance");
        assert_eq!(made(&orphan(Some("shop"))), (true, 1));
        assert_eq!(made(&orphan(Some("bank"))), (false, 0));
        assert_eq!(made(&orphan(None)), (false, 0));
        let of_another = |object: &mut ObjectMeta| {
            object.labels = labelled(Some("shop"));
            object.owner_references.as_mut().unwrap()[0].uid = "before".to_owned();
        };
        assert_eq!(made(&of_another), (false, 0));
        let made_by = |name: &str, uid: Option<&str>| {
            let maker = Maker {
                name: name.to_owned(),
                uid: uid.map(str::to_owned),
            };
            ("lb".to_owned(), "lb".to_owned(), maker)
        };
        let uids = |uid: &str| BTreeSet::from([uid.to_owned()]);
        assert_eq!(versions.without_live_owner(&uids("before")), []);
        assert_eq!(
            versions.without_live_owner(&uids("now")),
            [made_by("shop", Some("before"))]
        );
        made(&orphan(Some("bank")));
        assert_eq!(versions.without_live_owner(&uids("now")), [made_by("bank", None)]);
        made(&|object| {
            orphan(Some("bank"))(object);
            object.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        });
        assert_eq!(versions.without_live_owner(&uids("now")), []);
    }

    #[test]
    fn an_object_that_loses_its_owner_is_another_one() {
        let versions = Versions::default();
        let own = config_map("lb", Some(1), "7");
        versions.observe(&Event::Apply(own.clone()));
        let before = versions.get(&own);
        let mut orphan = own.clone();
        orphan.metadata.owner_references = None;
        let labels = json!({(labels::PART_OF): labels::PART_OF_SIP, (labels::CLUSTER_NAME): "shop"});
        orphan.metadata.labels = serde_json::from_value(labels).unwrap();
        versions.observe(&Event::Apply(orphan.clone()));
        let lost = versions.get(&own);
        assert!(lost.is_some() && lost != before);
        // It gets its owner back, and loses it once more.
        versions.observe(&Event::Apply(own.clone()));
        assert_eq!(versions.get(&own), before);
        orphan.metadata.resource_version = Some("9".to_owned());
        versions.observe(&Event::Apply(orphan));
        assert!(versions.get(&own).is_some_and(|again| Some(again) != lost));
    }

    #[test]
    fn a_complete_list_and_later_events_are_known() {
        let versions = Versions::default();
        let of = |name| versions.get(&config_map(name, None, ""));
        versions.observe(&Event::<ConfigMap>::Init);
        versions.observe(&Event::InitApply(config_map("a", None, "7")));
        assert_eq!(of("a"), None, "the list is not complete");
        versions.observe(&Event::<ConfigMap>::InitDone);
        assert_eq!(of("a").as_deref(), Some("7"));

        versions.observe(&Event::Apply(config_map("a", Some(2), "8")));
        versions.observe(&Event::Apply(config_map("b", None, "9")));
        assert_eq!((of("a").as_deref(), of("b").as_deref()), (Some("2"), Some("9")));
        versions.observe(&Event::Delete(config_map("b", None, "10")));
        assert_eq!(of("b"), None);

        // The watch begins anew: until the list is complete the old one counts.
        versions.observe(&Event::<ConfigMap>::Init);
        assert_eq!(of("a").as_deref(), Some("2"));
        versions.observe(&Event::<ConfigMap>::InitDone);
        assert_eq!(of("a"), None, "it is gone");
    }
}
