//! Whether there is room in a site for what it reports and declares. What has no room is that site's fault: its stream ends, or its
//! call is refused, with the limit and what would help.

use std::collections::{BTreeMap, BTreeSet};

use ::placement::{ClusterName, HostId, HostName, Namespace};

use super::{
    session::SessionId,
    size_limits::{Limit, Limits},
    state::Site,
    status_size,
};
use crate::{
    error::Error,
    ledger::weight,
    observed::{Changes, Cluster, Host},
    record::Record,
};

/// Minimum number of bytes that an observed cluster counts for.
const MIN_OBSERVED_BYTES: usize = 4 << 10;

/// Members that come in the place of others.
fn in_place_of_others(before: &Record, after: &Record) -> usize {
    let members = after.members.iter();
    let new = members.filter(|(id, _)| !before.members.contains_key(*id));
    new.filter(|(_, member)| member.replaces.is_some()).count()
}

impl Site {
    /// Refuses a report for which there is no room. During a snapshot nothing is decided, so what it has not named so far
    /// makes room first. Clusters that hold nothing, which any tenant can make, are left out instead.
    ///
    /// # Errors
    /// [`Error::SiteFull`].
    pub(super) fn require_room_for_report(
        &mut self,
        id: &SessionId,
        changes: &mut Changes,
    ) -> Result<(), Error> {
        if let Some(cluster) = changes
            .clusters
            .iter()
            .max_by_key(|cluster| cluster.members().len())
        {
            Limit::Members.require(&self.name, cluster.members().len(), self.limits.members)?;
        }
        self.omit_excess(id, &mut changes.clusters);
        let Err(mut refused) = self.room_for(changes) else {
            return Ok(());
        };
        if self.forget_unnamed(id) {
            match self.room_for(changes) {
                Ok(()) => return Ok(()),
                Err(still) => refused = still,
            }
        }
        if [Limit::Clusters, Limit::Inventory]
            .iter()
            .any(|limit| limit.is_of(&refused))
        {
            for idle in self.idle_clusters() {
                self.existence.forget_observed(&idle);
                if self.room_for(changes).is_ok() {
                    return Ok(());
                }
            }
        }
        Err(refused)
    }

    /// Leaves out clusters that hold nothing and are more than the share of their namespace.
    fn omit_excess(&mut self, id: &SessionId, clusters: &mut Vec<Cluster>) {
        let mut taken = self.taken(clusters);
        if taken.iter().all(|taken| *taken) {
            return;
        }
        if let Some(seen) = self.sessions.snapshot_mut(id)
            && !seen.forgotten
        {
            self.existence.forget_unnamed(&seen.clusters);
            seen.forgotten = true;
            taken = self.taken(clusters);
        }
        let mut taken = taken.into_iter();
        clusters.retain(|cluster| {
            let name = &cluster.id().name;
            let is_taken = taken.next().unwrap_or(true);
            if !is_taken && self.existence.omit(name) && let Some(withheld) = self.lines.left_out.line() {
                tracing::warn!(site = self.name, cluster = %name, withheld, "ignoring this and further SIPClusters without hosts, which get none: their namespace has more than its share of the limit `clusters`. Delete SIPClusters of that namespace that are not needed, or start the scheduler with a higher --site-clusters");
            }
            is_taken
        });
    }

    /// Whether there is room for each cluster after those before it. There always is for one that holds something, or is observed
    /// already.
    fn taken(&self, clusters: &[Cluster]) -> Vec<bool> {
        let observed = self.existence.shares();
        let mut names = BTreeSet::new();
        let mut own: BTreeMap<&Namespace, usize> = BTreeMap::new();
        let mut bytes = self.inventory.bytes() + self.existence.bytes();
        let clusters = clusters.iter().map(|cluster| {
            let name = &cluster.id().name;
            if self.existence.get(name).is_some() || names.contains(name) {
                return true;
            }
            let own = own.entry(name.namespace()).or_default();
            let (all, of_namespace) = (
                observed.total().clusters + names.len() + 1,
                observed.get(name.namespace()).clusters + *own + 1,
            );
            let has_room = all + of_namespace <= self.limits.clusters
                && bytes + cluster.bytes() <= self.limits.inventory;
            let is_taken = has_room || self.holds_something(cluster);
            if is_taken {
                *own += 1;
                bytes += cluster.bytes();
                names.insert(name);
            }
            is_taken
        });
        clusters.collect()
    }

    /// Whether the cluster holds hosts, or has declared that it wants some.
    fn holds_something(&self, cluster: &Cluster) -> bool {
        let name = &cluster.id().name;
        !cluster.members().is_empty() || self.claims.contains(name) || self.is_labelled(name)
    }

    /// Whether a host has the labels of this cluster.
    fn is_labelled(&self, name: &ClusterName) -> bool {
        self.inventory.labelled(name).next().is_some()
    }

