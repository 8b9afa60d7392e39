//! What is kept for each namespace by itself, such as the store of a watch that runs in that namespace only.

use std::{
    collections::BTreeMap,
    hash::Hash,
    sync::{Arc, PoisonError, RwLock},
};

use kube::{
    Resource,
    runtime::reflector::{ObjectRef, Store},
};

/// A value for each namespace. Cheap to clone; all clones have the same values.
#[derive(Debug)]
pub struct ByNamespace<T>(Arc<RwLock<BTreeMap<String, T>>>);

/// The objects of one kind in all namespaces with clusters, as the watch of each namespace shows them. Of a namespace without a complete
/// list it has no object.
pub type TenantStore<K> = ByNamespace<Store<K>>;

impl<T> Clone for ByNamespace<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for ByNamespace<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone> ByNamespace<T> {
    /// The value for a namespace.
    pub(super) fn value(&self, namespace: &str) -> Option<T> {
        let values = self.0.read().unwrap_or_else(PoisonError::into_inner);
        values.get(namespace).cloned()
    }

    pub(super) fn set(&self, namespace: &str, value: T) {
        let mut values = self.0.write().unwrap_or_else(PoisonError::into_inner);
        values.insert(namespace.to_owned(), value);
    }

    pub(super) fn remove(&self, namespace: &str) {
        let mut values = self.0.write().unwrap_or_else(PoisonError::into_inner);
        values.remove(namespace);
    }

    /// The values, each with its namespace.
    pub(super) fn entries(&self) -> Vec<(String, T)> {
        let values = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let entries = values
            .iter()
            .map(|(namespace, value)| (namespace.clone(), value.clone()));
        entries.collect()
    }

    fn values(&self) -> Vec<T> {
        let values = self.0.read().unwrap_or_else(PoisonError::into_inner);
        values.values().cloned().collect()
    }
}

impl<K> TenantStore<K>
where
    K: Resource<DynamicType: Clone + Eq + Hash + Default> + Clone + 'static,
{
    /// The objects of all namespaces.
    #[must_use]
    pub fn state(&self) -> Vec<Arc<K>> {
        self.values().iter().flat_map(Store::state).collect()
    }

    /// The objects of one namespace.
    #[must_use]
    pub fn within(&self, namespace: &str) -> Vec<Arc<K>> {
        self.value(namespace).map_or_else(Vec::new, |store| store.state())
    }

    /// One object.
    #[must_use]
    pub fn get(&self, object: &ObjectRef<K>) -> Option<Arc<K>> {
        self.value(object.namespace.as_deref()?)?.get(object)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::runtime::{reflector::store, watcher::Event};
    use serde_json::json;

    use super::*;

    #[test]
    fn each_namespace_has_its_own_objects() {
        let stores = TenantStore::<Pod>::default();
        let mut writers = Vec::new();
        for namespace in ["a", "b"] {
            let (read, mut write) = store();
            let pod = json!({"metadata": {"namespace": namespace, "name": "one"}});
            write.apply_watcher_event(&Event::Apply(serde_json::from_value(pod).unwrap()));
            stores.set(namespace, read);
            writers.push(write);
        }
        let one = ObjectRef::new("one").within("b");
        assert_eq!((stores.state().len(), stores.within("b").len()), (2, 1));
        assert!(stores.get(&one).is_some());
        stores.remove("b");
        assert_eq!((stores.state().len(), stores.within("b").len()), (1, 0));
        assert!(stores.get(&one).is_none());
    }
}
