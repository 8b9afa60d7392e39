//! Copies of a ledger's file before it is migrated: an earlier version of the program runs on the file as it was.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use redb::{ReadOnlyDatabase, ReadableDatabase, ReadableTable as _, TableError};

use super::tables::{DECISIONS, META};

/// Maximum number of copies beside a ledger.
const MAX_COPIES: u32 = 9;
/// Prefix of the name of a copy that is being written. One that a killed process has left is removed.
const UNFINISHED_PREFIX: &str = ".ledger-backup-";

type Error = Box<dyn std::error::Error + Send + Sync>;

/// What is equal in two files of a ledger as long as none of them has changed: each change has an entry in the log, with its time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct State {
    /// Among them the number of the last commit.
    numbers: BTreeMap<String, u64>,
    /// The last entry of the log.
    last: Option<(u64, Vec<u8>)>,
}

impl State {
    /// That of a file of any version.
    ///
    /// # Errors
    /// When the storage fails.
    pub(super) fn read(database: &impl ReadableDatabase) -> Result<Self, redb::Error> {
        let transaction = database.begin_read()?;
        let meta = transaction.open_table(META)?;
        let mut numbers = BTreeMap::new();
        for entry in meta.iter()? {
            let (key, number) = entry?;
            numbers.insert(key.value().to_owned(), number.value());
        }
        let last = match transaction.open_table(DECISIONS) {
            Ok(decisions) => {
                let last = decisions.last()?;
                last.map(|(commit, entry)| (commit.value(), entry.value().to_vec()))
            }
            Err(TableError::TableDoesNotExist(_)) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(Self { numbers, last })
    }
}

/// Copies the file of that version, which is in this state, to a new one beside it, durably. If there is such a copy, the process was ended
/// before it had migrated the file: a further copy at each start would fill the disk.
pub(super) fn copy(path: &Path, version: u64, state: &State) -> Result<PathBuf, Error> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    remove_unfinished(folder)?;
    let mut free = None;
    for number in 1..=MAX_COPIES {
        let place = place(path, version, number);
        if !place.try_exists()? {
            free = free.or(Some(place));
        } else if has_state(&place, state) {
            // The process may have been ended before this: the file is migrated only once its copy stays.
            File::open(folder)?.sync_all()?;
            return Ok(place);
        }
    }
    let Some(free) = free else {
        return Err(format!(
            "there are {MAX_COPIES} backups already, up to {}: remove those that are not needed",
            place(path, version, MAX_COPIES).display()
        )
        .into());
    };
    let mut copy = tempfile::Builder::new()
        .prefix(UNFINISHED_PREFIX)
        .tempfile_in(folder)?;
    io::copy(&mut File::open(path)?, copy.as_file_mut())?;
    copy.as_file().sync_all()?;
    copy.persist_noclobber(&free)?;
    File::open(folder)?.sync_all()?;
    Ok(free)
}

/// Whether a copy is of this state. One that cannot be read is of none.
fn has_state(copy: &Path, state: &State) -> bool {
    let found = ReadOnlyDatabase::open(copy).ok();
    let found = found.and_then(|copy| State::read(&copy).ok());
    found.is_some_and(|found| found == *state)
}

/// Removes copies that processes had not finished when they were killed.
fn remove_unfinished(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED_PREFIX) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Copies the file to one among the temporary files of the machine.
pub(super) fn temporary(path: &Path) -> io::Result<tempfile::NamedTempFile> {
    let mut copy = tempfile::NamedTempFile::new()?;
    io::copy(&mut File::open(path)?, copy.as_file_mut())?;
    Ok(copy)
}

/// `ledger.redb.schema-2` beside `ledger.redb`, then `ledger.redb.schema-2.2`.
fn place(path: &Path, version: u64, number: u32) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".schema-{version}"));
    if number > 1 {
        name.push(format!(".{number}"));
    }
    name.into()
}
