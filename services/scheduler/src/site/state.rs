//! The state of one site: its parts, how they begin, and what is read of them.

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use ::placement::{ClusterName, Holder, HostId, HostName, Policy, SipLabels};

use super::{
    changes::{Changed, Cursor},
    claims::{Claims, Replaced},
    claims_of_lost_ledger::{PromiseContext, Promises},
    cluster_existence::Existence,
    inventory::Inventory,
    lines::Lines,
    marks::Marks,
    notes::Notes,
    positions::{Histories, Positions},
    refused_clusters::RefusedClusters,
    session::{SessionId, Sessions},
    size_limits::Limits,
    view::View,
};
use crate::{
    error::Error,
    ledger::{Commit, History, RecordKey, SiteFence, SitePosition},
    observed::{Cluster, Host},
    record::{ClusterId, Record},
};

/// The state of one site. Copies of it do not depend on each other, which is how every order of events can be tried on it.
#[derive(Clone, Debug)]
pub struct Site {
    pub(super) name: String,
    pub(super) inventory: Inventory,
    pub(super) existence: Existence,
    pub(super) claims: Claims,
    pub(super) refused: RefusedClusters,
    pub(super) promises: Promises,
    pub(super) positions: Positions,
    pub(super) marks: Marks,
    pub(super) sessions: Sessions,
    pub(super) notes: Notes,
    pub(super) limits: Limits,
    pub(super) last_report: Option<SystemTime>,
    pub(super) lines: Arc<Lines>,
}

/// What callers read of a site besides its decisions, as its last change has left it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outline {
    pub(crate) summary: Summary,
    pub(crate) histories: Histories,
    /// Bytes of a copy of its model.
    pub(crate) copy: usize,
    /// As [`Site::records`].
    pub(crate) records: BTreeMap<ClusterName, Arc<Record>>,
}

/// A site in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Whether its snapshot is complete and its stream is up.
    pub synced: bool,
    /// Hosts that it reports.
    pub hosts: usize,
    /// Hosts that clusters hold.
    pub held_hosts: usize,
    /// Clusters with a record.
    pub clusters: usize,
    /// When it reported last.
    pub last_report: Option<SystemTime>,
    /// About how many bytes what it reports takes.
    pub inventory_bytes: usize,
    /// About how many bytes its records take.
    pub record_bytes: usize,
    /// How often a `SIPCluster` was left out of its present reports, since there was no room for it.
    pub left_out: usize,
}

impl Site {
    /// A site of which the ledger holds nothing; not synced yet.
    #[must_use]
    pub fn without_records(name: &str, policy: Policy) -> Self {
        let (records, history) = (BTreeMap::new(), History::default());
        Self::new(name.to_owned(), policy, records, Commit::NONE, None, history)
    }

    /// A site with the records that the ledger holds of it, the last of them `removed` with that commit; not synced yet.
    #[must_use]
    pub fn new(
        name: String,
        policy: Policy,
        records: BTreeMap<ClusterName, Arc<Record>>,
        removed: Commit,
        fence: Option<SiteFence>,
        history: History,
    ) -> Self {
        // Nothing that was issued before it was raised is above where it was raised to.
        let horizon = if removed == Commit::NONE {
            0
        } else {
            history.at(removed.max(history.raised())).revision()
        };
        let revisions = records.values().map(|record| record.revision);
        let raised = history.at(history.raised()).revision();
        let issued = revisions.fold(horizon.max(raised), u64::max);
        let mut inventory = Inventory::new(policy);
        let mut claims = Claims::new(horizon);
        let refused = RefusedClusters::new(records.values().map(|record| &**record));
        for record in records.into_values() {
            claims.load(record, &mut inventory);
        }
        Self {
            name,
            inventory,
            existence: Existence::default(),
            claims,
            refused,
            promises: Promises::default(),
            positions: Positions::new(history, issued),
            marks: Marks::default(),
            sessions: Sessions::new(fence),
            notes: Notes::default(),
            limits: Limits::default(),
            last_report: None,
            lines: Arc::default(),
        }
    }

    /// Forgets all that is not durable, and all that was reported: the present reporter's session ends and it reports again to
    /// what this leaves. Watchers begin anew; everything up to commit `upto` may have been decided on what is forgotten.
    pub(crate) fn reset(
        &mut self,
        records: BTreeMap<ClusterName, Arc<Record>>,
        fence: Option<SiteFence>,
        history: History,
        upto: Commit,
    ) {
        self.sessions.reset();
        let (name, policy) = (self.name.clone(), self.model().policy().clone());
        let fresh = Self::new(name, policy, records, upto, fence, history);
        let positions = self.positions.reset(history, fresh.positions.issued());
        *self = Self {
            positions,
            limits: self.limits,
            lines: Arc::clone(&self.lines),
            ..fresh
        };
    }

