//! A clock that a test sets while processes run by it: libfaketime, which stands between them and the system's.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

/// Where Debian has it: below the libraries of an architecture.
const LIBRARIES: &str = "/usr/lib";
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// A clock that can be set ahead of the system's. It is the one that tells the date; the one by which processes measure how long
/// something takes stays the system's.
#[derive(Clone, Debug)]
pub struct Clock {
    library: PathBuf,
    file: PathBuf,
}

impl Clock {
    /// A clock in a directory of a test's, which shows the system's time; `None` where there is no libfaketime.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn new(directory: &Path) -> io::Result<Option<Self>> {
        let library = fs::read_dir(LIBRARIES).ok().and_then(|architectures| {
            let mut libraries = architectures.flatten().map(|entry| entry.path().join(LIBRARY));
            libraries.find(|library| library.exists())
        });
        let Some(library) = library else { return Ok(None) };
        let clock = Self {
            library,
            file: directory.join("clock"),
        };
        clock.set_ahead(Duration::ZERO)?;
        Ok(Some(clock))
    }

    /// Sets it so far ahead of the system's, at once for everybody.
    ///
    /// # Errors
    /// When its file cannot be written.
    pub fn set_ahead(&self, ahead: Duration) -> io::Result<()> {
        // Whoever reads half of a file would read another time.
        let next = self.file.with_extension("next");
        fs::write(&next, format!("+{}s", ahead.as_secs()))?;
        fs::rename(next, &self.file)
    }

    /// What a process needs in its environment.
    pub(super) fn environment(&self) -> [(&'static str, OsString); 4] {
        [
            ("LD_PRELOAD", self.library.clone().into()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.clone().into()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }
}
