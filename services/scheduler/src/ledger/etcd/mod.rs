//! The backend of several schedulers: an etcd cluster, which also elects the one that may write.
//!
//! Every commit is a transaction that compares two things: that the leader's key is still the one that was made when this
//! process was elected, and that the position is still what this process has written last. So a leader that was paused past
//! its lease cannot write, and a transaction that may or may not have been applied can be sent again: it is applied once.

mod backup;
mod batch;
mod compaction;
mod connect;
mod holds;
mod import_export;
mod keys;
mod location;
mod log;
mod pages;
mod retries;
mod right;
mod schema;
mod write;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use etcd_client::GetOptions;
use prost::Message as _;
use proto::ledger::v1 as disk;
use runtime::quiet::Quiet;
use tokio::runtime::Handle;

pub use compaction::Pace;
pub use connect::EtcdArgs;
pub use location::Location;
pub(crate) use retries::send_with_retries;
pub use right::Right;

use self::{
    batch::Part,
    log::{ENTRIES_PER_TRIM, Sizes},
    schema::SCHEMA,
};
use super::{
    Change, Commit, Contents, Error, Ledger, Page, Query, Retention, Storage,
    retention::{Shares, Trim, Uptime},
};

/// Maximum number of transactions with which one batch removes entries of the log. One is enough unless a site's log has small entries of
/// one time between those of others, and large ones come.
const MAX_TRIM_TRANSACTIONS: usize = 64;

/// The ledger of an elected process.
#[derive(Debug)]
pub struct Etcd {
    location: Location,
    /// When this process was elected: the revision that made its key.
    elected: i64,
    right: Arc<Right>,
    runtime: Handle,
    written: Mutex<Written>,
    shares: Mutex<Shares>,
    pages: Mutex<Sizes>,
    /// Limits the lines about a log that cannot be read to be trimmed: they come as often as changes.
    untrimmed: Quiet,
}

/// What this process has written last.
#[derive(Clone, Copy, Debug)]
struct Written {
    last: Commit,
    /// Epoch of every site in layouts before version 3.
    epoch: u64,
    /// etcd's revision of the position's key.
    at: i64,
    /// Entries that were added to the log since it was trimmed.
    added: usize,
    /// Bytes of these entries.
    added_bytes: u64,
}

impl Etcd {
    /// Opens the ledger as the owner of the leader's key, or makes it. The process was `elected` at that revision, and may
    /// write as long as its `right` holds.
    ///
    /// # Errors
    /// When etcd cannot be reached in that time, holds another schema, or another process was elected meanwhile.
    pub async fn open(location: Location, elected: i64, right: Arc<Right>) -> Result<Self, Error> {
        let mut etcd = Self {
            location,
            elected,
            right,
            runtime: Handle::current(),
            shares: Mutex::new(Shares::new(Duration::ZERO, BTreeMap::new(), BTreeMap::new())),
            pages: Mutex::default(),
            untrimmed: Quiet::default(),
            written: Mutex::new(Written {
                last: Commit::NONE,
                epoch: 0,
                at: 0,
                added: 0,
                added_bytes: 0,
            }),
        };
        let mut schema = etcd
            .location
            .get(etcd.location.keys.schema(), GetOptions::new())
            .await?;
        let found = match schema.take_kvs().first() {
            None => {
                etcd.make().await?;
                SCHEMA
            }
            Some(schema) => schema::parse(schema.value())?,
        };
        let (written, position) = etcd.position().await?;
        etcd.written = Mutex::new(written);
        etcd.shares = Mutex::new(etcd.shares(&position).await?);
        if found < SCHEMA {
            let backup = etcd.back_up(found).await?;
            tracing::info!(
                backup,
                version = found,
                "the ledger is backed up before it is migrated"
            );
            etcd.migrate(found).await?;
        }
        Ok(etcd)
    }

    /// The same ledger with another limit of its log.
    #[must_use]
    pub fn retaining(self, retention: Retention) -> Self {
        self.log().retention = retention;
        self
    }

    /// The same ledger with another clock: how long this process has run.
    #[must_use]
    pub fn clocked(self, uptime: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.log().clocked(Uptime::new(uptime));
        self
    }