    /// Has so much at most from now on; what is there stays.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The key of a cluster's record.
    #[must_use]
    pub fn key(&self, cluster: &ClusterName) -> RecordKey {
        RecordKey {
            site: self.name.clone(),
            cluster: cluster.clone(),
        }
    }

    /// The record of a cluster; it may not be durable yet.
    #[must_use]
    pub fn record(&self, cluster: &ClusterName) -> Option<&Arc<Record>> {
        self.claims.get(cluster)
    }

    /// Every record, by name.
    #[must_use]
    pub fn records(&self) -> &BTreeMap<ClusterName, Arc<Record>> {
        self.claims.records()
    }

    /// Hosts as columns.
    #[must_use]
    pub fn model(&self) -> &::placement::Site {
        self.inventory.model()
    }

    /// Hosts as they were reported, by name.
    #[must_use]
    pub fn hosts(&self) -> &BTreeMap<HostName, Host> {
        self.inventory.hosts()
    }

    /// Who holds a host.
    #[must_use]
    pub fn holder(&self, id: &HostId) -> Option<&Holder> {
        self.inventory.holder(id)
    }

    /// `SIPCluster`s as they were reported, by name.
    #[must_use]
    pub fn clusters(&self) -> &BTreeMap<ClusterName, Cluster> {
        self.existence.observed()
    }

    /// `SIPCluster`s that are recorded as deleted.
    pub fn deleted_clusters(&self) -> impl Iterator<Item = &ClusterId> {
        self.existence.deleted()
    }

    /// How the site's revisions are numbered from the last staged change on.
    #[must_use]
    pub fn history(&self) -> &History {
        self.positions.history()
    }

    /// The position of the site when all up to `durable` is durable. A raise that is staged after that is not part of it.
    #[must_use]
    pub fn position(&self, durable: Commit) -> SitePosition {
        self.positions.histories().durable(durable)
    }

    /// The highest revision that this ledger has issued to the site.
    #[must_use]
    pub fn issued(&self) -> u64 {
        self.positions.issued()
    }

    /// Whether all that was issued to the site is known: a snapshot was complete since the ledger was opened.
    #[must_use]
    pub fn are_positions_complete(&self) -> bool {
        self.positions.is_complete()
    }

    /// A summary for people.
    #[must_use]
    pub fn summary(&self) -> Summary {
        Summary {
            synced: self.sessions.synced(),
            hosts: self.hosts().len(),
            held_hosts: self.claims.members(),
            clusters: self.records().len(),
            last_report: self.last_report,
            inventory_bytes: self.inventory.bytes() + self.existence.bytes(),
            record_bytes: self.claims.bytes(),
            left_out: self.existence.omitted(),
        }
    }

    /// Puts what callers read of it besides its decisions in the place of the earlier values.
    pub(crate) fn outline(&mut self, outline: &mut Outline) {
        let Outline {
            summary,
            histories,
            copy,
            records,
        } = outline;
        self.claims.publish(records);
        *summary = self.summary();
        *copy = self.model().bytes();
        histories.clone_from(self.positions.histories());
    }

    /// Refuses while the site's state is not fully known.
    ///
    /// # Errors
    /// [`Error::NotSynced`].
    pub fn require_synced(&self) -> Result<(), Error> {
        self.sessions.require_synced(&self.name)
    }

    /// Refuses a session that no longer reports the site.
    ///
    /// # Errors
    /// [`Error::Superseded`].
    pub fn require_session(&self, id: &SessionId) -> Result<(), Error> {
        self.sessions.require_current(&self.name, id)
    }

    /// Where a watcher begins that knows nothing.
    #[must_use]
    pub fn beginning(&self) -> Cursor {
        self.claims.beginning()
    }

    /// The newest state of every cluster that changed after `cursor` and up to `upto`, at most `limit` of them, in the
    /// order of revisions. A cluster that has changed again after `upto` is sent then. `None`: removals may have
    /// been missed, so the watcher must forget what it knows and begin anew.
    #[must_use]
    pub fn changes(&self, cursor: Cursor, upto: u64, limit: usize) -> Option<Vec<Changed>> {
        self.claims.changes(cursor, upto, limit)
    }

