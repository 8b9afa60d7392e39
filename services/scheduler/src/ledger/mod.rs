//! The durable truth: who holds which host, and the log of decisions.
//!
//! The ledger records claims, not inventory. [`Ledger`] is the storage seam: a backend stores batches
//! atomically and durably, in the order in which it gets them. [`commit`] batches changes and tells who
//! waits; [`codec`] is the one place where records become bytes.

mod call_changes;
pub mod check;
pub mod codec;
pub mod commit;
mod decision;
mod error;
pub mod etcd;
pub mod export;
mod log;
mod parts;
mod permit;
pub mod position;
pub mod redb;
mod refusal;
mod removals;
mod retention;
mod share;
mod stages;
mod waiting;
pub mod weight;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use placement::ClusterName;
use proto::{ledger::v1 as disk, placement::v1 as api};

pub use call_changes::CallChanges;
pub use decision::Decision;
pub use error::{Error, TooLarge};
pub use log::{Page, Query};
pub use position::{Commit, History, SitePosition};
pub use refusal::Refusal;
pub use retention::Retention;
pub use share::Share;
pub use stages::StageMetrics;

use crate::{
    record::Record,
    violation::{Violation, clip},
};

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

impl Fence {
    /// Maximum length of the uid of a Lease, in bytes; the API server's have 36.
    pub const MAX_LEASE_UID_BYTES: usize = 128;

    /// A fence that a reporter shows.
    ///
    /// # Errors
    /// The field of the Hello that breaks a rule.
    pub fn parse(lease: String, transitions: i64) -> Result<Self, Violation> {
        let plain = (1..=Self::MAX_LEASE_UID_BYTES).contains(&lease.len())
            && lease.bytes().all(|byte| byte.is_ascii_graphic());
        if !plain {
            return Err(Violation::new(
                "hello.lease_uid",
                format_args!(
                    "{:?} has {} bytes: 1 to {} printable ASCII characters without spaces are allowed",
                    clip(&lease, Self::MAX_LEASE_UID_BYTES),
                    lease.len(),
                    Self::MAX_LEASE_UID_BYTES
                ),
            ));
        }
        if transitions < 0 {
            let rule = format_args!("{transitions} must not be negative");
            return Err(Violation::new("hello.lease_transitions", rule));
        }
        Ok(Self { lease, transitions })
    }
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
    /// The latest reporter. A reporter with the same Lease and a lower counter is refused.
    pub highest: Fence,
    /// uids of replaced Leases: their reporters are refused.
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
        /// The entry for the audit log.
        decision: Box<Decision>,
        /// Number of this commit.
        commit: Commit,
    },
    /// Another reporter may speak for a site.
    Fence {
        /// The site.
        site: String,
        /// The highest fence now; `None` forgets it.
        fence: Option<SiteFence>,
        /// The entry for the audit log.
        decision: Box<Decision>,
        /// Number of this commit.
        commit: Commit,
    },
    /// A site's history continues in a higher epoch.
    Raise {
        /// The site.
        site: String,
        /// How it is numbered from this commit on.
        history: History,
        /// The entry for the audit log.
        decision: Box<Decision>,
        /// Number of this commit.
        commit: Commit,
    },
}

impl Change {
    /// The entry for the audit log.
    #[must_use]
    pub fn decision(&self) -> &Decision {
        match self {
            Self::Record { decision, .. } | Self::Fence { decision, .. } | Self::Raise { decision, .. } => {
                decision
            }
        }
    }

    /// Number of the commit.
    #[must_use]
    pub fn commit(&self) -> Commit {
        match self {
            Self::Record { commit, .. } | Self::Fence { commit, .. } | Self::Raise { commit, .. } => *commit,
        }
    }

