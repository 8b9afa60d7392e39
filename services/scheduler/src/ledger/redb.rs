//! The embedded backend: one file, no set-up.

mod backup;
mod import_export;
mod log;
mod schema;
mod tables;

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use ::redb::{
    Builder, Database, Durability, ReadableDatabase as _, StorageBackend, TableDefinition,
    backends::InMemoryBackend,
};
use proto::ledger::v1 as disk;

use self::tables::{DECISIONS, FENCES, HISTORIES, META, RECORDS, REMOVALS};
use super::{
    Change, Commit, Contents, Error, Ledger, Page, Query, Retention, codec, export,
    log::Reading,
    retention::{Shares, Uptime},
};

/// What [`Redb::prove`] writes and removes.
const PROOF: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("proof");
/// How much that is, in bytes: more than most batches need.
const PROOF_BYTES: usize = 256 << 10;

/// A ledger in one redb file, or on another [`StorageBackend`].
#[derive(Debug)]
pub struct Redb {
    database: Database,
    shares: Mutex<Shares>,
    /// `None` on another storage than a file.
    file: Option<PathBuf>,
}

impl Redb {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// When it cannot be opened (another process has it open, disk full) or has another schema.
    pub fn open(path: &Path) -> Result<Self, Error> {
        if !path
            .try_exists()
            .map_err(Error::storage("check whether the file exists"))?
        {
            Self::make(path).map_err(Error::storage("make the file"))?;
        }
        let open = || Database::create(path).map_err(Error::storage("open the file"));
        let mut database = open()?;
        if let Some(version) = schema::earlier(&database)? {
            let state = backup::State::read(&database).map_err(Error::storage("read the file"))?;
            // Copied while nobody has it open: then it is whole.
            drop(database);
            let backup = backup::copy(path, version, &state)
                .map_err(Error::storage("back the file up before it is migrated"))?;
            tracing::info!(backup = %backup.display(), version, "the ledger is backed up before it is migrated");
            database = open()?;
        }
        let opened = Self::prepare(database)?;
        Ok(Self {
            file: Some(path.to_owned()),
            ..opened
        })
    }

    /// Opens a file that exists, to read it. A file of an earlier version stays as it is, since the scheduler that has written it would refuse
    /// a migrated one: a copy that nobody else sees is migrated instead.
    ///
    /// # Errors
    /// When it cannot be opened (another process has it open) or copied, or has a later schema.
    pub fn open_to_read(path: &Path) -> Result<Self, Error> {
        let open = |path: &Path| Database::open(path).map_err(Error::storage("open the file"));
        let database = open(path)?;
        if schema::earlier(&database)?.is_none() {
            return Self::prepare(database);
        }
        // Copied while nobody has it open: then it is whole.
        drop(database);
        let copy = backup::temporary(path).map_err(Error::storage("copy the file to migrate the copy"))?;
        // The name of the copy goes with the end of this function, its content with the ledger.
        Self::prepare(open(copy.path())?)
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

    /// A ledger that is gone with the process.
    ///
    /// # Errors
    /// As [`Redb::open`].
    pub fn in_memory() -> Result<Self, Error> {
        Self::on(InMemoryBackend::new())
    }

    /// Shows by a real write that the storage takes a batch, and leaves nothing behind. After a failed write a storage can be
    /// opened and read long before it can be written again.
    ///
    /// # Errors
    /// When it cannot be written: then this ledger is of no more use.
    pub fn prove(&self) -> Result<(), Error> {
        let proof = vec![0x5a; PROOF_BYTES];
        for value in [Some(&*proof), None] {
            let transaction = self.database.begin_write().map_err(Error::storage("begin"))?;
            let mut table = transaction
                .open_table(PROOF)
                .map_err(Error::storage("open the table of the test write"))?;
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
        self.shares
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retention = retention;
        self
    }

    /// The same ledger with another clock: how long this process has run.
    #[must_use]
    pub fn clocked(self, uptime: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        let clock = Uptime::new(uptime);
        self.shares
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clocked(clock);
        self
    }

    fn prepare(database: Database) -> Result<Self, Error> {
        schema::prepare(&database)?;
        let transaction = database.begin_write().map_err(Error::storage("begin"))?;
        let decisions = transaction
            .open_table(DECISIONS)
            .map_err(Error::storage("open decisions"))?;
        let shares = log::shares(&transaction, &decisions)?;
        drop(decisions);
        transaction.commit().map_err(Error::storage("commit"))?;
        Ok(Self {
            database,
            shares: Mutex::new(shares),
            file: None,
        })
    }
}

impl Ledger for Redb {
    fn load(&self) -> Result<Contents, Error> {
        import_export::read(&self.database)
    }

    fn file_bytes(&self) -> Option<u64> {
        let file = std::fs::metadata(self.file.as_ref()?);
        file.ok().map(|file| file.len())
    }

    fn commit(&self, batch: &[Change]) -> Result<(), Error> {
        // After a write that failed nothing is written any more by this ledger, so what it counts is of no use either.
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let mut transaction = self.database.begin_write().map_err(Error::storage("begin"))?;
        transaction
            .set_durability(Durability::Immediate)
            .map_err(Error::storage("set the durability"))?;
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
            if let Some(last) = batch.last() {
                meta.insert("commit", last.commit().number())
                    .map_err(Error::storage("write the commit"))?;
            }
            for change in batch {
                match change {
                    Change::Raise {
                        site,
                        history,
                        decision: _,
                        commit: _,
                    } => {
                        histories
                            .insert(&**site, &*codec::encode_history(history))
                            .map_err(Error::storage("write a history"))?;
                    }
                    Change::Record {
                        key,
                        record,
                        decision: _,
                        commit,
                    } => {
                        let name = (&*key.site, key.cluster.namespace().as_str(), key.cluster.name());
                        if let Some(record) = record {
                            records
                                .insert(name, &*codec::encode(&key.site, record))
                                .map_err(Error::storage("write a record"))?;
                        } else {
                            records.remove(name).map_err(Error::storage("remove a record"))?;
                            removals
                                .insert(&*key.site, commit.number())
                                .map_err(Error::storage("write a removal"))?;
                        }
                    }
                    Change::Fence {
                        site,
                        fence,
                        decision: _,
                        commit: _,
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
            drop(meta);
            log::append(&transaction, &mut decisions, batch, &mut shares)?;
        }
        transaction.commit().map_err(Error::storage("commit"))
    }

    fn read_log(&self, query: Query<'_>) -> Result<Page, Error> {
        let transaction = self
            .database
            .begin_read()
            .map_err(Error::storage("begin reading"))?;
        let table = transaction
            .open_table(DECISIONS)
            .map_err(Error::storage("open decisions"))?;
        let mut reading = Reading::new(query);
        for entry in table
            .range(..query.before.number())
            .map_err(Error::storage("read decisions"))?
            .rev()
        {
            let (commit, value) = entry.map_err(Error::storage("read a decision"))?;
            let commit = Commit::new(commit.value());
            if reading.is_whole(commit.next()) {
                break;
            }
            reading.add(commit, value.value())?;
        }
        Ok(reading.page())
    }

    fn export(&self, take: &mut dyn FnMut(disk::Entry) -> Result<(), Error>) -> Result<(), Error> {
        import_export::export_all(&self.database, take)
    }

    fn import(&self, entries: &mut dyn Iterator<Item = Result<disk::Entry, Error>>) -> Result<(), Error> {
        export::require_empty(&self.load()?)?;
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        import_export::import_all(&self.database, entries, &mut shares)
    }
}
