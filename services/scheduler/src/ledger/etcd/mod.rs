//! The backend of several schedulers: an etcd cluster, which also elects the one that may write.
//!
//! Every commit is a transaction that compares two things: that the leader's key is still the one that was made when this
//! process was elected, and that the position is still what this process has written last. So a leader that was paused past
//! its lease cannot write, and a transaction that may or may not have been applied can be sent again: it is applied once.

mod ask;
mod batch;
mod connect;
mod keys;
mod moving;
mod place;
mod right;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use etcd_client::{Compare, CompareOp, DeleteOptions, GetOptions, KeyValue, Txn, TxnOp, TxnOpResponse};
use prost::Message as _;
use proto::{ledger::v1 as disk, placement::v1 as api};
use tokio::runtime::Handle;

pub(crate) use ask::ask;
pub use connect::EtcdArgs;
pub use place::Place;
pub use right::Right;

use self::{ask::passes, batch::Part, keys::Keys};
use super::{Change, Contents, Error, Ledger, Position, Retention, retention::STEP};
use crate::convert;

/// Version of the layout in [`keys`].
///
/// 2 says when the last record of each site was removed.
const SCHEMA: u64 = 2;
/// So many entries are added to the log before its other end is looked at again.
const LOOK: usize = 64;
/// Keys that are read at once.
const PAGE: i64 = 256;
/// Largest answer that is accepted: a page of large records.
const ANSWER: usize = 512 << 20;
/// How long one request may take before it is sent again.
const REQUEST: Duration = Duration::from_secs(2);

/// The ledger of an elected process.
#[derive(Debug)]
pub struct Etcd {
    place: Place,
    /// When this process was elected: the revision that made its key.
    elected: i64,
    right: Arc<Right>,
    runtime: Handle,
    retention: Retention,
    written: Mutex<Written>,
}

/// What this process has written last.
#[derive(Clone, Copy, Debug)]
struct Written {
    position: Position,
    log_bytes: u64,
    /// etcd's revision of the position's key.
    at: i64,
    /// Entries of the log since its other end was looked at.
    unseen: usize,
}

impl Etcd {
    /// Opens the ledger as the owner of the leader's key, or makes it. The process was `elected` at that revision, and may
    /// write as long as its `right` holds.
    ///
    /// # Errors
    /// When etcd cannot be reached in that time, holds another schema, or another process was elected meanwhile.
    pub async fn open(place: Place, elected: i64, right: Arc<Right>) -> Result<Self, Error> {
        let mut etcd = Self {
            place,
            elected,
            right,
            runtime: Handle::current(),
            retention: Retention::default(),
            written: Mutex::new(Written {
                position: Position {
                    epoch: 1,
                    revision: 0,
                },
                log_bytes: 0,
                at: 0,
                unseen: 0,
            }),
        };
        let mut schema = etcd
            .place
            .get(etcd.place.keys.schema(), GetOptions::new())
            .await?;
        let found = match schema.take_kvs().first() {
            None => {
                etcd.make().await?;
                SCHEMA
            }
            Some(schema) => moving::schema(schema.value())?,
        };
        let written = etcd.position().await?;
        etcd.written = Mutex::new(written);
        if found < SCHEMA {
            etcd.migrate(found).await?;
        }
        Ok(etcd)
    }

    /// The same ledger with another limit of its log.
    #[must_use]
    pub fn retaining(self, retention: Retention) -> Self {
        Self { retention, ..self }
    }

    async fn make(&self) -> Result<(), Error> {
        let empty = self.written();
        let part = Part {
            writes: [(self.place.keys.schema(), Some(SCHEMA.to_string().into_bytes()))].into(),
            position: empty.position,
            ..Part::default()
        };
        self.write(empty, &part, None).await.map(drop)
    }

    fn written(&self) -> Written {
        *self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn position(&self) -> Result<Written, Error> {
        let mut found = self
            .place
            .get(self.place.keys.position(), GetOptions::new())
            .await?;
        let found = found.take_kvs();
        let corrupt = |rule: String| Error::Corrupt {
            what: "position".to_owned(),
            rule,
        };
        let value = found.first().ok_or_else(|| corrupt("is missing".to_owned()))?;
        let disk::Position {
            epoch,
            revision,
            log_bytes,
            commit_id: _,
        } = disk::Position::decode(value.value()).map_err(|error| corrupt(error.to_string()))?;
        Ok(Written {
            position: Position { epoch, revision },
            log_bytes,
            at: value.mod_revision(),
            unseen: LOOK,
        })
    }

    /// Writes one part on top of what was written before; asks again until it is known whether it is written.
    async fn write(&self, before: Written, part: &Part, trimmed: Option<Trimmed>) -> Result<Written, Error> {
        let keys = &self.place.keys;
        let looked = trimmed.is_some();
        let Trimmed { upto, bytes } = trimmed.unwrap_or_default();
        let log_bytes = (before.log_bytes + part.logged).saturating_sub(bytes);
        let position = batch::position(part.position, log_bytes);
        let mut operations = batch::operations(&part.writes);
        operations.push(TxnOp::put(keys.position(), position.clone(), None));
        if upto > 0 {
            let end = DeleteOptions::new().with_range(keys.decision(upto));
            operations.push(TxnOp::delete(keys.decision(0), Some(end)));
        }
        let transaction = Txn::new()
            .when([
                Compare::create_revision(keys.leader(), CompareOp::Equal, self.elected),
                Compare::mod_revision(keys.position(), CompareOp::Equal, before.at),
            ])
            .and_then(operations)
            .or_else([TxnOp::get(keys.leader(), None), TxnOp::get(keys.position(), None)]);
        let after = |at| Written {
            position: part.position,
            log_bytes,
            at,
            unseen: if looked { 0 } else { before.unseen + part.entries },
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
                by: "somebody".to_owned(),
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
                by: "somebody".to_owned(),
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
            let answer = tokio::time::timeout(REQUEST, self.place.kv().txn(transaction.clone())).await;
            let error = match answer {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) if !passes(&error) => return Err(Error::storage("write to etcd")(error)),
                Ok(Err(error)) => Error::storage("write to etcd")(error),
                Err(elapsed) => Error::storage("write to etcd in time")(elapsed),
            };
            let pause = pauses.next().unwrap_or(REQUEST);
            if Instant::now() + pause >= self.right.lapses() {
                return Err(error);
            }
            tracing::warn!(error = error.chain(), "asking etcd again");
            tokio::time::sleep(pause).await;
        }
    }

