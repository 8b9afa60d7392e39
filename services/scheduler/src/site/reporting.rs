//! Who reports, and how what is reported goes into the parts. Claims are not touched here: each change names the clusters whose
//! records must be settled against it.

use std::{collections::BTreeSet, time::SystemTime};

use ::placement::{ClusterName, HostId, HostName, Policy};

use super::{
    marks::HostFault,
    notes::Note,
    positions::Raise,
    session::{Opened, Session, SessionId},
    staging::{Author, site_entry, stage_site_entry},
    state::Site,
};
use crate::{
    error::Error,
    ledger::{Commit, Fence, SiteFence, SitePosition, TooLarge, commit::Permit},
    observed::{Changes, Cluster, Host},
    policy,
    record::ClusterId,
};

impl Site {
    /// Admits a new reporter, which must send a snapshot first. It may be told of that when the commit is
    /// durable, so that an older reporter is refused after a restart too.
    ///
    /// # Errors
    /// [`Error::Superseded`] when a later election has reported already; [`Error::TooLarge`].
    pub fn open_session(
        &mut self,
        fence: &Fence,
        author: &Author<'_>,
        permit: Permit,
    ) -> Result<(Session, Commit), Error> {
        let mut sessions = self.sessions.clone();
        let opened = sessions.open(&self.name, fence, author.now);
        let Opened {
            session,
            raised,
            replaced,
        } = match opened {
            Ok(opened) => opened,
            Err(error) => {
                // That it was refused is recorded: another Lease waits from its first try on.
                self.sessions = sessions;
                return Err(error);
            }
        };
        let commit = match raised {
            Some((fence, why)) => self.stage_fence(Some(fence), &why, author, permit)?,
            None => Commit::NONE,
        };
        self.sessions = sessions;
        self.existence.begin_stream();
        if let Some(replaced) = replaced {
            replaced.cancel();
        }
        Ok((session, commit))
    }

