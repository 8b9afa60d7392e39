//! Everything out of the file, and everything into it.

use std::sync::Arc;

use proto::ledger::v1 as disk;
use redb::{Database, ReadableDatabase as _, ReadableTable};

use super::{
    log,
    tables::{DECISIONS, FENCES, HISTORIES, META, RECORDS, REMOVALS},
};
use crate::ledger::{
    Commit, Contents, Error, codec, export,
    parts::{self, Part},
    retention::Shares,
};

/// All that the file holds but for the log.
///
/// # Errors
/// When it cannot be read, or holds what this version does not understand.
pub(super) fn read(database: &Database) -> Result<Contents, Error> {
    let transaction = database.begin_read().map_err(Error::storage("begin reading"))?;
    let meta = transaction
        .open_table(META)
        .map_err(Error::storage("open meta"))?;
    let mut contents = Contents {
        commit: last(&meta)?,
        ..Contents::default()
    };
    let histories = transaction
        .open_table(HISTORIES)
        .map_err(Error::storage("open histories"))?;
    for entry in histories.iter().map_err(Error::storage("read histories"))? {
        let (site, value) = entry.map_err(Error::storage("read a history"))?;
        let history = codec::decode_history(site.value(), value.value())?;
        contents.histories.insert(site.value().to_owned(), history);
    }
    let records = transaction
        .open_table(RECORDS)
        .map_err(Error::storage("open records"))?;
    for entry in records.iter().map_err(Error::storage("read records"))? {
        let (key, value) = entry.map_err(Error::storage("read a record"))?;
        let (key, record) = codec::decode(key.value(), value.value())?;
        contents.records.insert(key, Arc::new(record));
    }
    let removals = transaction
        .open_table(REMOVALS)
        .map_err(Error::storage("open removals"))?;
    for entry in removals.iter().map_err(Error::storage("read removals"))? {
        let (site, commit) = entry.map_err(Error::storage("read a removal"))?;
        let commit = Commit::new(commit.value());
        contents.removals.insert(site.value().to_owned(), commit);
    }
    let fences = transaction
        .open_table(FENCES)
        .map_err(Error::storage("open fences"))?;
    for entry in fences.iter().map_err(Error::storage("read fences"))? {
        let (site, value) = entry.map_err(Error::storage("read a fence"))?;
        let fence = codec::decode_fence(site.value(), value.value())?;
        contents.fences.insert(site.value().to_owned(), fence);
    }
    Ok(contents)
}

/// Hands out everything as it is at one moment.
///
/// # Errors
/// When it cannot be read; what `take` returns.
pub(super) fn export_all(
    database: &Database,
    take: &mut dyn FnMut(disk::Entry) -> Result<(), Error>,
) -> Result<(), Error> {
    let transaction = database.begin_read().map_err(Error::storage("begin reading"))?;
    let meta = transaction
        .open_table(META)
        .map_err(Error::storage("open meta"))?;
    take(export::header(last(&meta)?))?;
    let histories = transaction
        .open_table(HISTORIES)
        .map_err(Error::storage("open histories"))?;
    for entry in histories.iter().map_err(Error::storage("read histories"))? {
        let (site, value) = entry.map_err(Error::storage("read a history"))?;
        take(export::history(site.value(), value.value())?)?;
    }
    let records = transaction
        .open_table(RECORDS)
        .map_err(Error::storage("open records"))?;
    for entry in records.iter().map_err(Error::storage("read records"))? {
        let (key, value) = entry.map_err(Error::storage("read a record"))?;
        take(export::record(key.value(), value.value())?)?;
    }
    let removals = transaction
        .open_table(REMOVALS)
        .map_err(Error::storage("open removals"))?;
    for entry in removals.iter().map_err(Error::storage("read removals"))? {
        let (site, commit) = entry.map_err(Error::storage("read a removal"))?;
        take(export::removal(site.value(), Commit::new(commit.value())))?;
    }
    let fences = transaction
        .open_table(FENCES)
        .map_err(Error::storage("open fences"))?;
    for entry in fences.iter().map_err(Error::storage("read fences"))? {
        let (site, value) = entry.map_err(Error::storage("read a fence"))?;
        take(export::fence(site.value(), value.value())?)?;
    }
    let decisions = transaction
        .open_table(DECISIONS)
        .map_err(Error::storage("open decisions"))?;
    for entry in decisions.iter().map_err(Error::storage("read decisions"))? {
        let (commit, value) = entry.map_err(Error::storage("read a decision"))?;
        take(export::decision(Commit::new(commit.value()), value.value())?)?;
    }
    Ok(())
}

/// Fills an empty file.
///
/// # Errors
/// When it cannot be written; what the entries return.
pub(super) fn import_all(
    database: &Database,
    entries: &mut dyn Iterator<Item = Result<disk::Entry, Error>>,
    shares: &mut Shares,
) -> Result<(), Error> {
    let transaction = database.begin_write().map_err(Error::storage("begin"))?;
    {
        let mut meta = transaction
            .open_table(META)
            .map_err(Error::storage("open meta"))?;
        let mut records = transaction
            .open_table(RECORDS)
            .map_err(Error::storage("open records"))?;
        let mut removals = transaction
            .open_table(REMOVALS)
            .map_err(Error::storage("open removals"))?;
        let mut fences = transaction
            .open_table(FENCES)
            .map_err(Error::storage("open fences"))?;
        let mut histories = transaction
            .open_table(HISTORIES)
            .map_err(Error::storage("open histories"))?;
        let mut decisions = transaction
            .open_table(DECISIONS)
            .map_err(Error::storage("open decisions"))?;
        for part in parts::parts(entries) {
            match part? {
                Some(Part::Header(commit)) => {
                    meta.insert("commit", commit.number())
                        .map_err(Error::storage("write the commit"))?;
                }
                Some(Part::History { site, value }) => {
                    histories
                        .insert(&*site, &*value)
                        .map_err(Error::storage("write a history"))?;
                }
                Some(Part::Record {
                    site,
                    namespace,
                    name,
                    value,
                }) => {
                    records
                        .insert((&*site, &*namespace, &*name), &*value)
                        .map_err(Error::storage("write a record"))?;
                }
                Some(Part::Removal { site, commit }) => {
                    removals
                        .insert(&*site, commit.number())
                        .map_err(Error::storage("write a removal"))?;
                }
                Some(Part::Fence { site, value }) => {
                    fences
                        .insert(&*site, &*value)
                        .map_err(Error::storage("write a fence"))?;
                }
                Some(Part::Decision { commit, value }) => {
                    decisions
                        .insert(commit.number(), &*value)
                        .map_err(Error::storage("write a decision"))?;
                }
                None => {}
            }
        }
        drop(meta);
        let counted = log::recount(&transaction, &decisions)?;
        shares.recounted(&counted);
    }
    transaction.commit().map_err(Error::storage("commit"))
}

/// The last commit.
fn last(meta: &impl ReadableTable<&'static str, u64>) -> Result<Commit, Error> {
    let number = meta.get("commit").map_err(Error::storage("read the commit"))?;
    number.map_or(Ok(Commit::NONE), |number| {
        Commit::parse(number.value()).map_err(|rule| Error::Corrupt {
            what: "the last commit".to_owned(),
            rule,
        })
    })
}
