//! Whether there is room in a site for what it reports and declares. What has no room is that site's fault: its stream ends, or its
//! call is refused, with the limit and what would help.

use ::placement::{ClusterName, HostId, HostName};

use super::{
    limits::{Limit, Limits},
    session::SessionId,
    state::Site,
    status_size,
};
use crate::{
    error::Error,
    ledger::weight,
    observed::{Changes, Cluster, Host},
    record::Record,
};

impl Site {
    /// Refuses a report for which there is no room. During a snapshot nothing is decided, so what it has not named so far
    /// makes room first.
    ///
    /// # Errors
    /// [`Error::SiteFull`].
    pub(super) fn require_room_for_report(&mut self, id: &SessionId, changes: &Changes) -> Result<(), Error> {
        if let Some(cluster) = changes
            .clusters
            .iter()
            .max_by_key(|cluster| cluster.members().len())
        {
            Limit::Members.require(&self.name, cluster.members().len(), self.limits.members)?;
        }
        let refused = match self.room_for(changes) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        if !self.forget_unnamed(id) {
            return Err(refused);
        }
        self.room_for(changes)
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
        tracing::warn!(
            site = self.name,
            hosts = unnamed.len(),
            clusters = unnamed_clusters,
            "removed what earlier reports named and the present snapshot has not named yet, to stay within the limits of the site"
        );
        self.existence.forget_unnamed(&seen.clusters);
        for id in &unnamed {
            self.marks.remove(&id.name);
            self.inventory.remove(&id.name);
        }
        self.mark_orphans(&unnamed);
        true
    }

    /// Refuses a declaration for whose record there is no room. One that declares no more than before and gets no more hosts always
    /// has room: a cluster can shrink and go in a full site.
    ///
    /// # Errors
    /// [`Error::SiteFull`].
    pub(super) fn require_room_for_record(&self, record: &Record) -> Result<(), Error> {
        match self.record(&record.cluster) {
            None => {
                let records = self.records().len() + 1;
                Limit::Records.require(&self.name, records, self.limits.clusters)?;
            }
            Some(before)
                if status_size::hosts(record) <= status_size::hosts(before)
                    && weight::spec(&record.spec) <= weight::spec(&before.spec) =>
            {
                return Ok(());
            }
            Some(_) => {}
        }
        Limit::RecordBytes.require(&self.name, self.claims.bytes_with(record), self.limits.records)
    }
}
