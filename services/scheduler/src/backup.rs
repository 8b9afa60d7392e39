//! Exports that are written by themselves: into a directory, at an interval, the oldest ones removed.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use prometheus_client::metrics::{counter::Counter, gauge::Gauge};
use runtime::{error_chain::chain, metrics::Metrics};
use tokio::{sync::watch, time::MissedTickBehavior};

use crate::{
    ledger::{
        Error, Ledger,
        export::{Counts, Writer},
    },
    metrics as table,
    term::{Standing, Terms},
};

/// Time between two updates of the backup's age in the metrics.
const AGE_UPDATE_PERIOD: Duration = Duration::from_secs(5);
/// Prefix and suffix of the name of a backup's file; between them is the time, which sorts.
const FILE_AFFIXES: [&str; 2] = ["ledger-", ".export"];

/// Options of the scheduled backups.
#[derive(Clone, Debug, clap::Args)]
pub struct BackupArgs {
    /// Directory into which the leader writes backups (exports of the ledger); without it, none
    #[arg(long, env = "SIP_BACKUP_DIR", value_name = "DIR")]
    pub backup_dir: Option<PathBuf>,
    /// Minutes between two backups
    #[arg(
        long,
        env = "SIP_BACKUP_MINUTES",
        value_name = "MINUTES",
        default_value_t = 60,
        value_parser = clap::value_parser!(u32).range(1..=10_080)
    )]
    pub backup_minutes: u32,
    /// Number of backups to keep; older ones are deleted
    #[arg(
        long,
        env = "SIP_BACKUP_KEEP",
        value_name = "NUMBER",
        default_value_t = 48,
        value_parser = clap::value_parser!(u16).range(1..=10_000)
    )]
    pub backup_keep: u16,
}

/// Metrics of backups. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct BackupMetrics {
    age: Gauge<f64, AtomicU64>,
    written: Counter,
    failed: Counter,
}

impl BackupMetrics {
    /// The metrics, registered in `metrics`: there is no export, until one is found or written.
    #[must_use]
    pub fn registered(metrics: &Metrics) -> Self {
        let this = Self::default();
        let Self { age, written, failed } = &this;
        // Where no directory is given, too: the alert tells that nothing is backed up.
        age.set(f64::INFINITY);
        metrics.add(&table::BACKUP_AGE, age.clone());
        metrics.add(&table::BACKUPS_WRITTEN, written.clone());
        metrics.add(&table::BACKUPS_FAILED, failed.clone());
        this
    }
}

/// Writes exports of whatever ledger there is.
#[derive(Debug)]
pub struct Backups {
    directory: PathBuf,
    every: Duration,
    keep: usize,
    terms: Terms,
    metrics: BackupMetrics,
    /// When the newest one was begun.
    newest: Mutex<Option<SystemTime>>,
}

impl Backups {
    /// Backups as the arguments ask for; `None` when they ask for none.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn new(args: &BackupArgs, terms: Terms, metrics: BackupMetrics) -> io::Result<Option<Self>> {
        let BackupArgs {
            backup_dir,
            backup_minutes,
            backup_keep,
        } = args;
        let Some(directory) = backup_dir else {
            return Ok(None);
        };
        let every = Duration::from_secs(u64::from(*backup_minutes) * 60);
        let this = Self::with_interval(directory, every, usize::from(*backup_keep), terms, metrics)?;
        Ok(Some(this))
    }

    /// Backups in a directory, at an interval, of which so many are kept.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn with_interval(
        directory: &Path,
        every: Duration,
        keep: usize,
        terms: Terms,
        metrics: BackupMetrics,
    ) -> io::Result<Self> {
        let newest = files(directory)?.pop().map(fs::metadata).transpose()?;
        let newest = newest.and_then(|file| file.modified().ok());
        Ok(Self {
            directory: directory.to_owned(),
            every,
            keep,
            terms,
            metrics,
            newest: Mutex::new(newest),
        })
    }

    fn newest(&self) -> Option<SystemTime> {
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn age(&self) -> Option<Duration> {
        // If the newest backup has a time in the future (the clock was set back), its age is 0.
        self.newest()
            .map(|newest| SystemTime::now().duration_since(newest).unwrap_or_default())
    }

    /// Writes one whenever the newest is older than the interval and this process leads. One that fails is tried again after
    /// a tenth of the interval.
    ///
    /// # Errors
    /// Only when writing panicked.
    pub async fn run(self) -> Result<(), tokio::task::JoinError> {
        let this = Arc::new(self);
        let mut ticks = tokio::time::interval(
            AGE_UPDATE_PERIOD
                .min(this.every / 10)
                .max(Duration::from_millis(10)),
        );
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut not_before = tokio::time::Instant::now();
        loop {
            ticks.tick().await;
            let age = this.age();
            this.metrics
                .age
                .set(age.map_or(f64::INFINITY, |age| age.as_secs_f64()));
            let due = age.is_none_or(|age| age >= this.every) && tokio::time::Instant::now() >= not_before;
            let leads = this.terms.watch().borrow().serves();
            if !due || !leads {
                continue;
            }
            let writing = Arc::clone(&this);
            match tokio::task::spawn_blocking(move || writing.write(SystemTime::now())).await? {
                Ok((file, counts)) => {
                    this.metrics.written.inc();
                    tracing::info!(file = %file.display(), ?counts, "the ledger is backed up");
                }
                Err(error) => {
                    this.metrics.failed.inc();
                    not_before = tokio::time::Instant::now() + this.every / 10;
                    tracing::error!(error = chain(&*error), directory = %this.directory.display(), "the ledger is not backed up");
                }
            }
        }
    }

    /// Writes one, and removes those that are too many.
    fn write(&self, now: SystemTime) -> Result<(PathBuf, Counts), Box<dyn std::error::Error + Send + Sync>> {
        // Watched before the ledger is taken: whatever comes after ends the export.
        let mut standing = self.terms.watch();
        standing.mark_unchanged();
        let ledger = self.terms.ledger()?;
        let file = tempfile::Builder::new()
            .prefix(".ledger-export-")
            .tempfile_in(&self.directory)?;
        let counts = export(&*ledger, &standing, io::BufWriter::new(file.as_file()))?;
        drop(ledger);
        file.as_file().sync_all()?;
        let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let path = self
            .directory
            .join(format!("{}{seconds:012}{}", FILE_AFFIXES[0], FILE_AFFIXES[1]));
        file.persist(&path)?;
        fs::File::open(&self.directory)?.sync_all()?;
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        let mut all = files(&self.directory)?;
        all.truncate(all.len().saturating_sub(self.keep));
        for old in all {
            fs::remove_file(old)?;
        }
        Ok((path, counts))
    }
}

/// Writes a whole export, as long as the term lasts.
fn export(
    ledger: &dyn Ledger,
    standing: &watch::Receiver<Standing>,
    out: impl io::Write,
) -> Result<Counts, Error> {
    let mut writer = Writer::new(out)?;
    ledger.export(&mut |entry| {
        if standing.has_changed().unwrap_or(true) {
            return Err(Error::storage("export the ledger")("the term is over"));
        }
        Ok(writer.write(&entry)?)
    })?;
    let counts = writer.counts();
    writer.write(&counts.end())?;
    Ok(counts)
}

/// The backups of a directory, the oldest first.
fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let middle = name
            .strip_prefix(FILE_AFFIXES[0])
            .and_then(|rest| rest.strip_suffix(FILE_AFFIXES[1]));
        if middle.is_some_and(|time| time.len() == 12 && time.bytes().all(|byte| byte.is_ascii_digit())) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
