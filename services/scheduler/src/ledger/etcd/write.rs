//! The transaction that every change of the ledger is.
//!
//! It compares the leader's key and the position, so a deposed leader writes nothing, and the same transaction may be sent again: etcd applies it
//! once.

use std::{
    sync::PoisonError,
    time::{Duration, Instant},
};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use etcd_client::{Compare, CompareOp, Txn, TxnOp, TxnOpResponse, TxnResponse};

use super::{
    Etcd, Written,
    batch::{self, Part},
    retries::{REQUEST_TIMEOUT, passes, refusal},
};
use crate::ledger::Error;

impl Etcd {
    /// Writes a part on top of all before.
    pub(super) async fn append(&self, part: &Part) -> Result<(), Error> {
        let after = self.write(self.written(), part).await?;
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = after;
        Ok(())
    }

    /// Writes one part on top of what was written `before`; retries until it is known whether etcd has written it.
    pub(super) async fn write(&self, before: Written, part: &Part) -> Result<Written, Error> {
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
        let answer = self.send_transaction(transaction).await?;
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
    pub(super) async fn send_transaction(&self, transaction: Txn) -> Result<TxnResponse, Error> {
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

    /// Counts in the sizes of the log what a written part adds and removes.
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
}
