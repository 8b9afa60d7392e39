//! Which `SIPCluster`s exist. The site's reports say so, and nobody else: a call may have been in flight for long, and may
//! speak for one that is gone.
//!
//! A uid never comes back. So a declaration of one that was reported and deleted is refused, whenever it arrives. One that was
//! not reported yet is accepted: it may be new. If no report shows it in [`UNOBSERVED_LIMIT`], what it has claimed is released.
//!
//! Of a record's `SIPCluster` the site may say three things: it is *observed*; it is *missing*, since a complete snapshot or a
//! deletion says so; or it is *unobserved*, which a declared one is too until it is reported.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::{Duration, SystemTime},
};

use ::placement::{ClusterName, Namespace};

use super::shares::Shares;
use crate::{
    error::Error,
    observed::Cluster,
    record::{ClusterId, Record},
};

/// How long a synced site may not show the `SIPCluster` of a record that has no labelled host before its claims are given
/// back. Nothing is freed by that: the cluster agent writes and confirms each release.
pub const UNOBSERVED_LIMIT: Duration = Duration::from_mins(10);
/// Maximum number of deleted `SIPCluster`s that the site records. A call that is later than all of these is accepted, and
/// [`UNOBSERVED_LIMIT`] ends what it has claimed.
const MAX_DELETED_CLUSTERS: usize = 4096;

/// The `SIPCluster`s of a site, and those that records are of and that it does not show.
#[derive(Clone, Debug, Default)]
pub(super) struct Existence {
    observed: BTreeMap<ClusterName, Cluster>,
    /// What each namespace has of all that are observed.
    shares: Shares,
    left_out: LeftOut,
    /// Clusters that have a record and no `SIPCluster`.
    missing: BTreeSet<ClusterName>,
    /// Clusters that have a record and whose `SIPCluster` the reports do not show, with the time since when.
    unobserved: BTreeMap<ClusterName, SystemTime>,
    deleted: Deleted,
}

/// `SIPCluster`s that the present stream has reported and that are not among those observed, since there is no room for them.
#[derive(Clone, Debug, Default)]
struct LeftOut {
    /// How often one was left out.
    reports: usize,
    /// In which namespaces.
    namespaces: BTreeSet<Namespace>,
}

/// `SIPCluster`s that were reported and deleted: the latest ones.
#[derive(Clone, Debug, Default)]
struct Deleted {
    known: BTreeSet<ClusterId>,
    order: VecDeque<ClusterId>,
}

impl Deleted {
    fn insert(&mut self, deleted: ClusterId) {
        if deleted.uid.is_empty() || !self.known.insert(deleted.clone()) {
            return;
        }
        self.order.push_back(deleted);
        if self.order.len() > MAX_DELETED_CLUSTERS
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// It is reported again: a reporter was behind the one before it.
    fn remove(&mut self, back: &ClusterId) {
        if self.known.remove(back) {
            self.order.retain(|deleted| deleted != back);
        }
    }
}

/// Whether a `SIPCluster` was made before another one.
pub(super) fn is_older(this: Option<SystemTime>, other: Option<SystemTime>) -> bool {
    this.zip(other).is_some_and(|(this, other)| this < other)
}

impl Existence {
    /// `SIPCluster`s as they were reported.
    pub(super) fn observed(&self) -> &BTreeMap<ClusterName, Cluster> {
        &self.observed
    }

    /// About how many bytes all that are observed take.
    pub(super) fn bytes(&self) -> usize {
        self.shares.total().bytes
    }

    /// What each namespace has of those that are observed.
    pub(super) fn shares(&self) -> &Shares {
        &self.shares
    }

    /// Another stream of reports begins.
    pub(super) fn begin_stream(&mut self) {
        self.left_out = LeftOut::default();
    }

