//! A batch as etcd's operations: as many transactions as its limits ask for, in order.
//!
//! A transaction writes each key once, so of several changes of one record the last is written. Each transaction ends at a
//! change, with the position of that change: whatever is cut off, what is there is a prefix of what was submitted.

use std::collections::BTreeMap;

use etcd_client::TxnOp;
use prost::Message as _;
use proto::ledger::v1 as disk;

use super::{EtcdArgs, keys::Keys};
use crate::ledger::{Change, Position, codec};

/// Operations that are not from the batch: the position, the log's end, the schema.
const OWN_OPERATIONS: usize = 8;
/// Bytes that are not from the batch: these operations, what the transaction compares, and the request around it.
const OWN_BYTES: usize = 16 << 10;
/// Bytes of one operation besides its key and value.
const FRAME: usize = 32;

/// What etcd takes at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Operations of a batch in one transaction.
    pub(super) operations: usize,
    /// Their bytes.
    pub(super) bytes: usize,
}

impl Limits {
    /// What is left of etcd's own limits.
    pub(super) fn of(args: &EtcdArgs) -> Self {
        let whole = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Self {
            operations: whole(args.etcd_max_txn_ops).saturating_sub(OWN_OPERATIONS),
            bytes: whole(args.etcd_max_request_bytes).saturating_sub(OWN_BYTES),
        }
    }

    /// Whether so much is too much for one transaction.
    pub(super) fn exceeded(self, operations: usize, bytes: usize) -> bool {
        operations > self.operations || bytes > self.bytes
    }
}

/// Bytes of one operation.
pub(super) fn size(key: &str, value: Option<&[u8]>) -> usize {
    FRAME + key.len() + value.map_or(0, <[u8]>::len)
}

/// What one transaction writes, besides the position.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// Values by key; `None` removes.
    pub(super) writes: BTreeMap<String, Option<Vec<u8>>>,
    /// Where the history stands after it.
    pub(super) position: Position,
    /// Bytes that it adds to the log.
    pub(super) logged: u64,
    /// Entries that it adds to the log.
    pub(super) entries: usize,
}

/// Cuts a batch that follows on `position`. A change that is too large for itself is a part nevertheless: [`weight`] has seen to
/// it that there is none.
///
/// [`weight`]: crate::ledger::weight
pub(super) fn parts(batch: &[Change], keys: &Keys, limits: Limits, mut position: Position) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut bytes = 0;
    for change in batch {
        position = change.position(position);
        let mut writes: Vec<(String, Option<Vec<u8>>)> = Vec::with_capacity(3);
        match change {
            Change::Epoch {
                epoch: _,
                revision: _,
            } => {}
            Change::Record {
                key,
                record,
                decision: _,
                revision,
            } => {
                if record.is_none() {
                    writes.push((keys.removal(&key.site), Some(removal(*revision))));
                }
                let value = record.as_ref().map(|record| codec::encode(&key.site, record));
                writes.push((keys.record(key), value));
            }
            Change::Fence {
                site,
                fence,
                decision: _,
                revision: _,
            } => writes.push((keys.fence(site), fence.as_ref().map(codec::encode_fence))),
        }
        let entry = change.decision().map(prost::Message::encode_to_vec);
        let logged = entry.as_ref().map_or(0, Vec::len);
        if let Some(entry) = entry {
            writes.push((keys.decision(change.revision()), Some(entry)));
        }
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
            part.position = position;
            part.logged += u64::try_from(logged).unwrap_or(u64::MAX);
            part.entries += usize::from(logged > 0);
        }
    }
    parts
}

/// The bytes of the revision of a removal.
pub(super) fn removal(revision: u64) -> Vec<u8> {
    revision.to_string().into_bytes()
}

/// The operations of a transaction.
pub(super) fn operations(writes: &BTreeMap<String, Option<Vec<u8>>>) -> Vec<TxnOp> {
    writes
        .iter()
        .map(|(key, value)| match value {
            Some(value) => TxnOp::put(&**key, value.clone(), None),
            None => TxnOp::delete(&**key, None),
        })
        .collect()
}

/// The bytes of a position, unlike those of every other commit.
pub(super) fn position(position: Position, log_bytes: u64) -> Vec<u8> {
    let Position { epoch, revision } = position;
    disk::Position {
        epoch,
        revision,
        log_bytes,
        commit_id: uuid::Uuid::new_v4().to_string(),
    }
    .encode_to_vec()
}
