//! What watchers are sent: the newest state of each cluster that changed, in the order of commits.

use std::{collections::BTreeMap, sync::Arc};

use ::placement::ClusterName;

use crate::record::{ClusterId, Record};

/// Maximum number of removed clusters that the site records. A watcher that missed more than these starts with a new snapshot.
const MAX_REMOVED_CLUSTERS: usize = 4096;

/// Clusters by the revision of their last change: one entry per cluster, so its size is that of the site.
#[derive(Clone, Debug)]
pub(super) struct Changes {
    changed: BTreeMap<u64, ClusterName>,
    removed: BTreeMap<u64, ClusterId>,
    /// Removals up to this revision are no longer known. At first it is that of the last one, which the ledger holds.
    horizon: u64,
}

/// One cluster's newest state.
#[derive(Debug)]
pub enum Changed {
    /// It holds or wants hosts.
    Record(Arc<Record>),
    /// It holds and wants nothing now.
    Removed {
        /// Revision of the removal.
        revision: u64,
        /// The cluster.
        cluster: ClusterId,
    },
}

impl Changed {
    /// Revision of the change.
    #[must_use]
    pub fn revision(&self) -> u64 {
        match self {
            Self::Record(record) => record.revision,
            Self::Removed { revision, cluster: _ } => *revision,
        }
    }
}

/// How far a watcher has come.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    /// Everything up to this revision was sent.
    after: u64,
    /// Removals up to this revision do not concern the watcher: it began after them.
    base: u64,
}

impl Cursor {
    /// A watcher that was told everything up to `revision`, by this process or another.
    #[must_use]
    pub fn resume(revision: u64) -> Self {
        Self {
            after: revision,
            base: revision,
        }
    }

    /// Moves on; never back.
    pub fn advance(&mut self, revision: u64) {
        self.after = self.after.max(revision);
    }
}

impl Changes {
    pub(super) fn new(horizon: u64) -> Self {
        Self {
            changed: BTreeMap::new(),
            removed: BTreeMap::new(),
            horizon,
        }
    }

    pub(super) fn put(&mut self, before: Option<u64>, revision: u64, name: ClusterName) {
        if let Some(before) = before {
            self.changed.remove(&before);
        }
        self.changed.insert(revision, name);
    }

    pub(super) fn remove(&mut self, before: u64, revision: u64, cluster: ClusterId) {
        self.changed.remove(&before);
        self.removed.insert(revision, cluster);
        while self.removed.len() > MAX_REMOVED_CLUSTERS {
            if let Some((revision, _)) = self.removed.pop_first() {
                self.horizon = revision;
            }
        }
    }

    /// Where a watcher begins that knows nothing.
    pub(super) fn beginning(&self) -> Cursor {
        Cursor {
            after: 0,
            base: self.horizon,
        }
    }

    /// The newest state of every cluster that changed after `cursor` and up to `upto`, at most `limit` of them, in the
    /// order of revisions. A cluster that has changed again after `upto` is sent then. `None`: removals may have
    /// been missed, so the watcher must forget what it knows and begin anew.
    pub(super) fn changed_after(
        &self,
        cursor: Cursor,
        upto: u64,
        limit: usize,
        records: &BTreeMap<ClusterName, Arc<Record>>,
    ) -> Option<Vec<Changed>> {
        let Cursor { after, base } = cursor;
        if after.max(base) < self.horizon {
            return None;
        }
        if after >= upto {
            return Some(Vec::new());
        }
        let span = after + 1..=upto;
        let changed = self.changed.range(span.clone());
        let mut changes: Vec<Changed> = changed
            .filter_map(|(_, name)| records.get(name))
            .take(limit)
            .map(|record| Changed::Record(Arc::clone(record)))
            .collect();
        let removed = self.removed.range(span).take(limit);
        changes.extend(removed.map(|(&revision, cluster)| Changed::Removed {
            revision,
            cluster: cluster.clone(),
        }));
        changes.sort_by_key(Changed::revision);
        changes.truncate(limit);
        Some(changes)
    }
}
