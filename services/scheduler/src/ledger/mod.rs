//! The durable truth: who holds which host, and the log of decisions.
//!
//! The ledger records claims, not inventory. [`Ledger`] is the storage seam: a backend stores batches
//! atomically and durably, in the order in which it gets them. [`commit`] batches changes and tells who
//! waits; [`codec`] is the one place where records become bytes.

pub mod check;
pub mod codec;
pub mod commit;
pub mod etcd;
pub mod export;
pub mod redb;
mod removals;
mod retention;
mod waiting;
pub mod weight;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use placement::ClusterName;
use proto::{inventory::v1 as inventory, ledger::v1 as disk, placement::v1 as api};

pub use retention::Retention;

use crate::record::Record;

/// Where the ledger's history stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position {
    /// History: raised above all that a site has seen when the ledger was lost or restored.
    pub epoch: u64,
    /// Commit number within the region. 0 before the first.
    pub revision: u64,
}

impl From<Position> for inventory::Revision {
    fn from(Position { epoch, revision }: Position) -> Self {
        Self { epoch, revision }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.revision)
    }
}

/// Names a record: at most one lives per site and cluster name, whatever the uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordKey {
    /// Site of the cluster.
    pub site: String,
    /// Namespace and name of the `SIPCluster`.
    pub cluster: ClusterName,
}

/// Which election made a reporter: `leaseTransitions` of the Lease with that uid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// uid of the Lease.
    pub lease: String,
    /// Its `leaseTransitions`.
    pub transitions: i64,
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lease, transitions } = self;
        write!(f, "{lease}#{transitions}")
    }
}

/// Which reporters a site has had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteFence {
    /// The latest one: of its Lease, no lower counter is let in.
    pub highest: Fence,
    /// uids of Leases that another one has replaced: they are not let in.
    pub retired: BTreeSet<String>,
}

/// One committed step.
#[derive(Clone, Debug)]
pub enum Change {
    /// A cluster's record changed, or is gone.
    Record {
        /// Which record.
        key: RecordKey,
        /// Its new content; `None` removes it.
        record: Option<Arc<Record>>,
        /// The entry for the audit log; its revision is that of the change.
        decision: Box<api::Decision>,
        /// Number of this commit.
        revision: u64,
    },
    /// Another reporter may speak for a site.
    Fence {
        /// The site.
        site: String,
        /// The highest fence now; `None` forgets it.
        fence: Option<SiteFence>,
        /// The entry for the audit log; its revision is that of the change.
        decision: Box<api::Decision>,
        /// Number of this commit.
        revision: u64,
    },
    /// The history continues in a higher epoch.
    Epoch {
        /// The new epoch.
        epoch: u64,
        /// Number of this commit.
        revision: u64,
    },
}

impl Change {
    /// The entry for the audit log, if it makes one.
    #[must_use]
    pub fn decision(&self) -> Option<&api::Decision> {
        match self {
            Self::Record { decision, .. } | Self::Fence { decision, .. } => Some(decision),
            Self::Epoch { .. } => None,
        }
    }

    /// Number of the commit.
    #[must_use]
    pub fn revision(&self) -> u64 {
        match self {
            Self::Record { revision, .. } | Self::Fence { revision, .. } | Self::Epoch { revision, .. } => {
                *revision
            }
        }
    }
}

impl Change {
    /// Where the history stands after this change, which follows on `before`.
    #[must_use]
    pub fn position(&self, before: Position) -> Position {
        match self {
            Self::Epoch { epoch, revision } => Position {
                epoch: *epoch,
                revision: *revision,
            },
            Self::Record {
                key: _,
                record: _,
                decision: _,
                revision,
            }
            | Self::Fence {
                site: _,
                fence: _,
                decision: _,
                revision,
            } => Position {
                revision: *revision,
                ..before
            },
        }
    }
}

/// All that a ledger holds, as read when it is opened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// Where its history stands.
    pub position: Position,
    /// Every record, by key.
    pub records: BTreeMap<RecordKey, Arc<Record>>,
    /// When the last record of a site was removed, by site: a site that has seen that much has seen nothing that is lost.
    pub removals: BTreeMap<String, u64>,
    /// Who may report, by site.
    pub fences: BTreeMap<String, SiteFence>,
}