    /// Observed clusters that hold nothing, those of each namespace together: first those of the namespace that has the most clusters.
    fn idle_clusters(&self) -> Vec<Vec<ClusterName>> {
        let mut idle: BTreeMap<&Namespace, Vec<ClusterName>> = BTreeMap::new();
        for (name, cluster) in self.existence.observed() {
            if !self.holds_something(cluster) {
                idle.entry(name.namespace()).or_default().push(name.clone());
            }
        }
        let order = self.existence.shares().largest_first();
        order
            .iter()
            .filter_map(|namespace| idle.remove(namespace))
            .collect()
    }

    fn room_for(&self, changes: &Changes) -> Result<(), Error> {
        let Limits {
            sites: _,
            hosts,
            clusters,
            members: _,
            inventory,
            records: _,
        } = self.limits;
        // Names of hosts that cannot be read are kept while a snapshot lasts.
        let known = self.inventory.hosts();
        let is_new = |name: &&HostName| !known.contains_key(*name);
        let names = changes.hosts.iter().map(|host| &host.id().name);
        let new = names.chain(&changes.unreadable).filter(is_new).count();
        let named = self.sessions.named_hosts();
        Limit::Hosts.require(&self.name, known.len().max(named) + new, hosts)?;
        let observed = self.existence.observed();
        let names = changes.clusters.iter().map(|cluster| &cluster.id().name);
        let new = names
            .filter(|name: &&ClusterName| !observed.contains_key(*name))
            .count();
        Limit::Clusters.require(&self.name, observed.len() + new, clusters)?;
        let new_clusters = changes.clusters.iter().map(|cluster| {
            let before = observed.get(&cluster.id().name).map_or(0, Cluster::bytes);
            cluster.bytes().saturating_sub(before)
        });
        let new = self.inventory.bytes_of_more(&changes.hosts) + new_clusters.sum::<usize>();
        if new == 0 {
            // What makes it no larger is taken, also where it is over the limit.
            return Ok(());
        }
        let bytes = self.inventory.bytes() + self.existence.bytes() + new;
        Limit::Inventory.require(&self.name, bytes, inventory)
    }

    /// Forgets what earlier sessions have reported and the present snapshot has not named so far, but for hosts that are held. Whether
    /// there was anything to forget: only in a snapshot.
    fn forget_unnamed(&mut self, id: &SessionId) -> bool {
        let Some(seen) = self.sessions.snapshot(id) else {
            return false;
        };
        let unheld = |host: &&Host| self.inventory.holding_cluster(host.id()).is_none();
        let hosts = self.inventory.hosts().values().filter(unheld);
        let unnamed = hosts.map(Host::id).filter(|id| !seen.hosts.contains(&id.name));
        let unnamed: Vec<HostId> = unnamed.cloned().collect();
        let clusters = self.existence.observed().keys();
        let unnamed_clusters = clusters.filter(|name| !seen.clusters.contains(*name)).count();
        if unnamed.is_empty() && unnamed_clusters == 0 {
            return false;
        }
        if let Some(withheld) = self.lines.unnamed.line() {
            tracing::warn!(
                site = self.name,
                hosts = unnamed.len(),
                clusters = unnamed_clusters,
                withheld,
                "removed hosts and SIPClusters of earlier reports that the present snapshot has not listed yet, because the site is at its limits"
            );
        }
        self.existence.forget_unnamed(&seen.clusters);
        for id in &unnamed {
            self.marks.remove(&id.name);
            self.inventory.remove(&id.name);
        }
        self.mark_orphans(&unnamed);
        true
    }

    /// Refuses a declaration for whose record there is no room. One that declares no more than before and gets no more hosts always
    /// has room: a cluster can shrink and go in a full site. What is new or grows has as much room as the share of its namespace.
    ///
    /// # Errors
    /// [`Error::SiteFull`].
    pub(super) fn require_room_for_record(&self, record: &Record) -> Result<(), Error> {
        let namespace = record.cluster.namespace();
        let (all, own) = self.claims.shares_with(record);
        match self.record(&record.cluster) {
            None => {
                self.require_room_for_cluster(&record.cluster)?;
                Limit::Records.require_share(
                    &self.name,
                    namespace,
                    all.clusters,
                    own.clusters,
                    self.limits.clusters,
                )?;
            }
            Some(before)
                if status_size::hosts(record)
                    <= status_size::hosts(before) + in_place_of_others(before, record)
                    && weight::spec(&record.spec) <= weight::spec(&before.spec) =>
            {
                return Ok(());
            }
            Some(_) => {}
        }
        Limit::RecordBytes.require_share(&self.name, namespace, all.bytes, own.bytes, self.limits.records)
    }

    /// Refuses a cluster that is not observed, and that would be left out of a report.
    fn require_room_for_cluster(&self, name: &ClusterName) -> Result<(), Error> {
        if self.existence.get(name).is_some() || self.is_labelled(name) {
            return Ok(());
        }
        let bytes = self.inventory.bytes() + self.existence.bytes() + MIN_OBSERVED_BYTES;
        Limit::Inventory.require(&self.name, bytes, self.limits.inventory)?;
        let (shares, namespace) = (self.existence.shares(), name.namespace());
        let (all, own) = (shares.total().clusters, shares.get(namespace).clusters);
        Limit::Clusters.require_share(&self.name, namespace, all + 1, own + 1, self.limits.clusters)
    }
}
