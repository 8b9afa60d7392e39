//! A batch as etcd's operations: as many transactions as its limits ask for, in order.
//!
//! A transaction writes each key once, so of several changes of one record the last is written. Each transaction ends at a
//! change, with the position of that change: whatever is cut off, what is there is a prefix of what was submitted.

use std::{collections::BTreeMap, time::Duration};

use etcd_client::{DeleteOptions, TxnOp};
use prost::Message as _;
use proto::ledger::v1 as disk;

use super::{connect::EtcdArgs, keys::Keys};
use crate::ledger::{Change, Commit, codec, retention};

/// Operations that are not from the batch: the position, the log's end, the schema.
const OWN_OPERATIONS: usize = 8;
/// Bytes that are not from the batch: these operations, what the transaction compares, and the request around it.
const OWN_BYTES: usize = 16 << 10;
/// Bytes of one operation besides its key and value.
const OPERATION_BYTES: usize = 32;

/// What etcd takes at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Operations of a batch in one transaction.
    pub(super) operations: usize,
    /// Their bytes.
    pub(super) bytes: usize,
}

impl From<&EtcdArgs> for Limits {
    /// What is left of etcd's own limits.
    fn from(args: &EtcdArgs) -> Self {
        let whole = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Self {
            operations: whole(args.etcd_max_txn_ops).saturating_sub(OWN_OPERATIONS),
            bytes: whole(args.etcd_max_request_bytes).saturating_sub(OWN_BYTES),
        }
    }
}

impl Limits {
    /// Whether so much is too much for one transaction.
    pub(super) fn exceeded(self, operations: usize, bytes: usize) -> bool {
        operations > self.operations || bytes > self.bytes
    }
}

/// Bytes of one operation.
pub(super) fn size(key: &str, value: Option<&[u8]>) -> usize {
    OPERATION_BYTES + key.len() + value.map_or(0, <[u8]>::len)
}

/// Bytes of an operation that removes a span of the log.
pub(super) fn span_size(keys: &Keys) -> usize {
    // The keys of all entries have one length.
    let key = keys.decision(Commit::MAX);
    size(&key, None) + key.len()
}

/// What one transaction writes, besides the position.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// Values by key; `None` removes.
    pub(super) writes: BTreeMap<String, Option<Vec<u8>>>,
    /// Spans of the log that it removes: from one commit to another, with it.
    pub(super) spans: Vec<(Commit, Commit)>,
    /// Its last commit.
    pub(super) last: Commit,
    /// Epoch of every site, until a layout from before version 3 is migrated.
    pub(super) epoch: u64,
    /// Entries that it adds to the log: site, commit and size.
    pub(super) added: Vec<(String, Commit, u64)>,
    /// Entries that it removes from the log.
    pub(super) removed: Vec<(String, Commit, u64)>,
    /// Changes of the batch that it stores.
    pub(super) changes: usize,
}

impl Part {
    /// Its operations, besides the position.
    pub(super) fn operations(&self) -> usize {
        self.writes.len() + self.spans.len()
    }

    /// Bytes of what it writes.
    pub(super) fn bytes(&self) -> usize {
        let writes = self.writes.iter();
        writes.map(|(key, value)| size(key, value.as_deref())).sum()
    }

    /// How many entries of the log it may remove besides, each in an operation of `span` bytes.
    pub(super) fn room(&self, limits: Limits, span: usize) -> usize {
        let bytes = self.bytes() + self.spans.len() * span;
        let operations = limits.operations.saturating_sub(self.operations());
        operations.min(limits.bytes.saturating_sub(bytes) / span)
    }

    /// Removes an entry of the log: in one operation with the one before it, as long as they follow each other.
    pub(super) fn remove(&mut self, commit: Commit) {
        match self.spans.last_mut() {
            Some((_, last)) if last.next() == commit => *last = commit,
            Some(_) | None => self.spans.push((commit, commit)),
        }
    }
}

