//! Exports: everything that a ledger holds, to keep it elsewhere.
//!
//! The form is documented at `sip.ledger.v1.Entry`: a line that names it, then entries behind their lengths, the last of
//! which counts them and has the checksum of all before it. So a file that was cut off or damaged is noticed.

use std::io::{BufRead, Read as _, Write};

use prost::Message as _;
use proto::{ledger::v1 as disk, placement::v1 as api};
use sha2::{Digest as _, Sha256};

use super::{Commit, Contents, Error};

/// First line of a file.
const MAGIC: &[u8] = b"SIPLEDGER 2\n";
/// What the first line of a file of any version begins with; its version follows.
const MAGIC_PREFIX: &[u8] = b"SIPLEDGER ";
/// Version of the files that are written.
const VERSION: u64 = 2;
/// First line of a file from before sites had histories.
const MAGIC_1: &[u8] = b"SIPLEDGER 1\n";
/// Maximum size of an entry that is read, in bytes: more than any record can have.
const MAX_ENTRY_BYTES: u64 = 256 << 20;

fn entry(entry: disk::entry::Entry) -> disk::Entry {
    disk::Entry { entry: Some(entry) }
}

fn decoded<M: prost::Message + Default>(what: impl Fn() -> String, value: &[u8]) -> Result<M, Error> {
    M::decode(value).map_err(|error| Error::Corrupt {
        what: what(),
        rule: error.to_string(),
    })
}

pub(crate) fn header(last: Commit) -> disk::Entry {
    entry(disk::entry::Entry::Header(disk::Header {
        commit: last.number(),
        ..disk::Header::default()
    }))
}

pub(crate) fn history(site: &str, value: &[u8]) -> Result<disk::Entry, Error> {
    let history = decoded(|| format!("history of site {site}"), value)?;
    Ok(entry(disk::entry::Entry::History(disk::HistoryEntry {
        site: site.to_owned(),
        history: Some(history),
    })))
}

pub(crate) fn record(
    (site, namespace, name): (&str, &str, &str),
    value: &[u8],
) -> Result<disk::Entry, Error> {
    let record = decoded(|| format!("record {site}/{namespace}/{name}"), value)?;
    Ok(entry(disk::entry::Entry::Record(disk::RecordEntry {
        site: site.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        record: Some(record),
    })))
}

pub(crate) fn removal(site: &str, commit: Commit) -> disk::Entry {
    entry(disk::entry::Entry::Removal(disk::RemovalEntry {
        site: site.to_owned(),
        commit: commit.number(),
    }))
}

pub(crate) fn fence(site: &str, value: &[u8]) -> Result<disk::Entry, Error> {
    let fence = decoded(|| format!("fence of site {site}"), value)?;
    Ok(entry(disk::entry::Entry::Fence(disk::FenceEntry {
        site: site.to_owned(),
        fence: Some(fence),
    })))
}

pub(crate) fn decision(commit: Commit, value: &[u8]) -> Result<disk::Entry, Error> {
    let mut decision: api::Decision = decoded(|| format!("decision {commit}"), value)?;
    // Entries of earlier versions do not say it themselves.
    decision.commit = commit.number();
    Ok(entry(disk::entry::Entry::Decision(decision)))
}

/// Nothing may be in the way of an import.
pub(crate) fn require_empty(contents: &Contents) -> Result<(), Error> {
    let Contents {
        commit,
        histories,
        records,
        removals,
        fences,
    } = contents;
    let none = *commit == Commit::NONE && histories.is_empty();
    if none && records.is_empty() && removals.is_empty() && fences.is_empty() {
        return Ok(());
    }
    Err(Error::NotEmpty {
        found: format!(
            "it is at {commit}, with {} records and {} fences",
            records.len(),
            fences.len()
        ),
    })
}

/// Counts entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Histories.
    pub histories: u64,
    /// Records.
    pub records: u64,
    /// Removals.
    pub removals: u64,
    /// Fences.
    pub fences: u64,
    /// Decisions.
    pub decisions: u64,
}

impl Counts {
    /// Counts one more.
    pub fn add(&mut self, entry: &disk::Entry) {
        use disk::entry::Entry;
        match &entry.entry {
            Some(Entry::History(_)) => self.histories += 1,
            Some(Entry::Record(_)) => self.records += 1,
            Some(Entry::Removal(_)) => self.removals += 1,
            Some(Entry::Fence(_)) => self.fences += 1,
            Some(Entry::Decision(_)) => self.decisions += 1,
            Some(Entry::Header(_) | Entry::End(_)) | None => {}
        }
    }

    /// The last entry of a stream.
    #[must_use]
    pub fn end(self) -> disk::Entry {
        entry(disk::entry::Entry::End(self.unsealed()))
    }

    fn unsealed(self) -> disk::End {
        let Self {
            histories,
            records,
            removals,
            fences,
            decisions,
        } = self;
        disk::End {
            histories,
            records,
            removals,
            fences,
            decisions,
            sha256: Vec::new(),
        }
    }

    fn ended(end: &disk::End) -> Self {
        Self {
            histories: end.histories,
            records: end.records,
            removals: end.removals,
            fences: end.fences,
            decisions: end.decisions,
        }
    }
}