    /// What the log has.
    fn log(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pages(&self) -> MutexGuard<'_, Sizes> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn make(&self) -> Result<(), Error> {
        let empty = self.written();
        let part = Part {
            writes: [(self.location.keys.schema(), Some(SCHEMA.to_string().into_bytes()))].into(),
            last: empty.last,
            ..Part::default()
        };
        self.write(empty, &part).await.map(drop)
    }

    fn written(&self) -> Written {
        *self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn position(&self) -> Result<(Written, disk::Position), Error> {
        let mut found = self
            .location
            .get(self.location.keys.position(), GetOptions::new())
            .await?;
        let found = found.take_kvs();
        let corrupt = |rule: String| Error::Corrupt {
            what: "position".to_owned(),
            rule,
        };
        let value = found.first().ok_or_else(|| corrupt("is missing".to_owned()))?;
        let position = disk::Position::decode(value.value()).map_err(|error| corrupt(error.to_string()))?;
        let written = Written {
            last: Commit::parse(position.commit).map_err(&corrupt)?,
            epoch: position.epoch,
            at: value.mod_revision(),
            added: ENTRIES_PER_TRIM,
            added_bytes: 0,
        };
        Ok((written, position))
    }

    async fn submit(&self, batch: &[Change]) -> Result<(), Error> {
        let (keys, limits) = (&self.location.keys, self.location.limits);
        let mut stored = 0;
        for part in batch::parts(batch, keys, limits) {
            self.append(&part).await.map_err(|error| match error {
                Error::Refused { stored: _, cause } => Error::Refused { stored, cause },
                error => error,
            })?;
            stored += part.changes;
        }
        self.trim().await.map_err(|error| match error {
            Error::Refused { stored: _, cause } => Error::storage("remove entries of the log")(cause),
            error => error,
        })
    }

    /// Removes what is not to be kept of the log, when a check is due: more than was added since the last one, with as many transactions as it takes.
    /// If the log cannot be read, the next commit continues: the term must not end for that, since all changes are stored.
    async fn trim(&self) -> Result<(), Error> {
        let written = self.written();
        let full = self.log().full().is_some();
        if written.added < ENTRIES_PER_TRIM && !full {
            return Ok(());
        }
        let mut left = Trim::beside(written.added, written.added_bytes, &self.log());
        for _ in 0..MAX_TRIM_TRANSACTIONS {
            // Nobody else uses it meanwhile: there is one writer.
            let unused = Shares::new(Duration::ZERO, BTreeMap::new(), BTreeMap::new());
            let mut shares = std::mem::replace(&mut *self.log(), unused);
            let bytes = shares.bytes().clone();
            let mut part = Part {
                last: written.last,
                epoch: written.epoch,
                ..Part::default()
            };
            let read = self.trimming(&mut part, &mut shares, &mut left).await;
            // What is removed is counted once it is.
            shares.count(bytes);
            *self.log() = shares;
            if part.operations() > 0 {
                self.append(&part).await?;
            }
            if let Err(error) = read {
                if let Some(withheld) = self.untrimmed.line() {
                    tracing::error!(
                        error = error.chain(),
                        withheld,
                        "the log of decisions is not trimmed"
                    );
                }
                return Ok(());
            }
            if part.removed.is_empty() || !left.may_remove_more() {
                break;
            }
        }
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        (written.added, written.added_bytes) = (0, 0);
        Ok(())
    }
}

impl Ledger for Etcd {
    fn load(&self) -> Result<Contents, Error> {
        self.runtime.block_on(self.read())
    }

    fn commit(&self, batch: &[Change]) -> Result<(), Error> {
        self.runtime.block_on(self.submit(batch))
    }

    fn largest(&self) -> Option<usize> {
        Some(self.location.limits.bytes)
    }

    fn storage(&self) -> Option<Storage> {
        *self
            .location
            .storage
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn read_log(&self, query: Query<'_>) -> Result<Page, Error> {
        self.read_part(query)
    }

    fn export(&self, take: &mut dyn FnMut(disk::Entry) -> Result<(), Error>) -> Result<(), Error> {
        self.export_all(take)
    }

    fn import(&self, entries: &mut dyn Iterator<Item = Result<disk::Entry, Error>>) -> Result<(), Error> {
        self.runtime.block_on(self.import_all(entries))
    }
}
