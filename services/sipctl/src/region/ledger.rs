//! `sipctl ledger`: backups of a region's ledger.

pub mod rehearse;
mod verify;

use std::fs::File;
use std::io::{BufReader, BufWriter, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use proto::ledger::v1::{ExportLedgerRequest, ledger_service_client::LedgerServiceClient};
use scheduler::ledger::check::Checker;
use scheduler::ledger::export::{Counts, FileError, Reader, Writer};
use scheduler::ledger::{Ledger as _, redb::Redb};
use tokio::sync::watch;

use crate::ending::Ending;
use crate::region::cli::{Check, Export, Import, Ledger};
use crate::region::connection::{open, status_error};
use verify::{table, verify};

/// Maximum size of a message of an export, in bytes: a record of very many hosts is one entry.
const MAX_MESSAGE_BYTES: usize = 512 << 20;
/// How long an import waits to become the writer.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(90);

/// Runs a command; returns its output, and how it ended.
///
/// # Errors
/// What could not be read, reached or written.
pub fn run(action: Ledger) -> anyhow::Result<(String, Ending)> {
    let runtime = tokio::runtime::Runtime::new().context("the runtime cannot start")?;
    match action {
        Ledger::Export(export) => runtime.block_on(self::export(export)),
        Ledger::Import(import) => self::import(import, &runtime),
        Ledger::Check(check) => self::check(check),
        Ledger::Rehearse(rehearse) => rehearse::run(rehearse, &runtime),
    }
}

async fn export(export: Export) -> anyhow::Result<(String, Ending)> {
    let Export { connection, output } = export;
    let (scheduler, channel) = open(connection)?;
    let mut client = LedgerServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
    let answer = client.export_ledger(ExportLedgerRequest {}).await;
    let mut messages = answer
        .map_err(|status| status_error(&scheduler, &status))?
        .into_inner();

    let folder = output
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let file = tempfile::Builder::new()
        .prefix(".ledger-export-")
        .tempfile_in(folder)
        .with_context(|| format!("no file can be made in {}", folder.display()))?;
    let mut writer = Writer::new(BufWriter::new(file.as_file()))?;
    let mut ended = false;
    while let Some(message) = messages
        .message()
        .await
        .map_err(|status| status_error(&scheduler, &status))?
    {
        for entry in message.entries {
            writer.write(&entry)?;
            ended = matches!(entry.entry, Some(proto::ledger::v1::entry::Entry::End(_)));
        }
    }
    if !ended {
        bail!("{scheduler} has ended the export early");
    }
    let counts = writer.counts();
    drop(writer);
    file.as_file().sync_all().context("the file cannot be written")?;
    file.persist(&output)
        .with_context(|| format!("{} cannot be written", output.display()))?;
    Ok((
        format!("{}: {}\n", output.display(), amount(counts)),
        Ending::Done,
    ))
}

fn import(import: Import, runtime: &tokio::runtime::Runtime) -> anyhow::Result<(String, Ending)> {
    let Import {
        file,
        from_ledger,
        ledger,
    } = import;
    let (from, mut opened) = match (file, from_ledger) {
        (_, Some(path)) => {
            let exported = exported(&path)?;
            (path, exported)
        }
        (Some(path), None) => {
            let opened = File::open(&path).with_context(|| format!("{} cannot be opened", path.display()))?;
            (path, opened)
        }
        (None, None) => bail!("neither a file nor a ledger is named"),
    };
    let report = verify(&opened).with_context(|| format!("{} cannot be imported", from.display()))?;
    if report.found > 0 {
        return Ok((
            format!("{}Nothing was imported: a record is not valid.\n", table(&report)),
            Ending::Damaged,
        ));
    }
    opened
        .seek(SeekFrom::Start(0))
        .context("the file cannot be read again")?;
    let place = ledger.to_string();
    let backend = ledger.backend("sipctl ledger import".to_owned());
    let (waiting, mut seen) = watch::channel(None);
    let told = move |leader: Option<&str>, why: &str| {
        waiting.send_replace(Some(match leader {
            Some(leader) => format!("{leader} leads: stop every scheduler first"),
            None => why.to_owned(),
        }));
    };
    let tenure = runtime.block_on(async {
        tokio::select! {
            begun = backend.begin(&told) => begun.map_err(|refused| anyhow::Error::from(refused.error)),
            Ok(why) = seen.wait_for(Option::is_some) => Err(anyhow::anyhow!("{}", why.as_deref().unwrap_or_default())),
            () = tokio::time::sleep(ELECTION_TIMEOUT) => Err(anyhow::anyhow!("no endpoint answers")),
        }
    });
    let imported = tenure
        .with_context(|| format!("{place} cannot be opened"))
        .and_then(|tenure| {
            let entries = Reader::new(BufReader::new(&opened))?;
            let written = tenure.ledger.import(&mut entries.map(|entry| Ok(entry?)));
            written.with_context(|| format!("{place} refuses the import"))
        });
    runtime.block_on(backend.end());
    imported?;
    Ok((
        format!("{place}: {} at {}\n", amount(report.counts), report.last),
        Ending::Done,
    ))
}

fn check(check: Check) -> anyhow::Result<(String, Ending)> {
    let report = match check {
        Check {
            file: Some(file),
            ledger: _,
        } => {
            let opened = File::open(&file).with_context(|| format!("{} cannot be opened", file.display()))?;
            match verify(&opened) {
                Ok(report) => report,
                Err(error @ (FileError::CutOff(_) | FileError::Damaged(_))) => {
                    return Ok((format!("{}: {error}\n", file.display()), Ending::Damaged));
                }
                Err(error) => {
                    return Err(error).with_context(|| format!("{} cannot be read", file.display()));
                }
            }
        }
        Check {
            file: None,
            ledger: Some(path),
        } => {
            let ledger = open_file(&path)?;
            let mut checker = Checker::default();
            ledger
                .export(&mut |entry| {
                    checker.add(&entry);
                    Ok(())
                })
                .with_context(|| format!("{} cannot be read", path.display()))?;
            checker.finish()
        }
        Check {
            file: None,
            ledger: None,
        } => bail!("neither a file nor a ledger is named"),
    };
    let ending = if report.found == 0 {
        Ending::Done
    } else {
        Ending::Damaged
    };
    Ok((table(&report), ending))
}

/// A ledger that no scheduler has open, to be read. It must exist.
fn open_file(path: &Path) -> anyhow::Result<Redb> {
    if !path.is_file() {
        bail!("{} is no file", path.display());
    }
    Redb::open_to_read(path).with_context(|| format!("{} cannot be opened", path.display()))
}

/// An export of a ledger that no scheduler has open, in a file that nobody else sees.
fn exported(path: &Path) -> anyhow::Result<File> {
    let ledger = open_file(path)?;
    let mut file = tempfile::tempfile().context("no temporary file can be made")?;
    let mut writer = Writer::new(BufWriter::new(&file))?;
    let written = ledger.export(&mut |entry| Ok(writer.write(&entry)?));
    written.with_context(|| format!("{} cannot be read", path.display()))?;
    let end = writer.counts().end();
    writer.write(&end)?;
    drop(writer);
    file.rewind().context("the temporary file cannot be read")?;
    Ok(file)
}

fn amount(counts: Counts) -> String {
    let Counts {
        histories: _,
        records,
        removals: _,
        fences,
        decisions,
    } = counts;
    format!("{records} records, {fences} fences, {decisions} decisions")
}