    /// Records that a `SIPCluster` is reported and left out. Returns whether it is the first one of the stream.
    pub(super) fn omit(&mut self, name: &ClusterName) -> bool {
        let LeftOut { reports, namespaces } = &mut self.left_out;
        *reports += 1;
        if !namespaces.contains(name.namespace()) {
            namespaces.insert(name.namespace().clone());
        }
        *reports == 1
    }

    /// How many reported `SIPCluster`s of the present stream were left out; one that is reported again counts again.
    pub(super) fn omitted(&self) -> usize {
        self.left_out.reports
    }

    /// Forgets `SIPCluster`s without taking them for deleted: there is no room for them.
    pub(super) fn forget_observed(&mut self, names: &[ClusterName]) {
        for name in names {
            if let Some(gone) = self.observed.remove(name) {
                self.shares.remove(name, gone.bytes());
                self.omit(name);
            }
        }
    }

    /// The `SIPCluster` of that name as it was reported.
    pub(super) fn get(&self, name: &ClusterName) -> Option<&Cluster> {
        self.observed.get(name)
    }

    /// Whether the `SIPCluster` of that name has this uid, as far as the site has reported.
    pub(super) fn has_uid(&self, name: &ClusterName, uid: &str) -> bool {
        self.observed
            .get(name)
            .is_some_and(|observed| observed.id().uid == uid)
    }

    /// Whether there is such a `SIPCluster`, or an agent has declared one that was not observed yet, or it may be one that is left out.
    /// `recorded`: it has a record.
    pub(super) fn exists(&self, name: &ClusterName, recorded: bool) -> bool {
        self.observed.contains_key(name)
            || if recorded {
                !self.missing.contains(name)
            } else {
                self.left_out.namespaces.contains(name.namespace())
            }
    }

    /// Whether a record's `SIPCluster` does not exist.
    pub(super) fn is_missing(&self, name: &ClusterName) -> bool {
        self.missing.contains(name)
    }

    /// Whether the `SIPCluster` of that name is another than the record's, and not one from before it that the reports still
    /// show.
    pub(super) fn is_recreated(&self, record: &Record) -> bool {
        let Some(observed) = self.observed.get(&record.cluster) else {
            return false;
        };
        observed.id().uid != record.uid && !is_older(observed.created(), record.created)
    }

    /// Whether the record only releases what an earlier `SIPCluster` of the name held. Hosts that the site shows for the present `SIPCluster` are
    /// not released with it; the present one takes them over when it is declared.
    pub(super) fn is_of_predecessor(&self, record: &Record) -> bool {
        record.releasing && self.is_recreated(record)
    }

    /// Whether the site shows a newer generation or uid of the `SIPCluster` than the record has. Members that are surplus by such a record, for
    /// example one of a backup, may be wanted now.
    pub(super) fn is_outdated(&self, record: &Record) -> bool {
        let observed = self.observed.get(&record.cluster);
        self.is_recreated(record)
            || observed.is_some_and(|observed| observed.generation() > record.generation)
    }

    /// Whether a `SIPCluster` was reported and deleted, as far as it is recorded.
    pub(super) fn is_deleted(&self, cluster: &ClusterId) -> bool {
        self.deleted.known.contains(cluster)
    }

    /// `SIPCluster`s that are recorded as deleted.
    pub(super) fn deleted(&self) -> impl Iterator<Item = &ClusterId> {
        self.deleted.known.iter()
    }

    /// Refuses who speaks for a `SIPCluster` that was reported and deleted, or was made before the one that exists.
    ///
    /// # Errors
    /// [`Error::ClusterGone`].
    pub(super) fn require_not_deleted(
        &self,
        cluster: &ClusterId,
        created: Option<SystemTime>,
    ) -> Result<(), Error> {
        let observed = self.observed.get(&cluster.name);
        let replaced = observed.is_some_and(|observed| {
            observed.id().uid != cluster.uid && is_older(created, observed.created())
        });
        if replaced || self.is_deleted(cluster) {
            return Err(Error::ClusterGone {
                cluster: cluster.name.to_string(),
                uid: cluster.uid.clone(),
            });
        }
        Ok(())
    }