    /// Which entries of the log go with the next commit. The log's end is looked at only now and then, since that is a
    /// request of its own.
    async fn trim(&self, written: Written, part: &Part, batch: &[Change]) -> Result<Option<Trimmed>, Error> {
        let due = written.unseen + part.entries > LOOK;
        if !due && written.log_bytes + part.logged <= self.retention.bytes {
            return Ok(None);
        }
        let limit = written.unseen + part.entries + STEP;
        let mut bytes = written.log_bytes + part.logged;
        let newest = batch
            .iter()
            .rev()
            .find_map(|change| convert::time(change.decision()?.time));
        let keys = &self.place.keys;
        let options = GetOptions::new()
            .with_range(keys.decision(part.position.revision))
            .with_limit(i64::try_from(limit).unwrap_or(PAGE));
        let oldest = self.place.get(keys.decision(0), options).await?.take_kvs();
        let mut trimmed = Trimmed::default();
        for entry in &oldest {
            if !self.retention.drops(entry.value(), bytes, newest) {
                break;
            }
            let size = u64::try_from(entry.value().len()).unwrap_or(u64::MAX);
            bytes = bytes.saturating_sub(size);
            trimmed.bytes += size;
            trimmed.upto = number(keys, entry)? + 1;
        }
        Ok(Some(trimmed))
    }

    async fn submit(&self, batch: &[Change]) -> Result<(), Error> {
        let (keys, limits) = (&self.place.keys, self.place.limits);
        for part in batch::parts(batch, keys, limits, self.written().position) {
            let before = self.written();
            let trimmed = self.trim(before, &part, batch).await?;
            let after = self.write(before, &part, trimmed).await?;
            *self.written.lock().unwrap_or_else(PoisonError::into_inner) = after;
        }
        Ok(())
    }

    /// Entries sort by revision, and there is one for nearly each: they are read in spans of revisions, from the newest.
    async fn log(
        &self,
        before: u64,
        limit: usize,
        wanted: &dyn Fn(&api::Decision) -> bool,
    ) -> Result<Vec<api::Decision>, Error> {
        let keys = &self.place.keys;
        let mut found = Vec::new();
        let mut upto = before.min(self.written().position.revision.saturating_add(1));
        let mut span = u64::try_from(PAGE).unwrap_or(1);
        while upto > 0 && found.len() < limit {
            let from = upto.saturating_sub(span);
            let options = GetOptions::new().with_range(keys.decision(upto));
            let entries = self.place.get(keys.decision(from), options).await?.take_kvs();
            // A new epoch leaves a gap, which may be wide.
            span = if entries.is_empty() {
                span.saturating_mul(2)
            } else {
                u64::try_from(PAGE).unwrap_or(1)
            };
            for entry in entries.iter().rev() {
                let decision = api::Decision::decode(entry.value()).map_err(|error| Error::Corrupt {
                    what: format!("decision {}", String::from_utf8_lossy(entry.key())),
                    rule: error.to_string(),
                })?;
                if found.len() < limit && wanted(&decision) {
                    found.push(decision);
                }
            }
            upto = from;
        }
        Ok(found)
    }
}

/// The end of the log that is removed: entries below a revision.
#[derive(Clone, Copy, Debug, Default)]
struct Trimmed {
    upto: u64,
    bytes: u64,
}

fn number(keys: &Keys, entry: &KeyValue) -> Result<u64, Error> {
    let zero = keys.decision(0);
    let prefix = zero.trim_end_matches('0');
    let digits = Keys::rest(entry.key(), prefix)?;
    digits.parse().map_err(|_| Error::Corrupt {
        what: format!("key of decision {digits}"),
        rule: "is not a revision".to_owned(),
    })
}

impl Ledger for Etcd {
    fn load(&self) -> Result<Contents, Error> {
        self.runtime.block_on(self.read())
    }

    fn commit(&self, batch: &[Change]) -> Result<(), Error> {
        self.runtime.block_on(self.submit(batch))
    }

    fn largest(&self) -> Option<usize> {
        Some(self.place.limits.bytes)
    }

    fn decisions(
        &self,
        before: u64,
        limit: usize,
        wanted: &dyn Fn(&api::Decision) -> bool,
    ) -> Result<Vec<api::Decision>, Error> {
        self.runtime.block_on(self.log(before, limit, wanted))
    }

    fn export(&self, take: &mut dyn FnMut(disk::Entry) -> Result<(), Error>) -> Result<(), Error> {
        self.runtime.block_on(self.hand_out(take))
    }

    fn import(&self, entries: &mut dyn Iterator<Item = Result<disk::Entry, Error>>) -> Result<(), Error> {
        self.runtime.block_on(self.take_in(entries))
    }
}
