//! Which version there is of the objects of a kind, by a watch that keeps nothing else of them: each instance has several.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kube::{Resource, ResourceExt as _, runtime::watcher::Event};
use tokio::sync::SetOnce;

/// The versions that a watch has shown. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Versions(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    known: Mutex<Known>,
    listed: SetOnce<()>,
}

/// By namespace and name.
type ByName = HashMap<(String, String), String>;

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
            Event::InitDone => {
                known.objects = mem::take(&mut known.listing);
                // Fails only when it is set already.
                let _ = self.0.listed.set(());
            }
            Event::Apply(object) => known.objects.extend(versioned(object)),
            Event::Delete(object) => {
                known.objects.remove(&key(object));
            }
        }
    }

    /// Waits until the watch has shown a complete list.
    pub(super) async fn listed(&self) {
        self.0.listed.wait().await;
    }

    /// The version of the object with the namespace and name of this one; `None` if there is none.
    pub(super) fn get(&self, object: &impl Resource) -> Option<String> {
        self.known().objects.get(&key(object)).cloned()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn versioned(object: &impl Resource) -> Option<((String, String), String)> {
    version(object).map(|version| (key(object), version))
}

/// Changes with the desired state of an object: where objects have a generation, neither their status nor their labels and
/// annotations count.
pub(super) fn version(object: &impl Resource) -> Option<String> {
    let meta = object.meta();
    let generation = meta.generation.map(|generation| generation.to_string());
    generation.or_else(|| meta.resource_version.clone())
}

fn key(object: &impl Resource) -> (String, String) {
    (
        object.namespace().unwrap_or_default(),
        object.meta().name.clone().unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use kube::core::ObjectMeta;

    use super::*;

    fn secret(name: &str, generation: Option<i64>, resource_version: &str) -> Secret {
        Secret {
            metadata: ObjectMeta {
                namespace: Some("shop".to_owned()),
                name: Some(name.to_owned()),
                generation,
                resource_version: Some(resource_version.to_owned()),
                ..ObjectMeta::default()
            },
            ..Secret::default()
        }
    }

    #[test]
    fn a_complete_list_and_later_events_are_known() {
        let versions = Versions::default();
        let of = |name| versions.get(&secret(name, None, ""));
        versions.observe(&Event::<Secret>::Init);
        versions.observe(&Event::InitApply(secret("a", None, "7")));
        assert_eq!(of("a"), None, "the list is not complete");
        assert!(!versions.0.listed.initialized());
        versions.observe(&Event::<Secret>::InitDone);
        assert_eq!(of("a").as_deref(), Some("7"));
        assert!(versions.0.listed.initialized());

        versions.observe(&Event::Apply(secret("a", Some(2), "8")));
        versions.observe(&Event::Apply(secret("b", None, "9")));
        assert_eq!((of("a").as_deref(), of("b").as_deref()), (Some("2"), Some("9")));
        versions.observe(&Event::Delete(secret("b", None, "10")));
        assert_eq!(of("b"), None);

        // The watch begins anew: until the list is complete the old one counts.
        versions.observe(&Event::<Secret>::Init);
        assert_eq!(of("a").as_deref(), Some("2"));
        versions.observe(&Event::<Secret>::InitDone);
        assert_eq!(of("a"), None, "it is gone");
    }
}
