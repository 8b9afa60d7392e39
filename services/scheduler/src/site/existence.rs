//! Which `SIPCluster`s exist. The site's reports say so, and nobody else: a call may have been on its way for long, and may
//! speak for one that is gone.
//!
//! A uid never comes back. So a declaration of one that was reported and is gone is refused, whenever it arrives. One that was
//! not reported yet is believed: it may be new. If no report shows it in [`ABSENCE`], what it has claimed is given back.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::{Duration, SystemTime},
};

use ::placement::{ClusterName, MemberState};

use super::{
    Author, Outcome, Site,
    claims::{begin_release, is_older},
    labels::Labels,
};
use crate::{
    convert,
    error::Error,
    ledger::commit::Permit,
    record::{Record, ReleaseReason},
};

/// How long a synced site may not show the `SIPCluster` of a record that has no labelled host before its claims are given
/// back. Nothing is freed by that: the cluster agent writes and confirms each release.
pub const ABSENCE: Duration = Duration::from_mins(10);
/// Most `SIPCluster`s that are remembered as gone. A call that is later than all of these is believed, and [`ABSENCE`] sees to
/// what it has claimed.
const REMEMBERED: usize = 4096;

/// `SIPCluster`s that were reported and are gone, by name and uid: the latest ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Gone {
    known: BTreeSet<(ClusterName, String)>,
    order: VecDeque<(ClusterName, String)>,
}

impl Gone {
    pub(super) fn insert(&mut self, cluster: &ClusterName, uid: &str) {
        let gone = (cluster.clone(), uid.to_owned());
        if uid.is_empty() || !self.known.insert(gone.clone()) {
            return;
        }
        self.order.push_back(gone);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// It is reported again: a reporter was behind the one before it.
    pub(super) fn remove(&mut self, cluster: &ClusterName, uid: &str) {
        let back = (cluster.clone(), uid.to_owned());
        if self.known.remove(&back) {
            self.order.retain(|gone| *gone != back);
        }
    }

    pub(super) fn contains(&self, cluster: &ClusterName, uid: &str) -> bool {
        self.known.contains(&(cluster.clone(), uid.to_owned()))
    }
}

impl Site {
    /// Whether there is such a `SIPCluster`, or an agent has declared one that was not observed yet.
    pub(super) fn exists(&self, cluster: &ClusterName) -> bool {
        self.clusters.contains_key(cluster)
            || (self.records.contains_key(cluster) && !self.absent.contains(cluster))
    }

    /// Whether the `SIPCluster` of that name has this uid, as far as the site has reported.
    pub(super) fn is_observed(&self, cluster: &ClusterName, uid: &str) -> bool {
        self.observed_uid(cluster) == Some(uid)
    }

    pub(super) fn observed_uid(&self, cluster: &ClusterName) -> Option<&str> {
        let observed = self.clusters.get(cluster)?;
        observed.r#ref.as_ref().map(|known| &*known.uid)
    }

    /// Whether the `SIPCluster` of that name is another than the record's, and not one from before it that the reports still
    /// show.
    pub(super) fn is_made_again(&self, record: &Record) -> bool {
        let Some(there) = self.clusters.get(&record.cluster) else {
            return false;
        };
        !self.is_observed(&record.cluster, &record.uid)
            && !is_older(convert::time(there.created), record.created)
    }

    /// Whether the record only gives back what an earlier `SIPCluster` of the name had: what the site shows of the present
    /// one is not given back with that, and taken over when it declares itself.
    pub(super) fn is_survived(&self, record: &Record) -> bool {
        record.releasing && self.is_made_again(record)
    }

    /// `SIPCluster`s that are remembered as gone, by name and uid.
    pub fn gone_clusters(&self) -> impl Iterator<Item = (&ClusterName, &str)> {
        self.gone.known.iter().map(|(cluster, uid)| (cluster, &**uid))
    }

    /// Refuses who speaks for a `SIPCluster` that was reported and is gone, or was made before the one that is there.
    ///
    /// # Errors
    /// [`Error::ClusterGone`].
    pub(super) fn require_not_gone(
        &self,
        cluster: &ClusterName,
        uid: &str,
        created: Option<SystemTime>,
    ) -> Result<(), Error> {
        let there = self.clusters.get(cluster);
        let replaced = !self.is_observed(cluster, uid)
            && there.is_some_and(|there| is_older(created, convert::time(there.created)));
        if replaced || self.gone.contains(cluster, uid) {
            return Err(Error::ClusterGone {
                cluster: cluster.to_string(),
                uid: uid.to_owned(),
            });
        }
        Ok(())
    }

