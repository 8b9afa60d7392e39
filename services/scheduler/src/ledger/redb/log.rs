//! The log of decisions in a redb table, and how much of it each site has.

use std::{collections::BTreeMap, time::Duration};

use redb::{ReadableTable as _, Table, TableDefinition, WriteTransaction};

use super::tables::META;
use crate::ledger::{
    Change, Error, codec,
    retention::{Removal, SCAN, Shares, site, size},
};

/// Site → bytes of its entries in the log.
const LOG_BYTES: TableDefinition<'static, &str, u64> = TableDefinition::new("log bytes by site");
/// When a slot of time began, in seconds of the ledger's clock → number of the first commit in it.
const LOG_SLOTS: TableDefinition<'static, u64, u64> = TableDefinition::new("log slots");
/// In [`META`]: that the bytes by site are counted.
const COUNTED: &str = "log is counted";
/// In [`META`]: the ledger's clock, in seconds.
const CLOCK: &str = "log clock";

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::storage("count the log")(error)
}

type Decisions<'t> = Table<'t, u64, &'static [u8]>;

/// Bytes of all entries.
pub(super) fn log_bytes(decisions: &Decisions<'_>) -> Result<u64, Error> {
    let mut bytes = 0;
    for entry in decisions.iter().map_err(Error::storage("read decisions"))? {
        let (_, value) = entry.map_err(Error::storage("read a decision"))?;
        bytes += size(value.value());
    }
    Ok(bytes)
}

/// What the tables say of the log; counts it first when that was never done.
pub(super) fn shares(transaction: &WriteTransaction, decisions: &Decisions<'_>) -> Result<Shares, Error> {
    let mut meta = transaction.open_table(META).map_err(failed)?;
    let mut by_site = transaction.open_table(LOG_BYTES).map_err(failed)?;
    let slots = transaction.open_table(LOG_SLOTS).map_err(failed)?;
    if meta.get(COUNTED).map_err(failed)?.is_none() {
        let mut counted: BTreeMap<String, u64> = BTreeMap::new();
        for entry in decisions.iter().map_err(failed)? {
            let (_, value) = entry.map_err(failed)?;
            *counted.entry(site(value.value())).or_default() += size(value.value());
        }
        for (site, bytes) in counted {
            by_site.insert(&*site, bytes).map_err(failed)?;
        }
        meta.insert(COUNTED, 1).map_err(failed)?;
    }
    let clock = meta.get(CLOCK).map_err(failed)?.map_or(0, |clock| clock.value());
    let mut bytes = BTreeMap::new();
    for entry in by_site.iter().map_err(failed)? {
        let (site, size) = entry.map_err(failed)?;
        bytes.insert(site.value().to_owned(), size.value());
    }
    let mut began = BTreeMap::new();
    for entry in slots.iter().map_err(failed)? {
        let (at, commit) = entry.map_err(failed)?;
        began.insert(at.value(), commit.value());
    }
    Ok(Shares::new(Duration::from_secs(clock), bytes, began))
}

/// Counts the log anew: it was imported.
pub(super) fn recount(transaction: &WriteTransaction, decisions: &Decisions<'_>) -> Result<Shares, Error> {
    transaction
        .open_table(META)
        .map_err(failed)?
        .remove(COUNTED)
        .map_err(failed)?;
    shares(transaction, decisions)
}

/// Appends to the log, and removes what is not to be kept.
pub(super) fn append(
    transaction: &WriteTransaction,
    decisions: &mut Decisions<'_>,
    batch: &[Change],
    shares: &mut Shares,
) -> Result<(), Error> {
    let before = shares.bytes().clone();
    let slot = batch
        .first()
        .and_then(|first| shares.due_slot(first.commit().number()));
    let mut added = 0;
    for change in batch {
        let decision = change.decision();
        let value = codec::encode_decision(decision);
        shares.added(&decision.site, change.commit().number(), size(&value));
        added += size(&value);
        decisions
            .insert(change.commit().number(), &*value)
            .map_err(Error::storage("write a decision"))?;
    }
    trim(decisions, Removal::beside(batch.len(), added), shares)?;
    let mut by_site = transaction.open_table(LOG_BYTES).map_err(failed)?;
    for (site, bytes) in shares.bytes() {
        if before.get(site) != Some(bytes) {
            by_site.insert(&**site, bytes).map_err(failed)?;
        }
    }
    let past = shares.take_past_slots();
    if slot.is_some() || !past.is_empty() {
        let mut slots = transaction.open_table(LOG_SLOTS).map_err(failed)?;
        if let Some((at, commit)) = slot {
            shares.begin_slot((at, commit));
            slots.insert(at, commit).map_err(failed)?;
        }
        for at in past {
            slots.remove(at).map_err(failed)?;
        }
    }
    let mut meta = transaction.open_table(META).map_err(failed)?;
    meta.insert(CLOCK, shares.now().as_secs()).map_err(failed)?;
    Ok(())
}

fn trim(decisions: &mut Decisions<'_>, mut left: Removal, shares: &mut Shares) -> Result<(), Error> {
    let too_old = shares.too_old_below();
    while left.entries() > 0 {
        let oldest = decisions
            .first()
            .map_err(Error::storage("read the oldest decision"))?;
        let Some((commit, site, size)) = oldest
            .map(|(commit, value)| (commit.value(), site(value.value()), size(value.value())))
            .filter(|(commit, _, _)| *commit < too_old)
        else {
            break;
        };
        decisions
            .remove(commit)
            .map_err(Error::storage("remove the oldest decision"))?;
        shares.removed(&site, commit, size);
        left.count(size);
    }
    while left.entries() > 0
        && let Some(full) = shares.full().map(str::to_owned)
    {
        if let Some((commit, size)) = shares.oldest(&full) {
            decisions
                .remove(commit)
                .map_err(Error::storage("remove a site's oldest decision"))?;
            shares.removed(&full, commit, size);
            left.count(size);
            continue;
        }
        let Some(from) = shares.scan_from() else { break };
        let mut scanned = 0;
        for entry in decisions
            .range(from..)
            .map_err(Error::storage("read decisions"))?
            .take(SCAN)
        {
            let (commit, value) = entry.map_err(Error::storage("read a decision"))?;
            shares.scan(commit.value(), value.value());
            scanned += 1;
        }
        if scanned < SCAN {
            shares.scanned_all();
        }
        if shares.oldest(&full).is_none() {
            // Scanned enough for one commit.
            break;
        }
    }
    Ok(())
}