    /// The site that it is about.
    #[must_use]
    pub fn site(&self) -> &str {
        match self {
            Self::Record {
                key,
                record: _,
                decision: _,
                commit: _,
            } => &key.site,
            Self::Fence {
                site,
                fence: _,
                decision: _,
                commit: _,
            }
            | Self::Raise {
                site,
                history: _,
                decision: _,
                commit: _,
            } => site,
        }
    }
}

/// All that a ledger holds, as read when it is opened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// The last commit.
    pub commit: Commit,
    /// How sites number their history; the others as [`History::default`].
    pub histories: BTreeMap<String, History>,
    /// Every record, by key.
    pub records: BTreeMap<RecordKey, Arc<Record>>,
    /// Commit of the last removal of a record, by site. The ledger has issued the site revisions up to it, although no record has them: a site that
    /// shows one of those does not prove that the ledger was lost.
    pub removals: BTreeMap<String, Commit>,
    /// Who may report, by site.
    pub fences: BTreeMap<String, SiteFence>,
}

impl Contents {
    /// What the ledger holds after one more change.
    pub fn apply(&mut self, change: Change) {
        self.commit = change.commit();
        match change {
            Change::Raise {
                site,
                history,
                decision: _,
                commit: _,
            } => {
                self.histories.insert(site, history);
            }
            Change::Record {
                key,
                record: Some(record),
                decision: _,
                commit: _,
            } => {
                self.records.insert(key, record);
            }
            Change::Record {
                key,
                record: None,
                decision: _,
                commit,
            } => {
                self.records.remove(&key);
                self.removals.insert(key.site, commit);
            }
            Change::Fence {
                site,
                fence,
                decision: _,
                commit: _,
            } => {
                match fence {
                    Some(fence) => self.fences.insert(site, fence),
                    None => self.fences.remove(&site),
                };
            }
        }
    }
}

/// How large a storage is that takes nothing more at its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storage {
    /// Bytes that it takes.
    pub bytes: u64,
    /// Bytes that it may take.
    pub quota: u64,
}

/// Maximum time of an export, whatever its reader takes: until then the storage keeps what is overwritten meanwhile.
pub const EXPORT_TIMEOUT: std::time::Duration = std::time::Duration::from_mins(5);

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

    /// Stores a batch, and returns when it is durable. Blocks.
    ///
    /// # Errors
    /// [`Error::Refused`] when the storage works and does not take what is in the batch: a prefix of it is durable then.
    /// Any other error means that it is not known what of the batch is durable.
    fn commit(&self, batch: &[Change]) -> Result<(), Error>;

    /// The most bytes that a change may need, by its [`weight`]; `None` where there is no such limit.
    fn largest(&self) -> Option<usize> {
        None
    }

    /// Size of the ledger's file, in bytes; `None` where it has none.
    fn file_bytes(&self) -> Option<u64> {
        None
    }

    /// How large the storage is and may become, as far as it says so.
    fn storage(&self) -> Option<Storage> {
        None
    }

    /// Reads a part of the log of decisions, newest first.
    ///
    /// # Errors
    /// When the storage cannot be read.
    fn read_log(&self, query: Query<'_>) -> Result<Page, Error>;

    /// Reads at most `limit` log entries of commits before `before`, newest first, that `wanted` accepts, however many it
    /// must read.
    ///
    /// # Errors
    /// When the storage cannot be read.
    fn decisions(
        &self,
        before: Commit,
        limit: usize,
        wanted: &dyn Fn(&api::Decision) -> bool,
    ) -> Result<Vec<api::Decision>, Error> {
        let (mut before, mut found) = (before, Vec::new());
        loop {
            let page = self.read_log(Query {
                before,
                limit: limit - found.len(),
                most: usize::MAX,
                wanted,
                gone: &|| false,
            })?;
            found.extend(page.decisions);
            match page.next {
                Some(next) if found.len() < limit => before = next,
                Some(_) | None => return Ok(found),
            }
        }
    }

    /// Hands out everything as it is at one moment: header, histories, records, removals, fences, the log from its oldest entry. Blocks.
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
