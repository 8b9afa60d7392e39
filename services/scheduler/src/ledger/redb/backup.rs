//! Copies of a ledger's file before it is migrated: an earlier version of the program runs on the file as it was.

use std::{
    ffi::OsString,
    fs::File,
    io,
    path::{Path, PathBuf},
};

/// Maximum number of copies beside a ledger.
const MAX_COPIES: u32 = 9;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Copies the file of that version to a new one beside it, durably.
pub(super) fn copy(path: &Path, version: u64) -> Result<PathBuf, Error> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut copy = tempfile::Builder::new()
        .prefix(".ledger-backup-")
        .tempfile_in(folder)?;
    io::copy(&mut File::open(path)?, copy.as_file_mut())?;
    copy.as_file().sync_all()?;
    for number in 1..=MAX_COPIES {
        let place = place(path, version, number);
        match copy.persist_noclobber(&place) {
            Ok(_) => {
                File::open(folder)?.sync_all()?;
                return Ok(place);
            }
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => copy = error.file,
            Err(error) => return Err(error.into()),
        }
    }
    Err(format!(
        "there are {MAX_COPIES} backups already, up to {}: remove those that are not needed",
        place(path, version, MAX_COPIES).display()
    )
    .into())
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
