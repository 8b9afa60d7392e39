//! The namespaces that have clusters, by the watch of `SIPCluster`s.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use api::SIPCluster;
use kube::{ResourceExt as _, runtime::watcher::Event};
use tokio::sync::Notify;

/// The namespaces that have clusters. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Tenants(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    known: Mutex<Known>,
    changed: Notify,
}

/// Names of clusters by namespace.
type Clusters = BTreeMap<String, BTreeSet<String>>;

#[derive(Debug, Default)]
struct Known {
    clusters: Clusters,
    /// Those of a list that is not complete yet.
    listing: Clusters,
}

impl Tenants {
    /// Records an event of the watch.
    pub(super) fn observe(&self, event: &Event<SIPCluster>) {
        let mut known = self.known();
        let before = known.clusters.len();
        match event {
            Event::Init => known.listing.clear(),
            Event::InitApply(cluster) => add(&mut known.listing, cluster),
            Event::InitDone => {
                known.clusters = mem::take(&mut known.listing);
                // The namespaces may differ even if their number is the same.
                self.0.changed.notify_one();
            }
            Event::Apply(cluster) => add(&mut known.clusters, cluster),
            Event::Delete(cluster) => remove(&mut known.clusters, cluster),
        }
        if known.clusters.len() != before {
            self.0.changed.notify_one();
        }
    }

    /// The namespaces with at least one cluster.
    pub(super) fn namespaces(&self) -> BTreeSet<String> {
        self.known().clusters.keys().cloned().collect()
    }

    /// Waits until the namespaces may be others than before the last call. Only one may wait.
    pub(super) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add(clusters: &mut Clusters, cluster: &SIPCluster) {
    let namespace = cluster.namespace().unwrap_or_default();
    clusters.entry(namespace).or_default().insert(cluster.name_any());
}

fn remove(clusters: &mut Clusters, cluster: &SIPCluster) {
    let namespace = cluster.namespace().unwrap_or_default();
    if let Some(names) = clusters.get_mut(&namespace) {
        names.remove(&cluster.name_any());
        if names.is_empty() {
            clusters.remove(&namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use serde_json::json;

    use super::*;

    fn cluster(namespace: &str, name: &str) -> SIPCluster {
        let object = json!({"metadata": {"namespace": namespace, "name": name}, "spec": {}});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_namespace_counts_from_its_first_cluster_to_its_last() {
        let tenants = Tenants::default();
        let expect = |namespaces: &[&str], changed: bool| {
            assert_eq!(tenants.changed().now_or_never().is_some(), changed);
            assert_eq!(tenants.namespaces().iter().collect::<Vec<_>>(), namespaces);
        };
        tenants.observe(&Event::Init);
        tenants.observe(&Event::InitApply(cluster("shop", "a")));
        expect(&[], false);
        tenants.observe(&Event::InitDone);
        expect(&["shop"], true);
        tenants.observe(&Event::Apply(cluster("shop", "b")));
        tenants.observe(&Event::Delete(cluster("shop", "a")));
        expect(&["shop"], false);
        tenants.observe(&Event::Apply(cluster("bank", "a")));
        expect(&["bank", "shop"], true);
        tenants.observe(&Event::Delete(cluster("shop", "b")));
        expect(&["bank"], true);
        // A new list replaces what was known.
        tenants.observe(&Event::Init);
        tenants.observe(&Event::InitApply(cluster("lab", "a")));
        expect(&["bank"], false);
        tenants.observe(&Event::InitDone);
        expect(&["lab"], true);
    }
}
