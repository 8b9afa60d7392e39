//! A batch as etcd's operations: as many transactions as its limits ask for, in order.
//!
//! A transaction writes each key once, so of several changes of one record the last is written. Each transaction ends at a
//! change, with the position of that change: whatever is cut off, what is there is a prefix of what was submitted.

use std::collections::BTreeMap;

use etcd_client::TxnOp;
use prost::Message as _;
use proto::ledger::v1 as disk;

use super::keys::Keys;
use crate::ledger::{Change, Position, codec};

/// Operations in one transaction: etcd takes 128 unless told otherwise, and the position and the log's end need two.
pub(super) const OPERATIONS: usize = 120;
/// Bytes of keys and values in one transaction: etcd takes requests of 1.5 MiB unless told otherwise.
pub(super) const BYTES: usize = 1 << 20;

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

/// Cuts a batch that follows on `position`.
pub(super) fn parts(batch: &[Change], keys: &Keys, mut position: Position) -> Vec<Part> {
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
            .map(|(key, value)| key.len() + value.as_ref().map_or(0, Vec::len))
            .sum();
        let full = parts
            .last()
            .is_none_or(|part| part.writes.len() + writes.len() > OPERATIONS || bytes + added > BYTES);
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
