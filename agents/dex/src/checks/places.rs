//! How many checks may run at once for a namespace and a cluster, and how many do.

use std::collections::BTreeMap;

use super::Key;

/// Providers of one namespace that are checked concurrently.
pub(super) const OF_NAMESPACE: usize = 4;
/// Concurrent checks of former clusters of one SIPCluster's entries: one of those that failed last, and one of the others. A former cluster may
/// hang, and the checks of the SIPCluster's providers use the same places of the namespace.
const FORMER: usize = 1;

/// Numbers of running checks, by namespace and by cluster.
#[derive(Default)]
pub(super) struct Places {
    of_namespace: BTreeMap<String, usize>,
    of_cluster: BTreeMap<String, usize>,
    /// Of former clusters, and whether they failed last.
    former: BTreeMap<(String, bool), usize>,
}

impl Places {
    /// Counts a check that begins. `fails`: whether the last one has failed.
    pub(super) fn take(&mut self, key: &Key, fails: bool) {
        *self.of_namespace.entry(key.namespace.clone()).or_default() += 1;
        *self.of_cluster.entry(key.uid.clone()).or_default() += 1;
        if key.former.is_some() {
            *self.former.entry((key.uid.clone(), fails)).or_default() += 1;
        }
    }

    /// Numbers of running checks of the namespace, and of the cluster.
    pub(super) fn taken(&self, key: &Key) -> (usize, usize) {
        let of_namespace = self.of_namespace.get(&key.namespace);
        let of_cluster = self.of_cluster.get(&key.uid);
        (
            of_namespace.copied().unwrap_or_default(),
            of_cluster.copied().unwrap_or_default(),
        )
    }

    pub(super) fn has_for(&self, key: &Key, fails: bool) -> bool {
        let (of_namespace, _) = self.taken(key);
        let former = self.former.get(&(key.uid.clone(), fails));
        let former = former.copied().unwrap_or_default();
        of_namespace < OF_NAMESPACE && (key.former.is_none() || former < FORMER)
    }
}
