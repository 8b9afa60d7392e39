//! The log of decisions in a redb table.

use redb::{ReadableTable as _, Table};

use crate::{
    convert,
    ledger::{Change, Error, Retention, retention::STEP},
};

/// Bytes of all entries.
pub(super) fn log_bytes(decisions: &Table<'_, u64, &'static [u8]>) -> Result<u64, Error> {
    let mut bytes = 0;
    for entry in decisions.iter().map_err(Error::storage("read decisions"))? {
        let (_, value) = entry.map_err(Error::storage("read a decision"))?;
        bytes += size(value.value());
    }
    Ok(bytes)
}

fn size(value: &[u8]) -> u64 {
    u64::try_from(value.len()).unwrap_or(u64::MAX)
}

/// Appends to the log, and removes from its other end what is not to be kept; returns its bytes.
pub(super) fn append(
    decisions: &mut Table<'_, u64, &'static [u8]>,
    batch: &[Change],
    retention: Retention,
    mut bytes: u64,
) -> Result<u64, Error> {
    let mut newest = None;
    for change in batch {
        let Some(decision) = change.decision() else {
            continue;
        };
        newest = convert::time(decision.time).or(newest);
        let value = prost::Message::encode_to_vec(decision);
        bytes += size(&value);
        decisions
            .insert(change.revision(), &*value)
            .map_err(Error::storage("write a decision"))?;
    }
    for _ in 0..batch.len() + STEP {
        let oldest = decisions
            .first()
            .map_err(Error::storage("read the oldest decision"))?;
        let Some(length) = oldest
            .filter(|(_, value)| retention.drops(value.value(), bytes, newest))
            .map(|(_, value)| size(value.value()))
        else {
            break;
        };
        bytes = bytes.saturating_sub(length);
        decisions
            .pop_first()
            .map_err(Error::storage("remove the oldest decision"))?;
    }
    Ok(bytes)
}