    /// Records that a `SIPCluster` exists; one that it has replaced under its name is recorded as deleted. Returns whether its
    /// status is another than before.
    pub(super) fn observe(&mut self, cluster: Cluster) -> bool {
        self.deleted.remove(cluster.id());
        let id = cluster.id().clone();
        let is_same_status = |before: &Cluster| before.has_status_of(&cluster);
        let is_same = self.observed.get(&id.name).is_some_and(is_same_status);
        self.shares.add(&id.name, cluster.bytes());
        if let Some(before) = self.observed.insert(id.name.clone(), cluster) {
            self.shares.remove(&id.name, before.bytes());
            if before.id().uid != id.uid {
                self.deleted.insert(before.id().clone());
            }
        }
        !is_same
    }

    /// Records that a `SIPCluster` is deleted. Returns whether it was the one of its name.
    pub(super) fn delete(&mut self, cluster: &ClusterId) -> bool {
        self.deleted.insert(cluster.clone());
        let was_observed = self.has_uid(&cluster.name, &cluster.uid);
        if was_observed && let Some(gone) = self.observed.remove(&cluster.name) {
            self.shares.remove(&cluster.name, gone.bytes());
        }
        was_observed
    }

    /// Deletes the `SIPCluster`s that a complete snapshot does not name.
    pub(super) fn retain(&mut self, named: &BTreeSet<ClusterName>) {
        let (stay, go) = std::mem::take(&mut self.observed)
            .into_iter()
            .partition(|(name, _)| named.contains(name));
        self.observed = stay;
        for cluster in go.into_values() {
            self.shares.remove(&cluster.id().name, cluster.bytes());
            self.deleted.insert(cluster.id().clone());
        }
    }

    /// Forgets those that a snapshot has not named so far, without taking them for deleted: if they exist, it will name them.
    pub(super) fn forget_unnamed(&mut self, named: &BTreeSet<ClusterName>) {
        let shares = &mut self.shares;
        self.observed.retain(|name, cluster| {
            let is_named = named.contains(name);
            if !is_named {
                shares.remove(name, cluster.bytes());
            }
            is_named
        });
    }

    /// Notes whether the `SIPCluster` of a name is missing. `recorded`: it has a record. Returns whether that changed for its
    /// record.
    pub(super) fn note(&mut self, name: &ClusterName, recorded: bool, synced: bool, now: SystemTime) -> bool {
        let changed = if recorded && !self.observed.contains_key(name) {
            self.unobserved.insert(name.clone(), now);
            synced && self.missing.insert(name.clone())
        } else {
            self.unobserved.remove(name);
            self.missing.remove(name)
        };
        recorded && changed
    }

    /// Notes which records have no `SIPCluster` in the complete snapshot.
    pub(super) fn note_all<'a>(&mut self, recorded: impl Iterator<Item = &'a ClusterName>, now: SystemTime) {
        let missing = recorded.filter(|name| !self.observed.contains_key(*name));
        self.missing = missing.cloned().collect();
        self.unobserved = self.missing.iter().map(|name| (name.clone(), now)).collect();
    }

    /// Records that an agent has declared a `SIPCluster`, which may not have been reported yet.
    pub(super) fn declare(&mut self, cluster: &ClusterId, now: SystemTime) {
        self.missing.remove(&cluster.name);
        if self.has_uid(&cluster.name, &cluster.uid) {
            self.unobserved.remove(&cluster.name);
        } else {
            self.unobserved.insert(cluster.name.clone(), now);
        }
    }

    /// Notes that a record's `SIPCluster` does not exist.
    pub(super) fn set_missing(&mut self, name: &ClusterName) {
        self.missing.insert(name.clone());
    }

