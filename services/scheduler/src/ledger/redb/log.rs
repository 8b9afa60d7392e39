//! The log of decisions in a redb table, and how much of it each site has.

use std::{collections::BTreeMap, time::Duration};

use redb::{ReadableTable as _, Table, TableDefinition, WriteTransaction};

use super::tables::META;
use crate::ledger::{
    Change, Error, codec,
    retention::{Shares, Trim, site, size},
};

/// Number of entries that are read at once, before a check whether they are enough.
const ENTRIES_PER_READ: usize = 512;

/// Site → bytes of its entries in the log.
const LOG_BYTES: TableDefinition<'static, &str, u64> = TableDefinition::new("log bytes by site");
/// When a slot of time began, in seconds of the ledger's clock → number of the first commit in it.
const LOG_SLOTS: TableDefinition<'static, u64, u64> = TableDefinition::new("log slots");
/// Key in [`META`] which says that the bytes by site are counted.
const COUNTED_KEY: &str = "log is counted";
/// Key in [`META`] of the ledger's clock, in seconds.
const CLOCK_KEY: &str = "log clock";

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

/// What the tables state of the log; counts it first when that was never done.
pub(super) fn shares(transaction: &WriteTransaction, decisions: &Decisions<'_>) -> Result<Shares, Error> {
    let mut meta = transaction.open_table(META).map_err(failed)?;
    let mut by_site = transaction.open_table(LOG_BYTES).map_err(failed)?;
    let slots = transaction.open_table(LOG_SLOTS).map_err(failed)?;
    if meta.get(COUNTED_KEY).map_err(failed)?.is_none() {
        let mut counted: BTreeMap<String, u64> = BTreeMap::new();
        for entry in decisions.iter().map_err(failed)? {
            let (_, value) = entry.map_err(failed)?;
            *counted.entry(site(value.value())).or_default() += size(value.value());
        }
        for (site, bytes) in counted {
            by_site.insert(&*site, bytes).map_err(failed)?;
        }
        meta.insert(COUNTED_KEY, 1).map_err(failed)?;
    }
    let clock = meta
        .get(CLOCK_KEY)
        .map_err(failed)?
        .map_or(0, |clock| clock.value());
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
        .remove(COUNTED_KEY)
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
    trim(decisions, Trim::beside(batch.len(), added, shares), shares)?;
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
    meta.insert(CLOCK_KEY, shares.now().as_secs()).map_err(failed)?;
    Ok(())
}

fn trim(decisions: &mut Decisions<'_>, mut left: Trim, shares: &mut Shares) -> Result<(), Error> {
    let too_old = shares.too_old_below();
    while left.old.entries() > 0 && left.readable() > 0 {
        let oldest = decisions
            .first()
            .map_err(Error::storage("read the oldest decision"))?;
        let Some((commit, site, size)) = oldest
            .filter(|(commit, _)| commit.value() < too_old)
            .map(|(commit, value)| (commit.value(), site(value.value()), size(value.value())))
        else {
            break;
        };
        decisions
            .remove(commit)
            .map_err(Error::storage("remove the oldest decision"))?;
        shares.removed(&site, commit, size);
        left.read(size);
        left.old.count(size);
    }
    while left.full.entries() > 0
        && let Some(full) = shares.full().map(str::to_owned)
    {
        if let Some((commit, size)) = shares.oldest(&full) {
            decisions
                .remove(commit)
                .map_err(Error::storage("remove a site's oldest decision"))?;
            shares.removed(&full, commit, size);
            left.full.count(size);
        } else if !scan(decisions, &mut left, shares)? {
            break;
        }
    }
    Ok(())
}

/// Reads on in the log, from where it was read before. Returns whether there was something to read, and it may be read.
fn scan(decisions: &Decisions<'_>, left: &mut Trim, shares: &mut Shares) -> Result<bool, Error> {
    let Some(from) = shares.scan_from().filter(|_| left.readable() > 0) else {
        return Ok(false);
    };
    let mut entries = decisions
        .range(from..)
        .map_err(Error::storage("read decisions"))?;
    for _ in 0..ENTRIES_PER_READ {
        if left.readable() == 0 {
            break;
        }
        let Some(entry) = entries.next() else {
            shares.scanned_all();
            break;
        };
        let (commit, value) = entry.map_err(Error::storage("read a decision"))?;
        shares.scan(commit.value(), value.value());
        left.read(size(value.value()));
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use crate::ledger::{Change, Commit, Decision, Ledger as _, Retention, redb::Redb};

    /// Entries of the log. One of so many is of the site whose share is full.
    const ENTRIES: u64 = 20_000;
    const EACH: u64 = 1000;
    /// Bytes of such an entry, and of the share.
    const LARGE: usize = 100_000;
    const SHARE: u64 = 1_000_000;

    fn change(number: u64) -> Change {
        let commit = Commit::new(number);
        let (site, bytes) = if number % EACH == 1 {
            ("full", LARGE)
        } else {
            ("other", 1)
        };
        let decision = Decision {
            commit,
            site: site.to_owned(),
            action: "x".repeat(bytes),
            ..Decision::default()
        };
        Change::Fence {
            site: site.to_owned(),
            fence: None,
            decision: Box::new(decision),
            commit,
        }
    }

    #[test]
    fn one_commit_reads_only_a_part_of_an_uneven_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.redb");
        let ledger = Redb::open(&path).unwrap();
        for first in 0..4 {
            let batch: Vec<_> = (1..=ENTRIES / 4)
                .map(|number| change(first * ENTRIES / 4 + number))
                .collect();
            ledger.commit(&batch).unwrap();
        }
        drop(ledger);
        // When it is opened again, it does not know where the entries of a site are.
        let ledger = Redb::open(&path).unwrap().retaining(Retention {
            bytes: SHARE,
            ..Retention::default()
        });
        let bytes = || ledger.shares.lock().unwrap().bytes()["full"];
        for (step, is_full) in [(1, true), (2, false)] {
            ledger.commit(&[change(ENTRIES + 1 + step)]).unwrap();
            let upto = ledger.shares.lock().unwrap().scan_from().unwrap();
            assert!(upto <= step * 8192 + 1, "step {step}: it is read up to {upto}");
            assert_eq!(bytes() > SHARE, is_full, "step {step}: {} bytes", bytes());
        }
    }
}
