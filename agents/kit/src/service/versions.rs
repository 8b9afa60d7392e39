//! Which version there is of the objects of a kind in a namespace, by a watch that keeps nothing else of them: each instance has several.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kube::{Resource, ResourceExt as _, runtime::watcher::Event};

/// The versions that a watch of one namespace has shown. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Versions(Arc<Mutex<Known>>);

/// By name.
type ByName = HashMap<String, String>;

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
            Event::InitApply(object) => known.listing.extend(versioned(object)),
            Event::InitDone => known.objects = mem::take(&mut known.listing),
            Event::Apply(object) => known.objects.extend(versioned(object)),
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
        self.known().objects.get(name).cloned()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn versioned(object: &impl Resource) -> Option<(String, String)> {
    version(object).map(|version| (object.name_any(), version))
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