impl Contents {
    /// What the ledger holds after one more change.
    pub fn apply(&mut self, change: Change) {
        self.position = change.position(self.position);
        match change {
            Change::Epoch {
                epoch: _,
                revision: _,
            } => {}
            Change::Record {
                key,
                record: Some(record),
                decision: _,
                revision: _,
            } => {
                self.records.insert(key, record);
            }
            Change::Record {
                key,
                record: None,
                decision: _,
                revision,
            } => {
                self.records.remove(&key);
                self.removals.insert(key.site, revision);
            }
            Change::Fence {
                site,
                fence,
                decision: _,
                revision: _,
            } => {
                match fence {
                    Some(fence) => self.fences.insert(site, fence),
                    None => self.fences.remove(&site),
                };
            }
        }
    }
}

/// Storage of the ledger.
///
/// Promises of a backend: [`commit`](Ledger::commit) returns `Ok` only when the whole batch is durable; after
/// a crash at any byte the contents are those of some prefix of the submitted batches that includes every
/// batch whose commit returned.
pub trait Ledger: fmt::Debug + Send + Sync + 'static {
    /// Reads everything.
    ///
    /// # Errors
    /// When the storage cannot be read or holds what this version does not understand.
    fn load(&self) -> Result<Contents, Error>;

    /// Stores a batch, all of it or nothing, and returns when it is durable. Blocks.
    ///
    /// # Errors
    /// When the batch may not be durable.
    fn commit(&self, batch: &[Change]) -> Result<(), Error>;

    /// The most bytes that a change may need, by its [`weight`]; `None` where there is no such limit.
    fn largest(&self) -> Option<usize> {
        None
    }

    /// Reads at most `limit` log entries older than revision `before`, newest first, that `wanted` accepts.
    ///
    /// # Errors
    /// When the storage cannot be read.
    fn decisions(
        &self,
        before: u64,
        limit: usize,
        wanted: &dyn Fn(&api::Decision) -> bool,
    ) -> Result<Vec<api::Decision>, Error>;

    /// Hands out everything as it is at one moment: header, records, removals, fences, the log from its oldest entry. Blocks.
    ///
    /// # Errors
    /// When the storage cannot be read; what `take` returns.
    fn export(&self, take: &mut dyn FnMut(disk::Entry) -> Result<(), Error>) -> Result<(), Error>;

    /// Fills an empty ledger with what was exported. Until it is whole nobody can open it. Blocks.
    ///
    /// # Errors
    /// [`Error::NotEmpty`]; when the storage fails; what the entries return.
    fn import(&self, entries: &mut dyn Iterator<Item = Result<disk::Entry, Error>>) -> Result<(), Error>;
}

/// Why the ledger failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The storage failed.
    #[error("ledger: {action}")]
    Storage {
        /// What was tried.
        action: &'static str,
        /// What the storage said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The file was written by another version.
    #[error("ledger: schema version {found}, this program understands {understood}")]
    Schema {
        /// Version in the file.
        found: u64,
        /// Version of this program.
        understood: u64,
    },
    /// Another process has taken over: nothing of what was asked for is written.
    #[error("ledger: {by} has taken over, and nothing was written")]
    Fenced {
        /// Who, as far as it is known.
        by: String,
    },
    /// Something is in the way of an import.
    #[error("ledger: it is not empty: {found}")]
    NotEmpty {
        /// What is there.
        found: String,
    },
    /// A record does not fit.
    #[error(transparent)]
    TooLarge(#[from] weight::TooLarge),
    /// A stored value does not parse.
    #[error("ledger: {what}: {rule}")]
    Corrupt {
        /// Which value.
        what: String,
        /// What is wrong.
        rule: String,
    },
}

impl Error {
    /// The error with its sources, in one line.
    #[must_use]
    pub fn chain(&self) -> String {
        crate::error::chain(self)
    }

    pub(crate) fn panicked(action: &'static str, panic: tokio::task::JoinError) -> Self {
        Self::storage(action)(panic)
    }

    pub(crate) fn storage<E>(action: &'static str) -> impl FnOnce(E) -> Self
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        move |source| Self::Storage {
            action,
            source: source.into(),
        }
    }
}