/// Cuts a batch. A change that is too large for itself is a part nevertheless: [`weight`] has seen to
/// it that there is none.
///
/// [`weight`]: crate::ledger::weight
pub(super) fn parts(batch: &[Change], keys: &Keys, limits: Limits) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut bytes = 0;
    for change in batch {
        let mut writes: Vec<(String, Option<Vec<u8>>)> = Vec::with_capacity(3);
        match change {
            Change::Raise {
                site,
                history,
                decision: _,
                commit: _,
            } => writes.push((keys.history(site), Some(codec::encode_history(history)))),
            Change::Record {
                key,
                record,
                decision: _,
                commit,
            } => {
                if record.is_none() {
                    writes.push((keys.removal(&key.site), Some(removal(*commit))));
                }
                let value = record.as_ref().map(|record| codec::encode(&key.site, record));
                writes.push((keys.record(key), value));
            }
            Change::Fence {
                site,
                fence,
                decision: _,
                commit: _,
            } => writes.push((keys.fence(site), fence.as_ref().map(codec::encode_fence))),
        }
        let (commit, decision) = (change.commit(), change.decision());
        let entry = codec::encode_decision(decision);
        let logged = (decision.site.clone(), commit, retention::size(&entry));
        writes.push((keys.decision(commit), Some(entry)));
        let added: usize = writes
            .iter()
            .map(|(key, value)| size(key, value.as_deref()))
            .sum();
        let full = parts
            .last()
            .is_none_or(|part| limits.exceeded(part.writes.len() + writes.len(), bytes + added));
        if full {
            parts.push(Part::default());
            bytes = 0;
        }
        bytes += added;
        if let Some(part) = parts.last_mut() {
            part.writes.extend(writes);
            part.last = commit;
            part.added.push(logged);
            part.changes += 1;
        }
    }
    parts
}

/// The bytes of the commit of a removal.
pub(super) fn removal(commit: Commit) -> Vec<u8> {
    commit.to_string().into_bytes()
}

/// The operations of a transaction.
pub(super) fn operations(part: &Part, keys: &Keys) -> Vec<TxnOp> {
    let writes = part.writes.iter().map(|(key, value)| match value {
        Some(value) => TxnOp::put(&**key, value.clone(), None),
        None => TxnOp::delete(&**key, None),
    });
    let spans = part.spans.iter().map(|(first, last)| {
        let options = DeleteOptions::new().with_range(keys.decision(last.next()));
        TxnOp::delete(keys.decision(*first), Some(options))
    });
    writes.chain(spans).collect()
}

/// The bytes of a position, unlike those of every other commit.
pub(super) fn position(last: Commit, epoch: u64, by_site: BTreeMap<String, u64>, clock: Duration) -> Vec<u8> {
    disk::Position {
        epoch,
        commit: last.number(),
        log_bytes: by_site.values().sum(),
        commit_id: uuid::Uuid::new_v4().to_string(),
        log_bytes_by_site: by_site,
        log_is_counted: true,
        log_clock_seconds: clock.as_secs(),
    }
    .encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removals_of_one_transaction_are_limited_by_bytes_too() {
        let keys = Keys::new("/sip/ledger");
        let span = span_size(&keys);
        let mut part = Part::default();
        part.writes.insert(keys.slot(7), None);
        let written = part.bytes();
        let limits = |operations: usize, spans: usize| Limits {
            operations,
            bytes: written + spans * span,
        };
        assert_eq!(part.room(limits(9, 3), span), 3);
        assert_eq!(part.room(limits(3, 9), span), 2, "one operation is used");
        for number in [1, 3, 5] {
            part.remove(Commit::new(number));
        }
        assert_eq!(part.room(limits(9, 3), span), 0);
        assert_eq!(part.room(limits(9, 4), span), 1);
        assert_eq!(part.room(limits(1, 1), span), 0, "it has more than that");
    }
}