    /// Forgets which reporters were admitted, and ends the present one's session. Returns the latest of them, and the commit
    /// of the change.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub fn reset_fence(
        &mut self,
        author: &Author<'_>,
        permit: Permit,
    ) -> Result<Option<(Fence, Commit)>, Error> {
        let Some(SiteFence { highest, retired: _ }) = self.sessions.fence() else {
            self.sessions.reset();
            return Ok(None);
        };
        let why = format!(
            "the fence is reset: reporter {highest} is removed, and the next reporter is accepted whatever its Lease"
        );
        let commit = self.stage_fence(None, &why, author, permit)?;
        self.sessions.reset();
        Ok(Some((highest, commit)))
    }

    fn stage_fence(
        &self,
        fence: Option<SiteFence>,
        why: &str,
        author: &Author<'_>,
        permit: Permit,
    ) -> Result<Commit, TooLarge> {
        if let Some(withheld) = self.lines.fences.line() {
            tracing::warn!(site = self.name, caller = author.caller, withheld, "{why}");
        }
        let entry = site_entry(&self.name, None, why, author);
        stage_site_entry(entry, fence, self.history(), permit)
    }

    /// Takes in what a reporter has seen. Returns what must be durable before it is admitted.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub fn seen(
        &mut self,
        seen: SitePosition,
        author: &Author<'_>,
        permit: Permit,
    ) -> Result<Commit, TooLarge> {
        if !self.positions.is_beyond(seen) {
            return Ok(Commit::NONE);
        }
        if self.positions.is_complete() || !self.positions.is_possible(seen) {
            if let Some(withheld) = self.lines.not_issued.line() {
                tracing::warn!(site = self.name, %seen, issued = self.issued(), withheld, "the reporter states a position that was not issued: the scheduler ignores it");
            }
            return Ok(Commit::NONE);
        }
        self.raise_lost(seen, "its reporter states", author, permit)
    }

    /// Raises the position above what is shown: the ledger was lost or restored.
    fn raise_lost(
        &mut self,
        shown: SitePosition,
        who: &str,
        author: &Author<'_>,
        permit: Permit,
    ) -> Result<Commit, TooLarge> {
        let cause = self.positions.loss();
        let raise = Raise { shown, cause, who };
        self.positions
            .raise(&self.name, raise, &self.lines.raised, author, permit)
    }

    /// Ends a session: nothing is placed in the site until another has reported.
    pub fn close_session(&mut self, id: &SessionId, now: SystemTime) {
        self.sessions.close(id, now);
    }

    /// Takes hosts and `SIPCluster`s in. Returns the clusters whose records must be settled.
    ///
    /// # Errors
    /// [`Error::Superseded`] when the session is no longer the site's; [`Error::SiteFull`].
    pub fn report(
        &mut self,
        id: &SessionId,
        mut changes: Changes,
        time: SystemTime,
    ) -> Result<BTreeSet<ClusterName>, Error> {
        // Of the present session only: another's is refused for that.
        self.sessions.seen(&self.name, id, time)?;
        self.require_room_for_report(id, &mut changes)?;
        let Changes {
            hosts,
            unreadable,
            deleted_hosts,
            clusters,
            deleted_clusters,
            faults: _,
        } = changes;
        if let Some(seen) = self.sessions.seen(&self.name, id, time)? {
            seen.hosts.extend(hosts.iter().map(|host| host.id().name.clone()));
            seen.hosts.extend(unreadable);
            let names = clusters.iter().map(|cluster| cluster.id().name.clone());
            seen.clusters.extend(names);
        }
        self.last_report = Some(time);
        let mut touched = BTreeSet::new();
        if !hosts.is_empty() || !deleted_hosts.is_empty() {
            self.refused.change();
        }
        for host in hosts {
            self.upsert_host(host, &mut touched);
        }
        for deleted in deleted_hosts {
            if self.inventory.reported(&deleted).is_some() {
                self.remove_host(&deleted.name, &mut touched);
            }
        }
        let mut freed = Vec::new();
        for cluster in clusters {
            freed.extend(self.observe_cluster(cluster, time, &mut touched));
        }
        for deleted in deleted_clusters {
            self.delete_cluster(&deleted, time, &mut touched);
        }
        self.hold_promises(&freed);
        if !self.sessions.synced() {
            // Until the snapshot is complete, what it has not named may exist; its end settles every record.
            touched.clear();
        }
        Ok(touched)
    }

    /// Ends the snapshot: what it did not name is gone. The site's position is raised above what it shows, and what statuses
    /// promise and no record states is held, before anything is decided. Returns the clusters whose records must be settled,
    /// which are all of them.
    ///
    /// # Errors
    /// [`Error::Superseded`], or [`Error::Protocol`] when the snapshot has ended already; [`Error::TooLarge`].
    pub fn complete_snapshot(
        &mut self,
        id: &SessionId,
        author: &Author<'_>,
        permit: Permit,
    ) -> Result<BTreeSet<ClusterName>, Error> {
        let now = author.now;
        let seen = self.sessions.complete(&self.name, id, now)?;
        let mut touched: BTreeSet<ClusterName> = self.records().keys().cloned().collect();
        let hosts = self.inventory.hosts().keys();
        let gone: Vec<HostName> = hosts
            .filter(|name| !seen.hosts.contains(*name))
            .cloned()
            .collect();
        for name in gone {
            self.remove_host(&name, &mut touched);
        }
        self.existence.retain(&seen.clusters);
        if let Err(error) = self.take_position(author, permit) {
            // Nothing is decided on a position that the site is beyond.
            self.sessions.close(id, now);
            return Err(error.into());
        }
        self.renew_all_promises();
        self.existence.note_all(self.claims.records().keys(), now);
        let named = self.inventory.labelled_clusters().into_iter();
        let named: Vec<ClusterName> = named.cloned().collect();
        for cluster in named {
            self.mark_labelled(&cluster);
        }
        Ok(touched)
    }

    /// Raises the position above all that a complete snapshot shows, if the ledger may have been lost. From then on what the
    /// site has been issued is known.
    fn take_position(&mut self, author: &Author<'_>, permit: Permit) -> Result<(), TooLarge> {
        if !self.positions.is_complete() {
            let shown = self.highest_position();
            if self.positions.is_beyond(shown) {
                self.raise_lost(shown, "its hosts and SIPClusters state", author, permit)?;
            }
        }
        self.positions.complete();
        Ok(())
    }

    fn upsert_host(&mut self, mut host: Host, touched: &mut BTreeSet<ClusterName>) {
        let id = host.id().clone();
        if self
            .inventory
            .incarnation(&id.name)
            .is_some_and(|known| *known != id)
        {
            self.remove_host(&id.name, touched);
        }
        let problem = self
            .marks
            .judge(&self.name, &host, &self.positions, &mut self.notes);
        host.set_problem(problem);
        let mut shows_others = true;
        if let Some(before) = self.inventory.hosts().get(&id.name) {
            self.notes.compare(before.facts(), host.facts());
            touched.extend(self.recorded(before.details().named.as_ref()));
            shows_others = before.details().addresses != host.details().addresses;
        }
        touched.extend(self.recorded(host.details().named.as_ref()));
        touched.extend(self.recorded(self.inventory.holding_cluster(&id)));
        self.inventory.insert(host);
        // A member may have lost an address that this host shows now.
        if shows_others {
            let routed_by = self.inventory.routed_by(&id.name, usize::MAX);
            let routed_by = routed_by.into_iter();
            touched.extend(routed_by.filter_map(|cluster| self.recorded(Some(cluster))));
        }
        self.mark_orphans(&[id]);
    }

    fn remove_host(&mut self, name: &HostName, touched: &mut BTreeSet<ClusterName>) {
        self.marks.remove(name);
        if let Some(host) = self.inventory.remove(name) {
            touched.extend(self.recorded(host.details().named.as_ref()));
            touched.extend(self.recorded(self.inventory.holding_cluster(host.id())));
            self.mark_orphans(std::slice::from_ref(host.id()));
        }
    }

    /// The cluster, if it has a record.
    fn recorded(&self, cluster: Option<&ClusterName>) -> Option<ClusterName> {
        cluster.filter(|cluster| self.claims.contains(cluster)).cloned()
    }

    /// Returns the hosts that no cluster holds since its status has changed.
    fn observe_cluster(
        &mut self,
        cluster: Cluster,
        now: SystemTime,
        touched: &mut BTreeSet<ClusterName>,
    ) -> Vec<HostId> {
        let name = cluster.id().name.clone();
        let freed = if self.existence.observe(cluster) {
            self.take_promises(&name)
        } else {
            Vec::new()
        };
        self.note_existence(&name, now, touched);
        freed
    }

    fn delete_cluster(&mut self, cluster: &ClusterId, now: SystemTime, touched: &mut BTreeSet<ClusterName>) {
        if self.existence.delete(cluster) {
            self.withdraw_promises(&cluster.name);
            self.note_existence(&cluster.name, now, touched);
        }
    }

    fn note_existence(&mut self, name: &ClusterName, now: SystemTime, touched: &mut BTreeSet<ClusterName>) {
        let recorded = self.claims.contains(name);
        let changed = self.existence.note(name, recorded, self.sessions.synced(), now);
        touched.extend(changed.then(|| name.clone()));
        self.mark_labelled(name);
    }

    /// Faults of hosts in the last report that were not taken yet.
    pub fn take_faults(&mut self) -> Vec<HostFault> {
        self.marks.take()
    }

    /// What is to be written to the log since the last time.
    pub fn take_notes(&mut self) -> Vec<Note> {
        self.notes.take(&self.name, &self.lines.notes)
    }

    /// Writes a note to the log.
    pub fn log(&mut self, note: Note, author: &Author<'_>, permit: Permit) {
        let Note { host, text } = note;
        let holder = self.inventory.holding_cluster(&host);
        let record = holder.and_then(|cluster| self.record(cluster));
        let cluster = record.filter(|_| self.inventory.reported(&host).is_some());
        self.log_entry(cluster.map(|record| record.id()), &text, author, permit);
    }

    /// Writes an entry that no caller requested; one that the ledger does not take is only logged.
    fn log_entry(&self, cluster: Option<ClusterId>, what: &str, author: &Author<'_>, permit: Permit) {
        let entry = site_entry(&self.name, cluster, what, author);
        if let Err(error) = stage_site_entry(entry, self.sessions.fence(), self.history(), permit) {
            tracing::error!(site = self.name, action = author.action, %error, "not written to the log of decisions");
        }
    }

    /// Decides by another policy from now on. Returns the clusters whose records must be settled; none when it is the same
    /// policy.
    pub fn set_policy(&mut self, next: Policy, author: &Author<'_>, permit: Permit) -> Vec<ClusterName> {
        if *self.model().policy() == next {
            return Vec::new();
        }
        let what = policy::difference(self.model().policy(), &next);
        tracing::info!(site = self.name, what, "the site has another policy");
        self.inventory.set_policy(next);
        self.refused.change();
        self.log_entry(None, &what, author, permit);
        self.records().keys().cloned().collect()
    }
}
