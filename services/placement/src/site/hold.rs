//! Who holds which host.

use std::collections::{BTreeMap, BTreeSet};

use vocabulary::{ClusterName, HostId, HostName, Namespace};

use super::{Claim, Site};
use crate::request::{Holder, MemberState};

impl Site {
    /// Records who holds a host, in place of whoever did. The host need not be in the inventory: a claim outlives a
    /// host's absence. Another host of the same name (another uid) is not held by it; see [`Site::set_former`].
    pub fn hold(&mut self, id: &HostId, holder: Holder) {
        self.count(Some(&holder), true);
        let claim = Claim::held_by(Some(&holder));
        let before = self.holders.insert(id.clone(), holder);
        self.count(before.as_ref(), false);
        self.index_claim_of(id, claim);
    }

    /// Forgets who holds a host, and says who did.
    pub fn unhold(&mut self, id: &HostId) -> Option<Holder> {
        let holder = self.holders.remove(id);
        self.count(holder.as_ref(), false);
        self.index_claim_of(id, Claim::None);
        holder
    }

    /// Records, in place of what was recorded, which clusters have a member whose machine the host of this name may be, other than that
    /// host itself. Their load balancers may route to it, so it is not eligible for any other cluster. The host need not be in the
    /// inventory.
    pub fn set_former(&mut self, name: &HostName, clusters: BTreeSet<ClusterName>) {
        if clusters.is_empty() {
            self.former.remove(name);
        } else {
            self.former.insert(name.clone(), clusters.into_iter().collect());
        }
    }

    /// The clusters that are recorded for a host of this name.
    pub fn former_clusters(&self, name: &HostName) -> impl Iterator<Item = &ClusterName> {
        self.former.get(name).into_iter().flatten()
    }

    /// Another cluster than `ours` with a member whose machine the host of this name may be.
    #[must_use]
    pub fn former_holder(&self, name: &HostName, ours: &ClusterName) -> Option<&ClusterName> {
        let clusters = self.former.get(name)?;
        clusters.iter().find(|cluster| *cluster != ours)
    }

    /// Who holds a host.
    #[must_use]
    pub fn holder(&self, id: &HostId) -> Option<&Holder> {
        self.holders.get(id)
    }

    /// All that is held, by host; hosts that the inventory does not have included.
    pub fn holders(&self) -> impl Iterator<Item = (&HostId, &Holder)> {
        self.holders.iter()
    }

    /// How many hosts the clusters of a namespace hold, without those being released.
    #[must_use]
    pub fn usage(&self, namespace: &Namespace) -> u32 {
        self.usage.get(namespace).copied().unwrap_or(0)
    }

    /// How many hosts one cluster holds, without those being released.
    pub(crate) fn usage_of(&self, cluster: &ClusterName) -> u32 {
        self.cluster_usage.get(cluster).copied().unwrap_or(0)
    }

    fn index_claim_of(&mut self, id: &HostId, claim: Claim) {
        if let Some(number) = self.slot_of(id) {
            self.index_claim(number, claim);
        }
    }

    fn count(&mut self, holder: Option<&Holder>, more: bool) {
        let Some(Holder::Cluster {
            cluster,
            role: _,
            state: MemberState::Claimed | MemberState::Bound,
        }) = holder
        else {
            return;
        };
        step(&mut self.usage, cluster.namespace(), more);
        step(&mut self.cluster_usage, cluster, more);
    }
}

fn step<K: Ord + Clone>(counts: &mut BTreeMap<K, u32>, key: &K, more: bool) {
    let count = counts.entry(key.clone()).or_default();
    *count = if more {
        count.saturating_add(1)
    } else {
        count.saturating_sub(1)
    };
    if *count == 0 {
        counts.remove(key);
    }
}
