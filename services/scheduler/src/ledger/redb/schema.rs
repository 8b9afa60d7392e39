//! Which layout a file has, and the way from an older one to the present one.

use std::collections::BTreeSet;

use redb::{Database, ReadableDatabase as _, ReadableTable as _, Table, WriteTransaction};

use super::{
    log,
    tables::{DECISIONS, FENCES, HISTORIES, META, RECORDS, REMOVALS},
};
use crate::ledger::{Commit, Error, History, codec, removals::Removals};

/// Version of the layout. Raised with every change that an older program cannot read, or must not write.
///
/// 2 counts the bytes of the log, so that it can be kept within bounds. 3 says when the last record of each site was removed. 4 has a
/// history for each site in the place of one epoch and revision for all.
const SCHEMA: u64 = 4;

/// The version of a layout that will be migrated; `None` for a present, a later or a new one.
///
/// # Errors
/// When the storage fails.
pub(super) fn earlier(database: &Database) -> Result<Option<u64>, Error> {
    let failed = |error: redb::Error| Error::storage("read schema")(error);
    let transaction = database.begin_read().map_err(|error| failed(error.into()))?;
    let meta = match transaction.open_table(META) {
        Ok(meta) => meta,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(failed(error.into())),
    };
    let found = meta.get("schema").map_err(|error| failed(error.into()))?;
    Ok(found
        .map(|version| version.value())
        .filter(|version| *version < SCHEMA))
}

/// Makes the tables, or brings those of an older layout to the present one.
///
/// # Errors
/// When the storage fails, or was written by a later version.
pub(super) fn prepare(database: &Database) -> Result<(), Error> {
    let transaction = database.begin_write().map_err(Error::storage("begin"))?;
    make(&transaction)?;
    {
        let mut meta = transaction
            .open_table(META)
            .map_err(Error::storage("open meta"))?;
        let found = meta
            .get("schema")
            .map_err(Error::storage("read schema"))?
            .map(|version| version.value());
        match found {
            Some(SCHEMA) | None => {}
            Some(from @ 1..SCHEMA) => {
                migrate(&transaction, &mut meta, from)?;
                tracing::info!(from, to = SCHEMA, "the ledger is migrated");
            }
            Some(found) => {
                return Err(Error::Schema {
                    found,
                    understood: SCHEMA,
                });
            }
        }
        if found != Some(SCHEMA) {
            meta.insert("schema", SCHEMA)
                .map_err(Error::storage("write schema"))?;
        }
    }
    transaction.commit().map_err(Error::storage("commit the schema"))
}

fn make(transaction: &WriteTransaction) -> Result<(), Error> {
    let failed = || Error::storage("make the tables");
    transaction.open_table(RECORDS).map_err(failed())?;
    transaction.open_table(REMOVALS).map_err(failed())?;
    transaction.open_table(HISTORIES).map_err(failed())?;
    transaction.open_table(FENCES).map_err(failed())?;
    transaction.open_table(DECISIONS).map_err(failed())?;
    Ok(())
}

fn migrate(
    transaction: &WriteTransaction,
    meta: &mut Table<'_, &'static str, u64>,
    from: u64,
) -> Result<(), Error> {
    let decisions = transaction
        .open_table(DECISIONS)
        .map_err(Error::storage("open decisions"))?;
    if from < 2 {
        let bytes = log::log_bytes(&decisions)?;
        meta.insert("log bytes", bytes)
            .map_err(Error::storage("write the size of the log"))?;
    }
    if from < 3 {
        let mut table = transaction
            .open_table(REMOVALS)
            .map_err(Error::storage("open removals"))?;
        let mut removals = Removals::default();
        for entry in decisions.iter().map_err(Error::storage("read decisions"))? {
            let (commit, value) = entry.map_err(Error::storage("read a decision"))?;
            removals.add(Commit::new(commit.value()), value.value());
        }
        for (site, commit) in removals.by_site() {
            table
                .insert(&*site, commit.number())
                .map_err(Error::storage("write a removal"))?;
        }
    }
    if from < 4 {
        divide(transaction, meta)?;
    }
    Ok(())
}

/// Gives each site the position that all sites had in common: no number that was issued changes.
fn divide(transaction: &WriteTransaction, meta: &mut Table<'_, &'static str, u64>) -> Result<(), Error> {
    let mut number = |key: &str| -> Result<u64, Error> {
        let number = meta.remove(key).map_err(Error::storage("read the position"))?;
        Ok(number.map_or(0, |number| number.value()))
    };
    let (epoch, revision) = (number("epoch")?, number("revision")?);
    meta.insert("commit", revision)
        .map_err(Error::storage("write the commit"))?;
    let mut sites = BTreeSet::new();
    let records = transaction
        .open_table(RECORDS)
        .map_err(Error::storage("open records"))?;
    for entry in records.iter().map_err(Error::storage("read records"))? {
        let (key, _) = entry.map_err(Error::storage("read a record"))?;
        sites.insert(key.value().0.to_owned());
    }
    let removals = transaction
        .open_table(REMOVALS)
        .map_err(Error::storage("open removals"))?;
    for entry in removals.iter().map_err(Error::storage("read removals"))? {
        let (site, _) = entry.map_err(Error::storage("read a removal"))?;
        sites.insert(site.value().to_owned());
    }
    let fences = transaction
        .open_table(FENCES)
        .map_err(Error::storage("open fences"))?;
    for entry in fences.iter().map_err(Error::storage("read fences"))? {
        let (site, _) = entry.map_err(Error::storage("read a fence"))?;
        sites.insert(site.value().to_owned());
    }
    let mut histories = transaction
        .open_table(HISTORIES)
        .map_err(Error::storage("open histories"))?;
    let history = codec::encode_history(&History::of_region(epoch));
    for site in sites {
        histories
            .insert(&*site, &*history)
            .map_err(Error::storage("write a history"))?;
    }
    Ok(())
}