    /// All that a record is compared with.
    pub(super) fn view(&self) -> View<'_> {
        View {
            inventory: &self.inventory,
            existence: &self.existence,
            claims: &self.claims,
            promises: &self.promises,
            positions: &self.positions,
            synced: self.sessions.synced(),
        }
    }

    /// What promises are compared with, and the parts that they change.
    fn promising(&mut self) -> (&mut Promises, PromiseContext<'_>, &mut Inventory) {
        let known = PromiseContext {
            site: &self.name,
            existence: &self.existence,
            claims: &self.claims,
            positions: &self.positions,
            lines: &self.lines,
        };
        (&mut self.promises, known, &mut self.inventory)
    }

    /// Puts a record in the place of the one before it: then what was promised to the cluster, what is promised of the hosts that
    /// are free now, and which hosts are orphaned.
    pub(super) fn install(&mut self, cluster: &ClusterId, record: Option<Arc<Record>>, revision: u64) {
        let name = &cluster.name;
        let is_there = record.is_some();
        let replaced = self
            .claims
            .replace(cluster, record, revision, &mut self.inventory);
        let Replaced { before, freed } = replaced;
        let after = self.claims.get(name).map(|record| &**record);
        self.refused.replace(before.as_deref(), after);
        if let Some(record) = self.claims.get(name) {
            if !self.existence.is_of_predecessor(record) {
                self.promises.take_over(record);
            }
        } else {
            self.existence.forget(name);
            match before.as_deref() {
                Some(before) if self.existence.is_recreated(before) => self.renew_promises(name),
                Some(_) | None => self.withdraw_promises(name),
            }
        }
        if !freed.is_empty() {
            let (promises, known, inventory) = self.promising();
            promises.hold_freed(known, inventory);
        }
        self.mark_orphans(&freed);
        if before.is_some() != is_there {
            self.mark_labelled(name);
        }
    }

    /// Holds what statuses promise, when a snapshot is complete and before anything is decided.
    pub(super) fn renew_all_promises(&mut self) {
        let (promises, known, inventory) = self.promising();
        let freed = promises.renew_all(known, inventory);
        self.refused.change();
        self.mark_orphans(&freed);
    }

    /// Holds what a cluster's status promises, after one of the two has changed.
    fn renew_promises(&mut self, name: &ClusterName) {
        let freed = self.take_promises(name);
        self.hold_promises(&freed);
    }

    /// Records that a cluster's status has changed. What it promises is held by [`hold_promises`](Self::hold_promises), which is
    /// given the hosts that this returns.
    pub(super) fn take_promises(&mut self, name: &ClusterName) -> Vec<HostId> {
        if !self.sessions.synced() {
            return self.promises.withdraw(name, &self.claims, &mut self.inventory);
        }
        let (promises, known, inventory) = self.promising();
        promises.renew(name, known, inventory)
    }

    /// Holds what statuses promise that have changed, before anything is decided. `freed`: hosts that no cluster holds since they have.
    pub(super) fn hold_promises(&mut self, freed: &[HostId]) {
        let (promises, known, inventory) = self.promising();
        promises.hold_due(known, inventory);
        self.note_freed(freed);
    }

    /// Releases what is held for a cluster but for what its record holds.
    pub(super) fn withdraw_promises(&mut self, name: &ClusterName) {
        let freed = self.promises.withdraw(name, &self.claims, &mut self.inventory);
        self.note_freed(&freed);
    }

    /// Records that no cluster holds these hosts now.
    fn note_freed(&mut self, freed: &[HostId]) {
        if !freed.is_empty() {
            self.refused.change();
        }
        self.mark_orphans(freed);
    }

    /// Marks the hosts that name a cluster, after it came or went.
    pub(super) fn mark_labelled(&mut self, cluster: &ClusterName) {
        let hosts: Vec<HostId> = self.inventory.labelled(cluster).cloned().collect();
        self.mark_orphans(&hosts);
    }

    /// Marks hosts as orphaned or not: whose labels name a `SIPCluster` that does not exist.
    pub(super) fn mark_orphans(&mut self, hosts: &[HostId]) {
        for id in hosts {
            let labels = self.inventory.reported(id).map(|host| &host.facts().sip_labels);
            let names_nobody = match labels {
                Some(SipLabels::Complete { cluster, role: _ }) => !self.exists(cluster),
                Some(SipLabels::None | SipLabels::Partial) | None => false,
            };
            let orphaned = names_nobody && self.sessions.synced();
            if orphaned != matches!(self.inventory.holder(id), Some(Holder::Orphaned)) {
                self.refused.change();
            }
            self.inventory.set_orphaned(id, orphaned);
        }
    }

    /// Whether there is such a `SIPCluster`, or an agent has declared one that was not observed yet.
    pub(super) fn exists(&self, cluster: &ClusterName) -> bool {
        self.existence.exists(cluster, self.claims.contains(cluster))
    }
}
