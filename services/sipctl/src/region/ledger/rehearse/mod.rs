//! `sipctl ledger rehearse`: what would happen to the claims of a site if the ledger were restored from an export.
//!
//! The export is loaded as a scheduler loads it, and compared with what the site shows: [`compare`] is pure. Nothing is
//! written, to the ledger or to the site.

mod compare;
mod print;
mod rehearsal;
mod site_ledger;

use std::fs::File;
use std::io::{BufReader, Seek as _, SeekFrom};

use anyhow::{Context as _, bail};
use prost::Message as _;
use proto::ledger::v1::{self as disk, entry::Entry};
use scheduler::ledger::export::{FileError, Reader};
use scheduler::ledger::{Contents, Error, Ledger as _, redb::Redb};

use super::verify::{table, verify};
use crate::ending::Ending;
use crate::files;
use crate::input::Input;
use crate::region::cli::Rehearse;
use crate::region::site;
pub use rehearsal::{Rehearsal, Rehearsed};
use site_ledger::SiteLedger;

/// Maximum size of an export that is held in memory, in bytes: all but its log of decisions. That of a region with 10,000 hosts is below 10
/// MB.
const MAX_EXPORT_BYTES: usize = 1 << 30;

/// Runs the command; returns its output, and how it ended.
///
/// # Errors
/// What could not be read.
pub(super) fn run(rehearse: Rehearse, runtime: &tokio::runtime::Runtime) -> anyhow::Result<(String, Ending)> {
    let Rehearse {
        file: path,
        site: name,
        files: paths,
        namespace,
        access,
        output,
    } = rehearse;
    let mut file = File::open(&path).with_context(|| format!("{} cannot be opened", path.display()))?;
    let report = match verify(&file) {
        Ok(report) => report,
        Err(error @ (FileError::CutOff(_) | FileError::Damaged(_))) => {
            return Ok((format!("{}: {error}\n", path.display()), Ending::Damaged));
        }
        Err(error) => return Err(error).with_context(|| format!("{} cannot be read", path.display())),
    };
    if report.found > 0 {
        let why = "Nothing was rehearsed: a record is not valid, and no import takes it.";
        return Ok((format!("{}{why}\n", table(&report)), Ending::Damaged));
    }
    file.seek(SeekFrom::Start(0))
        .context("the file cannot be read again")?;
    let contents =
        contents(&file, MAX_EXPORT_BYTES).with_context(|| format!("{} cannot be loaded", path.display()))?;
    let ledger = SiteLedger::new(&name, contents)?;
    let documents = if paths.is_empty() {
        runtime.block_on(async { site::documents(&access.client().await?).await })?
    } else {
        files::documents(&paths)?
    };
    let input = Input::new(documents, &namespace, placement::Policy::default())?;
    let rehearsal = compare::rehearsal(&ledger, &input);
    let ending = if rehearsal.is_clean() {
        Ending::Done
    } else {
        Ending::InConflict
    };
    Ok((print::print(&rehearsal, output)?, ending))
}

/// What a scheduler would load if an export were imported. Its log of decisions is read and not kept: nothing is decided by it.
fn contents(file: &File, most: usize) -> anyhow::Result<Contents> {
    let mut bytes = 0_usize;
    let mut is_too_large = false;
    let entries = Reader::new(BufReader::new(file))?;
    let kept = |entry: Result<disk::Entry, FileError>| match entry {
        Ok(disk::Entry {
            entry: Some(Entry::Decision(_)),
        }) => None,
        Ok(entry) => {
            bytes = bytes.saturating_add(entry.encoded_len());
            is_too_large |= bytes > most;
            (!is_too_large).then_some(Ok(entry))
        }
        Err(error) => Some(Err(Error::from(error))),
    };
    let ledger = Redb::in_memory()?;
    ledger.import(&mut entries.filter_map(kept))?;
    if is_too_large {
        bail!("it has more than {most} bytes besides its log of decisions");
    }
    Ok(ledger.load()?)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use scheduler::ledger::export::{Counts, Writer};

    use super::*;

    /// An export with a fence of a site and an entry of the log.
    fn export() -> File {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes).unwrap();
        let header = disk::Header {
            commit: 2,
            ..disk::Header::default()
        };
        let fence = disk::FenceEntry {
            site: "a".to_owned(),
            fence: Some(disk::SiteFence {
                lease_uid: "l".to_owned(),
                ..disk::SiteFence::default()
            }),
        };
        let decision = proto::placement::v1::Decision {
            commit: 2,
            reason: "r".repeat(5000),
            ..proto::placement::v1::Decision::default()
        };
        for entry in [
            Entry::Header(header),
            Entry::Fence(fence),
            Entry::Decision(decision),
        ] {
            writer.write(&disk::Entry { entry: Some(entry) }).unwrap();
        }
        let end = Counts::end(writer.counts());
        writer.write(&end).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        file
    }

    #[test]
    fn a_limit_holds_for_all_but_the_log() {
        assert_eq!(contents(&export(), 1000).unwrap().fences.len(), 1);
        let error = contents(&export(), 10).unwrap_err();
        assert!(
            error.to_string().starts_with("it has more than 10 bytes"),
            "{error}"
        );
    }
}
