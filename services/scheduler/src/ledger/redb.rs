//! The embedded backend: one file, no set-up.

mod log;
mod schema;

use std::{path::Path, sync::Arc};

use ::redb::{
    Builder, Database, Durability, ReadOnlyTable, ReadableDatabase as _, ReadableTable as _, StorageBackend,
    TableDefinition,
};
use proto::{ledger::v1 as disk, placement::v1 as api};

use super::{
    Change, Contents, Error, Ledger, Position, Retention, codec,
    export::{self, Part},
};

/// `schema`, `epoch`, `revision`, and `log bytes`: the sizes of all values in [`DECISIONS`].
const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
/// Site, namespace and name of a cluster → [`proto::ledger::v1::Record`].
const RECORDS: TableDefinition<'static, (&str, &str, &str), &[u8]> = TableDefinition::new("records");
/// Site → revision of the last removal of a record.
const REMOVALS: TableDefinition<'static, &str, u64> = TableDefinition::new("removals");
/// Site → [`proto::ledger::v1::SiteFence`].
const FENCES: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("fences");
/// Revision → [`api::Decision`].
const DECISIONS: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("decisions");

/// What [`Redb::prove`] writes and removes.
const PROOF: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("proof");
/// How much that is, in bytes: more than most batches need.
const PROOF_SIZE: usize = 256 << 10;

/// A ledger in one redb file, or on another [`StorageBackend`].
#[derive(Debug)]
pub struct Redb {
    database: Database,
    retention: Retention,
}

impl Redb {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// When it cannot be opened (another process has it open, disk full) or has another schema.
    pub fn open(path: &Path) -> Result<Self, Error> {
        if !path.try_exists().map_err(Error::storage("look for the file"))? {
            Self::make(path).map_err(Error::storage("make the file"))?;
        }
        Self::prepare(Database::create(path).map_err(Error::storage("open the file"))?)
    }

    /// Makes a new file beside its place and moves it there: redb cannot open a file that was half made when the
    /// power went, and nobody could tell such a file from a damaged ledger.
    fn make(path: &Path) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let file = tempfile::Builder::new().prefix(".ledger-").tempfile_in(folder)?;
        drop(Self::prepare(Database::create(file.path())?)?);
        file.as_file().sync_all()?;
        match file.persist_noclobber(path) {
            Ok(_) => {}
            // Another process was quicker; which of them has it is decided by the lock.
            Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.into()),
        }
        std::fs::File::open(folder)?.sync_all()?;
        Ok(())
    }

    /// Opens a ledger on a storage of the caller's, for tests that inject faults.
    ///
    /// # Errors
    /// As [`Redb::open`].
    pub fn on(backend: impl StorageBackend) -> Result<Self, Error> {
        Self::prepare(
            Builder::new()
                .create_with_backend(backend)
                .map_err(Error::storage("open the storage"))?,
        )
    }

    /// Shows by a real write that the storage takes a batch, and leaves nothing behind. After a failed write a storage can be
    /// opened and read long before it can be written again.
    ///
    /// # Errors
    /// When it cannot be written: then this ledger is of no more use.
    pub fn prove(&self) -> Result<(), Error> {
        let proof = vec![0x5a; PROOF_SIZE];
        for value in [Some(&*proof), None] {
            let transaction = self.database.begin_write().map_err(Error::storage("begin"))?;
            let mut table = transaction
                .open_table(PROOF)
                .map_err(Error::storage("open the proof"))?;
            match value {
                Some(value) => table.insert(0, value).map(drop),
                None => table.remove(0).map(drop),
            }
            .map_err(Error::storage("write"))?;
            drop(table);
            transaction.commit().map_err(Error::storage("commit"))?;
        }
        Ok(())
    }

    /// The same ledger with another limit of its log.
    #[must_use]
    pub fn retaining(self, retention: Retention) -> Self {
        Self { retention, ..self }
    }

    fn prepare(database: Database) -> Result<Self, Error> {
        schema::prepare(&database)?;
        Ok(Self {
            database,
            retention: Retention::default(),
        })
    }
}

