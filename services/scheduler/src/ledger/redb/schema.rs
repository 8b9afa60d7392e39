//! Which layout a file has, and the way from an older one to the present one.

use redb::{Database, ReadableTable as _, Table, WriteTransaction};

use super::{DECISIONS, FENCES, META, RECORDS, REMOVALS, log};
use crate::ledger::{Error, removals::Told};

/// Version of the layout. Raised with every change that an older program cannot read, or must not write.
///
/// 2 counts the bytes of the log, so that it can be kept within bounds. 3 says when the last record of each site was removed.
const SCHEMA: u64 = 3;

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
            Some(SCHEMA) => {}
            None => {
                meta.insert("epoch", 1).map_err(Error::storage("write epoch"))?;
            }
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
        let mut removals = transaction
            .open_table(REMOVALS)
            .map_err(Error::storage("open removals"))?;
        let mut told = Told::default();
        for entry in decisions.iter().map_err(Error::storage("read decisions"))? {
            let (revision, value) = entry.map_err(Error::storage("read a decision"))?;
            told.look(revision.value(), value.value());
        }
        for (site, revision) in told.by_site() {
            removals
                .insert(&*site, revision)
                .map_err(Error::storage("write a removal"))?;
        }
    }
    Ok(())
}