    /// The cluster no longer has a record.
    pub(super) fn forget(&mut self, name: &ClusterName) {
        self.missing.remove(name);
        self.unobserved.remove(name);
    }

    /// Clusters whose `SIPCluster` the site has not shown for [`UNOBSERVED_LIMIT`].
    pub(super) fn overdue(&self, now: SystemTime) -> impl Iterator<Item = &ClusterName> {
        let is_over = move |since: SystemTime| {
            let unobserved = now.duration_since(since);
            unobserved.is_ok_and(|unobserved| unobserved >= UNOBSERVED_LIMIT)
        };
        let unobserved = self.unobserved.iter();
        unobserved.filter_map(move |(name, since)| is_over(*since).then_some(name))
    }

    /// When the next cluster is [`overdue`](Self::overdue).
    pub(super) fn next_overdue(&self, now: SystemTime) -> Option<SystemTime> {
        let times = self.unobserved.values().map(|since| *since + UNOBSERVED_LIMIT);
        times.filter(|time| *time > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(uid: &str) -> ClusterId {
        ClusterId {
            name: ClusterName::new("tenant", "one").unwrap(),
            uid: uid.to_owned(),
        }
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn cluster(uid: &str, created: u64) -> Cluster {
        Cluster {
            id: id(uid),
            generation: 1,
            created: Some(at(created)),
            deleting: false,
            position: None,
            members: Vec::new(),
        }
    }

    #[test]
    fn a_uid_that_was_deleted_is_refused() {
        let mut existence = Existence::default();
        existence.observe(cluster("a", 1));
        assert!(existence.require_not_deleted(&id("a"), None).is_ok());
        assert!(existence.delete(&id("a")));
        assert!(existence.require_not_deleted(&id("a"), None).is_err());
        assert!(existence.require_not_deleted(&id("b"), None).is_ok());
        existence.observe(cluster("a", 1));
        assert!(existence.require_not_deleted(&id("a"), None).is_ok());
    }

    #[test]
    fn a_replaced_uid_was_deleted() {
        let mut existence = Existence::default();
        existence.observe(cluster("a", 1));
        existence.observe(cluster("b", 2));
        assert!(existence.is_deleted(&id("a")));
        assert!(existence.require_not_deleted(&id("older"), Some(at(1))).is_err());
        assert!(!existence.delete(&id("a")), "b has the name");
        assert!(existence.has_uid(&id("b").name, "b"));
    }

    #[test]
    fn the_oldest_deletion_is_forgotten() {
        let mut deleted = Deleted::default();
        for index in 0..=MAX_DELETED_CLUSTERS {
            deleted.insert(id(&index.to_string()));
        }
        assert_eq!(deleted.known.len(), MAX_DELETED_CLUSTERS);
        assert!(!deleted.known.contains(&id("0")));
    }

    #[test]
    fn a_record_without_cluster_is_missing_once_synced() {
        let mut existence = Existence::default();
        let name = id("a").name;
        assert!(!existence.note(&name, true, false, at(0)), "not synced yet");
        assert!(existence.exists(&name, true));
        assert!(existence.note(&name, true, true, at(0)));
        assert!(!existence.exists(&name, true));
        existence.declare(&id("a"), at(5));
        assert!(existence.exists(&name, true), "it may be new");
        assert_eq!(existence.overdue(at(600)).count(), 0);
        assert_eq!(existence.next_overdue(at(6)), Some(at(605)));
        assert_eq!(existence.overdue(at(605)).count(), 1);
        existence.observe(cluster("a", 1));
        existence.note(&name, true, true, at(700));
        assert_eq!(existence.overdue(at(1400)).count(), 0);
    }

    #[test]
    fn snapshots_delete_what_they_do_not_name() {
        let mut existence = Existence::default();
        existence.observe(cluster("a", 1));
        existence.retain(&BTreeSet::new());
        assert!(existence.get(&id("a").name).is_none());
        assert!(existence.is_deleted(&id("a")));
    }
}