impl Ledger for Redb {
    fn load(&self) -> Result<Contents, Error> {
        let transaction = self
            .database
            .begin_read()
            .map_err(Error::storage("begin reading"))?;
        let meta = transaction
            .open_table(META)
            .map_err(Error::storage("open meta"))?;
        let mut contents = Contents {
            position: position(&meta)?,
            ..Contents::default()
        };
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
            let (site, revision) = entry.map_err(Error::storage("read a removal"))?;
            contents
                .removals
                .insert(site.value().to_owned(), revision.value());
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

    fn commit(&self, batch: &[Change]) -> Result<(), Error> {
        let mut transaction = self.database.begin_write().map_err(Error::storage("begin"))?;
        transaction
            .set_durability(Durability::Immediate)
            .map_err(Error::storage("ask for durability"))?;
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
            let mut decisions = transaction
                .open_table(DECISIONS)
                .map_err(Error::storage("open decisions"))?;
            if let Some(last) = batch.last() {
                meta.insert("revision", last.revision())
                    .map_err(Error::storage("write revision"))?;
            }
            for change in batch {
                match change {
                    Change::Epoch { epoch, revision: _ } => {
                        meta.insert("epoch", *epoch)
                            .map_err(Error::storage("write epoch"))?;
                    }
                    Change::Record {
                        key,
                        record,
                        decision: _,
                        revision,
                    } => {
                        let name = (&*key.site, key.cluster.namespace().as_str(), key.cluster.name());
                        if let Some(record) = record {
                            records
                                .insert(name, &*codec::encode(&key.site, record))
                                .map_err(Error::storage("write a record"))?;
                        } else {
                            records.remove(name).map_err(Error::storage("remove a record"))?;
                            removals
                                .insert(&*key.site, revision)
                                .map_err(Error::storage("write a removal"))?;
                        }
                    }
                    Change::Fence {
                        site,
                        fence,
                        decision: _,
                        revision: _,
                    } => match fence {
                        Some(fence) => fences
                            .insert(&**site, &*codec::encode_fence(fence))
                            .map(drop)
                            .map_err(Error::storage("write a fence"))?,
                        None => fences
                            .remove(&**site)
                            .map(drop)
                            .map_err(Error::storage("remove a fence"))?,
                    },
                }
            }
            let before = meta
                .get("log bytes")
                .map_err(Error::storage("read the size of the log"))?
                .map_or(0, |bytes| bytes.value());
            let bytes = log::append(&mut decisions, batch, self.retention, before)?;
            meta.insert("log bytes", bytes)
                .map_err(Error::storage("write the size of the log"))?;
        }
        transaction.commit().map_err(Error::storage("commit"))
    }

    fn decisions(
        &self,
        before: u64,
        limit: usize,
        wanted: &dyn Fn(&api::Decision) -> bool,
    ) -> Result<Vec<api::Decision>, Error> {
        let transaction = self
            .database
            .begin_read()
            .map_err(Error::storage("begin reading"))?;
        let table = transaction
            .open_table(DECISIONS)
            .map_err(Error::storage("open decisions"))?;
        let mut found = Vec::new();
        for entry in table
            .range(..before)
            .map_err(Error::storage("read decisions"))?
            .rev()
        {
            if found.len() == limit {
                break;
            }
            let (revision, bytes) = entry.map_err(Error::storage("read a decision"))?;
            let decision: api::Decision =
                prost::Message::decode(bytes.value()).map_err(|error| Error::Corrupt {
                    what: format!("decision {}", revision.value()),
                    rule: error.to_string(),
                })?;
            if wanted(&decision) {
                found.push(decision);
            }
        }
        Ok(found)
    }

    fn export(&self, take: &mut dyn FnMut(disk::Entry) -> Result<(), Error>) -> Result<(), Error> {
        let transaction = self
            .database
            .begin_read()
            .map_err(Error::storage("begin reading"))?;
        let meta = transaction
            .open_table(META)
            .map_err(Error::storage("open meta"))?;
        let Position { epoch, revision } = position(&meta)?;
        take(export::header(Position { epoch, revision }))?;
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
            let (site, revision) = entry.map_err(Error::storage("read a removal"))?;
            take(export::removal(site.value(), revision.value()))?;
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
            let (revision, value) = entry.map_err(Error::storage("read a decision"))?;
            take(export::decision(revision.value(), value.value())?)?;
        }
        Ok(())
    }

    fn import(&self, entries: &mut dyn Iterator<Item = Result<disk::Entry, Error>>) -> Result<(), Error> {
        export::require_empty(&self.load()?)?;
        let transaction = self.database.begin_write().map_err(Error::storage("begin"))?;
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
            let mut decisions = transaction
                .open_table(DECISIONS)
                .map_err(Error::storage("open decisions"))?;
            for entry in entries {
                match Part::of(entry?) {
                    Some(Part::Header(Position { epoch, revision })) => {
                        for (key, value) in [("epoch", epoch), ("revision", revision)] {
                            meta.insert(key, value).map_err(Error::storage("write meta"))?;
                        }
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
                    Some(Part::Removal { site, revision }) => {
                        removals
                            .insert(&*site, revision)
                            .map_err(Error::storage("write a removal"))?;
                    }
                    Some(Part::Fence { site, value }) => {
                        fences
                            .insert(&*site, &*value)
                            .map_err(Error::storage("write a fence"))?;
                    }
                    Some(Part::Decision { revision, value }) => {
                        decisions
                            .insert(revision, &*value)
                            .map_err(Error::storage("write a decision"))?;
                    }
                    None => {}
                }
            }
            let bytes = log::log_bytes(&decisions)?;
            meta.insert("log bytes", bytes)
                .map_err(Error::storage("write the size of the log"))?;
        }
        transaction.commit().map_err(Error::storage("commit"))
    }
}

fn position(meta: &ReadOnlyTable<&'static str, u64>) -> Result<Position, Error> {
    let number = |key| -> Result<u64, Error> {
        Ok(meta
            .get(key)
            .map_err(Error::storage("read meta"))?
            .map_or(0, |v| v.value()))
    };
    Ok(Position {
        epoch: number("epoch")?,
        revision: number("revision")?,
    })
}
