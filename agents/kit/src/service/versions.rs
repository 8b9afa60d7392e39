//! Which version there is of the objects of a kind in a namespace, and which instance of which cluster they are of, by a watch that keeps
//! nothing else of them: each instance has several.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use api::labels;
use kube::{Resource, ResourceExt as _, runtime::watcher::Event};

/// The versions that a watch of one namespace has shown. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Versions(Arc<Mutex<Known>>);

/// By name.
type ByName = HashMap<String, Recorded>;

/// What is kept of an object.
#[derive(Debug)]
struct Recorded {
    version: String,
    owned: Option<Owned>,
}

/// Whose an object is that a `SIPCluster` owns.
#[derive(Debug)]
struct Owned {
    cluster_uid: String,
    instance: String,
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

    /// The version of the object with the name of this one; `None` if there is none.
    pub(super) fn get(&self, object: &impl Resource) -> Option<String> {
        self.by_name(&object.name_any())
    }

    /// The version of the object of a name; `None` if there is none.
    pub(super) fn by_name(&self, name: &str) -> Option<String> {
        let known = self.known();
        known.objects.get(name).map(|recorded| recorded.version.clone())
    }

    /// Names of the objects that a cluster owns, each with that of its instance.
    pub(super) fn owned_by(&self, cluster_uid: &str) -> Vec<(String, String)> {
        let known = self.known();
        let owned = known.objects.iter().filter_map(|(name, recorded)| {
            let owned = recorded.owned.as_ref()?;
            (owned.cluster_uid == cluster_uid).then(|| (name.clone(), owned.instance.clone()))
        });
        owned.collect()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn recorded(object: &impl Resource) -> Option<(String, Recorded)> {
    let version = version(object)?;
    let mut owners = object.owner_references().iter();
    let owner = owners.find(|owner| owner.kind == "SIPCluster");
    let owned = owner.zip(object.labels().get(labels::INSTANCE));
    let owned = owned.map(|(owner, instance)| Owned {
        cluster_uid: owner.uid.clone(),
        instance: instance.clone(),
    });
    Some((object.name_any(), Recorded { version, owned }))
}

/// Changes with the desired state of an object: where objects have a generation, neither their status nor their labels and
/// annotations count.
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
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
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
        assert_eq!(
            versions.owned_by("now"),
            [("lb-keys".to_owned(), "lb".to_owned())]
        );
        assert_eq!(versions.owned_by("before"), []);
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
