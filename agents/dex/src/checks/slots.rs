//! How many checks may run at once for a namespace and a cluster, and how many do.

use std::collections::BTreeMap;

use super::Key;

/// Maximum number of concurrent checks of one namespace.
pub(super) const MAX_NAMESPACE_CHECKS: usize = 4;
/// Maximum number of concurrent checks of former clusters of one SIPCluster's entries: one limit for those that failed last, and another for
/// the others. A former cluster may hang, and the checks of the SIPCluster's providers use the same slots of the namespace.
const MAX_FORMER_CHECKS: usize = 1;

/// Numbers of running checks, by namespace and by cluster.
#[derive(Default)]
pub(super) struct CheckSlots {
    of_namespace: BTreeMap<String, usize>,
    of_cluster: BTreeMap<String, usize>,
    /// Of former clusters, and whether they failed last.
    former: BTreeMap<(String, bool), usize>,
}

impl CheckSlots {
    /// Counts a check that begins. `fails`: whether the last one has failed.
    pub(super) fn count(&mut self, key: &Key, fails: bool) {
        *self.of_namespace.entry(key.namespace.clone()).or_default() += 1;
        *self.of_cluster.entry(key.uid.clone()).or_default() += 1;
        if key.former.is_some() {
            *self.former.entry((key.uid.clone(), fails)).or_default() += 1;
        }
    }

    /// Numbers of running checks of the namespace, and of the cluster.
    pub(super) fn running(&self, key: &Key) -> (usize, usize) {
        let of_namespace = self.of_namespace.get(&key.namespace);
        let of_cluster = self.of_cluster.get(&key.uid);
        (
            of_namespace.copied().unwrap_or_default(),
            of_cluster.copied().unwrap_or_default(),
        )
    }

    /// Whether a check of this key may begin now. `fails`: whether the last one has failed.
    pub(super) fn has_free(&self, key: &Key, fails: bool) -> bool {
        let (of_namespace, _) = self.running(key);
        let former = self.former.get(&(key.uid.clone(), fails));
        let former = former.copied().unwrap_or_default();
        of_namespace < MAX_NAMESPACE_CHECKS && (key.former.is_none() || former < MAX_FORMER_CHECKS)
    }
}