/// Why a file is no whole export.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read or written.
    #[error("the export cannot be read or written")]
    Io(#[from] std::io::Error),
    /// It does not begin as exports do.
    #[error("this is not an export of a ledger: it does not begin with {:?}", String::from_utf8_lossy(MAGIC).trim_end())]
    Foreign,
    /// A later version has written it.
    #[error(
        "the export has version {0} of the format, and this program reads versions up to {VERSION}: use the sipctl of the scheduler that wrote it, or a later one"
    )]
    Newer(u64),
    /// It ends too early.
    #[error("the export is truncated after {0} bytes")]
    CutOff(u64),
    /// It is not what was written.
    #[error("the export is damaged: {0}")]
    Damaged(String),
}

/// Writes a file.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    hash: Sha256,
    counts: Counts,
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(mut out: W) -> Result<Self, FileError> {
        out.write_all(MAGIC)?;
        Ok(Self {
            out,
            hash: Sha256::new_with_prefix(MAGIC),
            counts: Counts::default(),
        })
    }

    /// Writes an entry; the `End` of a stream ends the file instead, when it counts what was written.
    ///
    /// # Errors
    /// When it cannot be written, or entries are missing before an `End`.
    pub fn write(&mut self, entry: &disk::Entry) -> Result<(), FileError> {
        if let Some(disk::entry::Entry::End(end)) = &entry.entry {
            if Counts::ended(end) != self.counts {
                let (wanted, found) = (Counts::ended(end), self.counts);
                return Err(FileError::Damaged(format!(
                    "{wanted:?} were sent and {found:?} arrived"
                )));
            }
            return self.seal();
        }
        self.counts.add(entry);
        let bytes = entry.encode_length_delimited_to_vec();
        self.hash.update(&bytes);
        Ok(self.out.write_all(&bytes)?)
    }

    fn seal(&mut self) -> Result<(), FileError> {
        let end = disk::End {
            sha256: self.hash.clone().finalize().to_vec(),
            ..self.counts.unsealed()
        };
        let end = self::entry(disk::entry::Entry::End(end));
        self.out.write_all(&end.encode_length_delimited_to_vec())?;
        Ok(self.out.flush()?)
    }

    /// What was counted.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }
}

/// Reads a file, entry by entry. The last one it gives is the `End`, when everything before it was whole.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    hash: Sha256,
    read: u64,
    counts: Counts,
    ended: bool,
}

impl<R: BufRead> Reader<R> {
    /// Begins to read.
    ///
    /// # Errors
    /// [`FileError::Foreign`]; [`FileError::Newer`].
    pub fn new(mut input: R) -> Result<Self, FileError> {
        let mut magic = Vec::new();
        input.by_ref().take(size(MAGIC)).read_to_end(&mut magic)?;
        if magic != MAGIC && magic != MAGIC_1 {
            return Err(newer(&magic).map_or(FileError::Foreign, FileError::Newer));
        }
        Ok(Self {
            input,
            hash: Sha256::new_with_prefix(&magic),
            read: size(MAGIC),
            counts: Counts::default(),
            ended: false,
        })
    }

    fn next_entry(&mut self) -> Result<disk::Entry, FileError> {
        let mut bytes = Vec::new();
        // A varint has at most ten bytes, and its last one has no high bit.
        while bytes.len() < 10 && bytes.last().is_none_or(|byte| byte & 0x80 != 0) {
            if self.input.by_ref().take(1).read_to_end(&mut bytes)? == 0 {
                return Err(FileError::CutOff(self.read));
            }
        }
        let prefix = bytes.len();
        let length = prost::decode_length_delimiter(&*bytes)
            .ok()
            .and_then(|length| u64::try_from(length).ok())
            .filter(|length| *length <= MAX_ENTRY_BYTES)
            .ok_or_else(|| FileError::Damaged(format!("no length of an entry is at byte {}", self.read)))?;
        let got = self.input.by_ref().take(length).read_to_end(&mut bytes)?;
        if u64::try_from(got).unwrap_or(u64::MAX) < length {
            return Err(FileError::CutOff(self.read));
        }
        let entry = disk::Entry::decode(&bytes[prefix..])
            .map_err(|error| FileError::Damaged(format!("the entry at byte {}: {error}", self.read)))?;
        if let Some(disk::entry::Entry::End(end)) = &entry.entry {
            if end.sha256 != self.hash.clone().finalize().to_vec() {
                return Err(FileError::Damaged(
                    "its checksum is not that of its content".to_owned(),
                ));
            }
            if Counts::ended(end) != self.counts {
                return Err(FileError::Damaged(
                    "its number of entries is not the one that its end states".to_owned(),
                ));
            }
            if !self.input.fill_buf()?.is_empty() {
                return Err(FileError::Damaged("there are bytes after its end".to_owned()));
            }
            self.ended = true;
        }
        self.hash.update(&bytes);
        self.read += size(&bytes);
        self.counts.add(&entry);
        Ok(entry)
    }
}

/// The version that the beginning of a file names, if it is later than those that are read. Of a very long number the first digits.
fn newer(magic: &[u8]) -> Option<u64> {
    let version = std::str::from_utf8(magic.strip_prefix(MAGIC_PREFIX)?).ok()?;
    let version = version.trim_end_matches('\n').parse().ok()?;
    (version > VERSION).then_some(version)
}

fn size(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<disk::Entry, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.next_entry();
        self.ended |= next.is_err();
        Some(next)
    }
}

impl From<FileError> for Error {
    fn from(error: FileError) -> Self {
        Self::storage("read the export")(error)
    }
}
