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
mod keys;
mod location;
mod log;
mod moving;
mod pages;
mod request;
mod right;
mod schema;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp, TxnOpResponse};
use prost::Message as _;
use proto::ledger::v1 as disk;
use runtime::quiet::Quiet;
use tokio::runtime::Handle;

pub use compaction::Pace;
pub use connect::EtcdArgs;
pub use location::Location;
pub(crate) use request::send;
pub use right::Right;

use self::{
    batch::Part,
    log::{ENTRIES_PER_TRIM, Sizes},
    request::{REQUEST_TIMEOUT, passes, refusal},
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

    /// Writes one part on top of what was written before; asks again until it is known whether it is written.
    async fn write(&self, before: Written, part: &Part) -> Result<Written, Error> {
        let keys = &self.location.keys;
        let (mut by_site, clock, slot) = {
            let log = self.log();
            let first = part.added.first().map_or(part.last, |(_, commit, _)| *commit);
            (log.bytes().clone(), log.now(), log.due_slot(first.number()))
        };
        for (site, _, size) in &part.added {
            *by_site.entry(site.clone()).or_default() += size;
        }
        for (site, _, size) in &part.removed {
            let bytes = by_site.entry(site.clone()).or_default();
            *bytes = bytes.saturating_sub(*size);
        }
        let position = batch::position(part.last, part.epoch, by_site, clock);
        let mut operations = batch::operations(part, keys);
        operations.push(TxnOp::put(keys.position(), position.clone(), None));
        if let Some((at, commit)) = slot {
            operations.push(TxnOp::put(keys.slot(at), commit.to_string(), None));
        }
        let transaction = Txn::new()
            .when([
                Compare::create_revision(keys.leader(), CompareOp::Equal, self.elected),
                Compare::mod_revision(keys.position(), CompareOp::Equal, before.at),
            ])
            .and_then(operations)
            .or_else([TxnOp::get(keys.leader(), None), TxnOp::get(keys.position(), None)]);
        let bytes = position.len() + part.bytes();
        let after = |at| {
            self.location.growth.add(bytes);
            self.count(part, slot);
            Written {
                last: part.last,
                epoch: part.epoch,
                at,
                added: before.added + part.added.len(),
                added_bytes: before.added_bytes + part.added.iter().map(|(_, _, size)| size).sum::<u64>(),
            }
        };
        let answer = self.send(transaction).await?;
        if answer.succeeded() {
            let header = answer.header().map(etcd_client::ResponseHeader::revision);
            return Ok(after(header.unwrap_or_default()));
        }
        // Either somebody else leads, or this very transaction was written when it was sent before.
        let answers = answer.op_responses();
        let [TxnOpResponse::Get(leader), TxnOpResponse::Get(found)] = &*answers else {
            return Err(Error::Fenced {
                by: "another scheduler".to_owned(),
            });
        };
        match (leader.kvs(), found.kvs()) {
            ([leader], [found]) if leader.create_revision() == self.elected && found.value() == position => {
                Ok(after(found.mod_revision()))
            }
            ([leader], _) if leader.create_revision() != self.elected => Err(Error::Fenced {
                by: String::from_utf8_lossy(leader.value()).into_owned(),
            }),
            _ => Err(Error::Fenced {
                by: "another scheduler".to_owned(),
            }),
        }
    }

    /// Sends a transaction until there is an answer, or the right to write has lapsed.
    async fn send(&self, transaction: Txn) -> Result<etcd_client::TxnResponse, Error> {
        let mut pauses = ExponentialBuilder::new()
            .with_min_delay(Duration::from_millis(20))
            .with_max_delay(Duration::from_millis(500))
            .with_jitter()
            .without_max_times()
            .build();
        loop {
            let answer =
                tokio::time::timeout(REQUEST_TIMEOUT, self.location.kv().txn(transaction.clone())).await;
            let error = match answer {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => match refusal(&error) {
                    Some(cause) => return Err(Error::Refused { stored: 0, cause }),
                    None if passes(&error) => Error::storage("write to etcd")(error),
                    None => return Err(Error::storage("write to etcd")(error)),
                },
                Err(elapsed) => Error::storage("write to etcd in time")(elapsed),
            };
            let pause = pauses.next().unwrap_or(REQUEST_TIMEOUT);
            if Instant::now() + pause >= self.right.lapses() {
                return Err(error);
            }
            tracing::warn!(error = error.chain(), "retrying a request to etcd");
            tokio::time::sleep(pause).await;
        }
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

    /// Writes a part on top of all before.
    async fn append(&self, part: &Part) -> Result<(), Error> {
        let after = self.write(self.written(), part).await?;
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = after;
        Ok(())
    }

    /// A part is written.
    fn count(&self, part: &Part, slot: Option<(u64, u64)>) {
        let mut log = self.log();
        for (site, commit, size) in &part.added {
            log.added(site, commit.number(), *size);
        }
        for (site, commit, size) in &part.removed {
            log.removed(site, commit.number(), *size);
        }
        if let Some(slot) = slot {
            log.begin_slot(slot);
        }
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
