//! Exports that are written by themselves: into a directory, at an interval, the oldest ones removed.
//!
//! The wall clock may be set: by it backups are named, and one that a process finds has an age. Each backup after that is due by the monotonic
//! clock. One of a time that is still to come was written while the clock was ahead, so it is older than the one that is written now.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
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
/// Prefix of the name of a file that is being written. One that a killed process has left is removed.
const UNFINISHED_PREFIX: &str = ".ledger-unfinished-";

/// Options of the scheduled backups.
#[derive(Clone, Debug, clap::Args)]
pub struct BackupArgs {
    /// Directory into which the leader writes backups (exports of the ledger); without it, the leader writes none
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
    /// The newest one; `None`: there is none whose age is known.
    newest: Mutex<Option<Newest>>,
}

/// The newest backup.
#[derive(Clone, Copy, Debug)]
struct Newest {
    /// How old it was.
    age: Duration,
    /// When it was so old.
    at: Instant,
}

impl Newest {
    /// How old it is now.
    fn age(self) -> Duration {
        self.age.saturating_add(self.at.elapsed())
    }
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
        let now = SystemTime::now();
        let newest = files(directory, now)?.pop().map(fs::metadata).transpose()?;
        let written = newest.and_then(|file| file.modified().ok());
        let age = written.and_then(|written| now.duration_since(written).ok());
        let at = Instant::now();
        let newest = age.map(|age| Newest { age, at });
        Ok(Self {
            directory: directory.to_owned(),
            every,
            keep,
            terms,
            metrics,
            newest: Mutex::new(newest),
        })
    }

    fn age(&self) -> Option<Duration> {
        let newest = *self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.map(Newest::age)
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
        let begun = Instant::now();
        remove_unfinished(&self.directory)?;
        let file = tempfile::Builder::new()
            .prefix(UNFINISHED_PREFIX)
            .tempfile_in(&self.directory)?;
        let counts = export(&*ledger, &standing, io::BufWriter::new(file.as_file()))?;
        drop(ledger);
        file.as_file().sync_all()?;
        let path = self.directory.join(format!(
            "{}{:012}{}",
            FILE_AFFIXES[0],
            seconds_at(now),
            FILE_AFFIXES[1]
        ));
        file.persist(&path)?;
        fs::File::open(&self.directory)?.sync_all()?;
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(Newest {
            age: Duration::ZERO,
            at: begun,
        });
        let mut all = files(&self.directory, now)?;
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

/// Removes what processes that were killed had not finished.
fn remove_unfinished(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED_PREFIX) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// The backups of a directory, the oldest first: those of a time after `now` were written while the clock was ahead.
fn files(directory: &Path, now: SystemTime) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if let Some(seconds) = seconds(&path) {
            found.push((seconds <= seconds_at(now), seconds, path));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, _, path)| path).collect())
}

/// The time in the name of a backup, in seconds since 1970; `None` if the file is no backup.
fn seconds(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    let time = name
        .strip_prefix(FILE_AFFIXES[0])?
        .strip_suffix(FILE_AFFIXES[1])?;
    let is_time = time.len() == 12 && time.bytes().all(|byte| byte.is_ascii_digit());
    time.parse().ok().filter(|_| is_time)
}

fn seconds_at(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
