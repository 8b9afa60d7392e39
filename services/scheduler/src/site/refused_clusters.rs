//! The clusters of a site that are refused, in the order in which they are decided, and which of them were decided since the last change that
//! may let them have hosts.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use ::placement::{ClusterName, MemberState};

use crate::record::Record;

/// Clusters of a site that are refused, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct RefusedClusters {
    /// Incremented by every change that may let a refused cluster get hosts.
    change: u64,
    waiting: BTreeSet<QueuePosition>,
    decided: BTreeMap<ClusterName, Decided>,
}

/// A cluster's position: those whose creation is not known come last, as in the order of retries.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueuePosition {
    undated: bool,
    created: Option<SystemTime>,
    cluster: ClusterName,
}

/// The last decision of a cluster that is refused.
#[derive(Clone, Copy, Debug)]
struct Decided {
    change: u64,
    /// Whether the cluster's record has the result of this decision.
    recorded: bool,
}

impl QueuePosition {
    fn new(record: &Record) -> Self {
        Self {
            undated: record.created.is_none(),
            created: record.created,
            cluster: record.cluster.clone(),
        }
    }
}

impl RefusedClusters {
    /// Of the records that the ledger holds.
    pub(super) fn new<'a>(records: impl Iterator<Item = &'a Record>) -> Self {
        Self {
            waiting: records
                .filter(|record| is_refused(record))
                .map(QueuePosition::new)
                .collect(),
            ..Self::default()
        }
    }

    /// Hosts, or who may have them, have changed: clusters that are refused may get some.
    pub(super) fn change(&mut self) {
        self.change += 1;
    }

    /// Records that a record is in the place of the one before it.
    pub(super) fn replace(&mut self, before: Option<&Record>, after: Option<&Record>) {
        if let Some(before) = before {
            self.waiting.remove(&QueuePosition::new(before));
            self.decided.remove(&before.cluster);
        }
        if let Some(after) = after
            && is_refused(after)
        {
            self.waiting.insert(QueuePosition::new(after));
        }
        if before.is_some_and(|before| frees_capacity(before, after)) {
            self.change();
        }
    }

    /// Records that a cluster that is refused was decided, and that its record states so.
    pub(super) fn decided(&mut self, record: &Record) {
        if is_refused(record) {
            self.decide(&record.cluster, true);
        }
    }

    /// Records that clusters would get nothing if they were decided now.
    pub(super) fn get_nothing(&mut self, clusters: &[ClusterName]) {
        for cluster in clusters {
            if !self.is_known(cluster) {
                self.decide(cluster, false);
            }
        }
    }

    fn decide(&mut self, cluster: &ClusterName, recorded: bool) {
        let change = self.change;
        self.decided.insert(cluster.clone(), Decided { change, recorded });
    }

    /// Whether a cluster's refusal is current: nothing has changed since its last decision, which its record has.
    pub(super) fn is_current(&self, cluster: &ClusterName) -> bool {
        let decided = self.decided.get(cluster);
        decided.is_some_and(|decided| decided.recorded && decided.change == self.change)
    }

    /// Whether it is known that a cluster gets nothing.
    fn is_known(&self, cluster: &ClusterName) -> bool {
        let decided = self.decided.get(cluster);
        decided.is_some_and(|decided| decided.change == self.change)
    }

    /// Clusters that were made before this one, are refused, and may get something now.
    pub(super) fn older(&self, record: &Record) -> impl Iterator<Item = &ClusterName> {
        let older = self.waiting.range(..QueuePosition::new(record));
        let clusters = older.map(|position| &position.cluster);
        clusters.filter(|cluster| !self.is_known(cluster))
    }
}

fn is_refused(record: &Record) -> bool {
    record.refusal.is_some() && !record.releasing
}

/// Whether a cluster has less than before of what others may want.
fn frees_capacity(before: &Record, after: Option<&Record>) -> bool {
    let Some(after) = after else {
        return true;
    };
    before.members.iter().any(|(id, member)| {
        let stays = after.members.get(id).is_some_and(|next| {
            next.addresses == member.addresses
                && (next.state != MemberState::Releasing || member.state == MemberState::Releasing)
        });
        !stays
    })
}