    /// Takes in that a `SIPCluster` is there or is not.
    pub(super) fn came_or_went(
        &mut self,
        name: &ClusterName,
        now: SystemTime,
        touched: &mut BTreeSet<ClusterName>,
    ) {
        let known = self.records.contains_key(name);
        let there = self.clusters.contains_key(name);
        let changed = if there || !known {
            self.unseen.remove(name);
            self.absent.remove(name)
        } else {
            self.unseen.insert(name.clone(), now);
            self.session.synced() && self.absent.insert(name.clone())
        };
        touched.extend((known && changed).then(|| name.clone()));
        self.mark_all(name);
    }

    /// Notes which records have no `SIPCluster` in the complete snapshot, and marks orphans.
    pub(super) fn find_orphans(&mut self, now: SystemTime) {
        let missing = self
            .records
            .keys()
            .filter(|name| !self.clusters.contains_key(*name));
        self.absent = missing.cloned().collect();
        self.unseen = self.absent.iter().map(|name| (name.clone(), now)).collect();
        let named: Vec<ClusterName> = self.labelled.keys().cloned().collect();
        for cluster in named {
            self.mark_all(&cluster);
        }
    }

    /// Takes in that an agent has declared a `SIPCluster`, which may not have been reported yet.
    pub(super) fn declared(&mut self, record: &Record, now: SystemTime) {
        self.absent.remove(&record.cluster);
        if self.is_observed(&record.cluster, &record.uid) {
            self.unseen.remove(&record.cluster);
        } else {
            self.unseen.insert(record.cluster.clone(), now);
        }
    }

    /// When to look for the next record to forget, if the site goes on without its `SIPCluster`.
    #[must_use]
    pub fn next_forgotten(&self, now: SystemTime) -> Option<SystemTime> {
        if !self.session.synced() {
            return None;
        }
        if self.forgettable(now).next().is_some() {
            return Some(now);
        }
        let times = self.unseen.values().map(|since| *since + ABSENCE);
        times.filter(|time| *time > now).min()
    }

    /// Clusters whose `SIPCluster` the site has not shown for [`ABSENCE`], and which use no host.
    #[must_use]
    pub fn forgotten(&self, now: SystemTime) -> Vec<ClusterName> {
        self.forgettable(now).cloned().collect()
    }

    fn forgettable(&self, now: SystemTime) -> impl Iterator<Item = &ClusterName> {
        let synced = self.session.synced();
        let over = move |since: SystemTime| now.duration_since(since).is_ok_and(|unseen| unseen >= ABSENCE);
        let over = self
            .unseen
            .iter()
            .filter(move |(_, since)| synced && over(**since));
        over.map(|(name, _)| name).filter(|name| {
            let record = self.records.get(*name);
            record.is_some_and(|record| !record.releasing && !self.is_used(record))
        })
    }

    /// Whether a host has come as far as its labels: what runs there is for a person to judge.
    fn is_used(&self, record: &Record) -> bool {
        let labelled = |id| {
            let host = self.reported(id);
            host.is_some_and(|host| Labels::of(host, &record.cluster) != Labels::None)
        };
        let mut members = record.members.iter();
        members.any(|(id, member)| member.state == MemberState::Bound || labelled(id))
            || self.labelled.contains_key(&record.cluster)
    }

    /// Begins to give back what was claimed for a `SIPCluster` that is not there.
    pub fn forget(&mut self, cluster: &ClusterName, author: &Author<'_>, permit: Permit) -> Option<Outcome> {
        if !self.forgotten(author.now).contains(cluster) {
            return None;
        }
        let mut record = Record::clone(self.records.get(cluster)?);
        tracing::warn!(
            site = self.name,
            %cluster,
            uid = record.uid,
            "the site has no such SIPCluster; what was claimed for it is given back"
        );
        self.absent.insert(cluster.clone());
        record.releasing = true;
        record.refusal = None;
        record.reports.clear();
        for member in record.members.values_mut() {
            begin_release(member, ReleaseReason::Orphaned);
        }
        self.settle_record(&mut record, author.now);
        self.store_alone(record, author, permit)
    }
}

/// Since when a `SIPCluster` was not seen, by the name of its record.
pub(super) type Unseen = BTreeMap<ClusterName, SystemTime>;
