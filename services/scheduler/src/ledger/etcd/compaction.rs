//! Drops etcd's history of earlier values, which otherwise grows with every commit until etcd is full.
//!
//! The ledger needs a value at an earlier revision only while one answer is read, such as an export: what was current at
//! least [`Pace::keep`] ago is needed by nothing. etcd's own compaction may drop more; then there is nothing to do.
//!
//! How fast history grows is up to whoever changes records, and a full etcd ends all terms: so history is bounded by bytes, too.
//! What this ledger writes is counted, and the scheduler reads how full etcd is. What an export reads is left for five minutes, unless
//! etcd is half full: then the export fails, and is made again.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{
        PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use etcd_client::{GetOptions, ResponseHeader};
use runtime::quiet::Quiet;
use tokio::sync::Notify;

use super::{
    Location,
    retries::{REQUEST_TIMEOUT, send_with_retries},
};
use crate::ledger::{Error, Storage};

/// When the leader compacts.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How often the scheduler reads the revision of etcd.
    pub interval: Duration,
    /// How long a revision is kept at least after it was current.
    pub keep: Duration,
    /// How long after a compaction the next one is due.
    pub every: Duration,
    /// With so many revisions to drop the next one is due at once.
    pub count: i64,
    /// What was overwritten before so many bytes were written is dropped at once, however young it is.
    pub bytes: u64,
}

/// What this process has written.
#[derive(Debug)]
pub(super) struct Growth {
    written: AtomicU64,
    /// Bytes written at which the leader checks at once whether to compact.
    check_at: AtomicU64,
    check: Notify,
}

impl Default for Growth {
    fn default() -> Self {
        Self {
            written: AtomicU64::new(0),
            check_at: AtomicU64::new(u64::MAX),
            check: Notify::new(),
        }
    }
}

impl Growth {
    /// So many bytes are written.
    pub(super) fn add(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let written = self
            .written
            .fetch_add(bytes, Ordering::Relaxed)
            .saturating_add(bytes);
        if written >= self.check_at.load(Ordering::Relaxed) {
            self.check.notify_one();
        }
    }

    fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Waits for so long, or until so much is written.
    async fn wait(&self, time: Duration, upto: u64) {
        self.check_at.store(upto, Ordering::Relaxed);
        if self.written() < upto {
            // At whichever is sooner.
            let _ = tokio::time::timeout(time, self.check.notified()).await;
        }
    }
}

/// Percentage of the quota that current data use, from which on the scheduler drops all that etcd does not need.
const COMPACTION_PERCENT: i64 = 50;
/// Percentage of the quota that the whole file uses, from which on the scheduler logs an error.
const WARNING_PERCENT: i64 = 70;

/// How full a member of etcd is, in hundredths of its quota.
#[derive(Clone, Copy, Debug, Default)]
struct Fullness {
    /// Part of the quota that current data use.
    used: i64,
    /// Part of the quota that the whole file uses; at 100 etcd refuses writes.
    file: i64,
}

/// The quota, in bytes, that etcd has if none is set and it reports none.
const DEFAULT_QUOTA_BYTES: i64 = 2 << 30;
/// Minimum time between two checks while etcd does not answer.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl Default for Pace {
    fn default() -> Self {
        Self {
            interval: Duration::from_mins(1),
            keep: Duration::from_mins(15),
            every: Duration::from_hours(1),
            count: 100_000,
            bytes: 64 << 20,
        }
    }
}

/// Revisions of etcd with the times at which they were current, and the last compaction.
#[derive(Debug)]
struct History {
    pace: Pace,
    observed: VecDeque<(Instant, i64)>,
    compacted: i64,
    at: Instant,
    /// Bytes written, and etcd's revision, when `pace.bytes` were reached the last time.
    mark: (u64, i64),
}

impl History {
    fn new(pace: Pace, now: Instant, revision: i64, written: u64) -> Self {
        Self {
            pace,
            observed: VecDeque::from([(now, revision)]),
            compacted: 0,
            at: now,
            mark: (written, revision),
        }
    }

    fn observe(&mut self, now: Instant, revision: i64) {
        self.observed.push_back((now, revision));
    }

    /// The revision to compact up to, if a compaction is due by age or by number of revisions.
    fn due(&mut self, now: Instant) -> Option<i64> {
        let is_old = |observed: &(Instant, i64)| now.saturating_duration_since(observed.0) >= self.pace.keep;
        // The newest of those that are old enough stays the first.
        while self.observed.get(1).is_some_and(is_old) {
            self.observed.pop_front();
        }
        let (_, upto) = *self.observed.front().filter(|observed| is_old(observed))?;
        let more = upto - self.compacted;
        let is_time = now.saturating_duration_since(self.at) >= self.pace.every;
        // This process does not know how far an earlier leader compacted, so its first compaction is due by time only.
        let is_much = self.compacted > 0 && more >= self.pace.count;
        (more > 0 && (is_time || is_much)).then_some(upto)
    }

    /// The revision to compact up to, if enough bytes were written since the last mark. If etcd is `full`, that is the present revision, whatever
    /// was written.
    fn grown(&mut self, written: u64, revision: i64, full: bool) -> Option<i64> {
        let (before, upto) = self.mark;
        let much = written.saturating_sub(before) >= self.pace.bytes;
        if much {
            self.mark = (written, revision);
        }
        let upto = if full { revision } else { upto };
        ((much || full) && upto > self.compacted).then_some(upto)
    }

    /// Number of bytes written at which the next check is due.
    fn next_mark(&self) -> u64 {
        self.mark.0.saturating_add(self.pace.bytes)
    }

    fn compacted(&mut self, now: Instant, upto: i64) {
        self.compacted = upto;
        self.at = now;
    }
}

impl Location {
    /// Compacts etcd's history at this pace, for ever: the leader runs it beside its term. Logs each failure and tries again.
    pub async fn compact_history(&self, pace: Pace) -> Infallible {
        let (mut history, filling) = (None, Quiet::default());
        loop {
            if let Err(error) = self.compact_if_due(&mut history, pace, &filling).await {
                tracing::warn!(
                    error = error.chain(),
                    "the history of etcd was not compacted and is tried again"
                );
                tokio::time::sleep(CHECK_INTERVAL.min(pace.interval)).await;
            }
            let upto = history.as_ref().map_or(u64::MAX, History::next_mark);
            self.growth.wait(pace.interval, upto).await;
        }
    }

    /// How full a member of etcd is.
    async fn fullness(&self) -> Result<Fullness, Error> {
        let status = || {
            let mut maintenance = self.client().maintenance_client();
            async move { maintenance.status().await }
        };
        let status = send_with_retries(REQUEST_TIMEOUT, "read the status of etcd", status).await?;
        let quota = Some(status.db_size_quota()).filter(|quota| *quota > 0);
        let quota = quota.unwrap_or(DEFAULT_QUOTA_BYTES);
        let of_quota = |bytes: i64| bytes.saturating_mul(100) / quota;
        *self.storage.lock().unwrap_or_else(PoisonError::into_inner) = Some(Storage {
            bytes: u64::try_from(status.db_size()).unwrap_or(0),
            quota: u64::try_from(quota).unwrap_or(0),
        });
        Ok(Fullness {
            used: of_quota(status.raft_used_db_size()),
            file: of_quota(status.db_size()),
        })
    }

    async fn compact_if_due(
        &self,
        history: &mut Option<History>,
        pace: Pace,
        filling: &Quiet,
    ) -> Result<(), Error> {
        // Before its revision is requested: no more than this is at that revision.
        let written = self.growth.written();
        let revision = self.revision().await?;
        let fullness = self.fullness().await.unwrap_or_else(|error| {
            tracing::debug!(
                error = error.chain(),
                "etcd does not report the size of its database"
            );
            Fullness::default()
        });
        if fullness.file >= WARNING_PERCENT
            && let Some(withheld) = filling.line()
        {
            tracing::error!(
                percent = fullness.file,
                withheld,
                "the database of etcd nears its quota, at which nothing can be placed in any site: raise --quota-backend-bytes, or run `etcdctl defrag` on one member after the other"
            );
        }
        let now = Instant::now();
        let history = history.get_or_insert_with(|| History::new(pace, now, revision, written));
        history.observe(now, revision);
        let full = fullness.used >= COMPACTION_PERCENT;
        let grown = history.grown(written, revision, full);
        let due = history.due(now).max(grown);
        let left = due.map(|upto| self.holds.compactable(upto, full, now));
        if let Some(upto) = left.filter(|upto| *upto > history.compacted) {
            self.compact(upto).await?;
            tracing::debug!(revision = upto, "compacted the history of etcd");
            history.compacted(now, upto);
        }
        Ok(())
    }

    /// etcd's revision now.
    async fn revision(&self) -> Result<i64, Error> {
        let options = GetOptions::new().with_count_only();
        let found = self.get(self.keys.leader(), options).await?;
        Ok(found.header().map_or(0, ResponseHeader::revision))
    }

    /// Drops what was overwritten or deleted up to that revision. It is no error if etcd has dropped it already.
    ///
    /// # Errors
    /// When etcd does not do it.
    pub async fn compact(&self, upto: i64) -> Result<(), Error> {
        let compact = || {
            let mut kv = self.kv();
            async move {
                match kv.compact(upto, None).await {
                    Err(error) if is_compacted(&error) => Ok(()),
                    answer => answer.map(drop),
                }
            }
        };
        send_with_retries(REQUEST_TIMEOUT * 5, "compact the history of etcd", compact).await
    }
}

/// Whether etcd states that it has dropped that revision.
fn is_compacted(error: &etcd_client::Error) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status)
        if status.code() == tonic::Code::OutOfRange && status.message().contains("has been compacted"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minutes(number: u64) -> Duration {
        Duration::from_secs(number * 60)
    }

    #[test]
    fn each_hour_what_is_old_is_dropped() {
        let begun = Instant::now();
        let mut history = History::new(Pace::default(), begun, 100, 0);
        let mut dropped = Vec::new();
        for minute in 1..=130 {
            let now = begun + minutes(minute);
            history.observe(now, 100 + i64::try_from(minute).unwrap());
            if let Some(upto) = history.due(now) {
                dropped.push((minute, upto));
                history.compacted(now, upto);
            }
        }
        assert_eq!(dropped, [(60, 145), (120, 205)], "15 minutes are kept");
    }

    #[test]
    fn many_revisions_are_dropped_before_the_hour() {
        let begun = Instant::now();
        let mut history = History::new(Pace::default(), begun, 1, 0);
        history.compacted(begun, 1);
        history.observe(begun + minutes(1), 100_001);
        assert_eq!(history.due(begun + minutes(15)), None, "nothing is old");
        assert_eq!(history.due(begun + minutes(16)), Some(100_001));
    }

    #[test]
    fn what_much_was_written_after_is_dropped_at_once() {
        let pace = Pace {
            bytes: 100,
            ..Pace::default()
        };
        let mut history = History::new(pace, Instant::now(), 10, 50);
        assert_eq!(history.next_mark(), 150);
        assert_eq!(history.grown(149, 12, false), None);
        assert_eq!(history.grown(160, 14, false), Some(10));
        history.compacted(Instant::now(), 10);
        assert_eq!(history.grown(259, 17, false), None);
        assert_eq!(history.grown(260, 18, false), Some(14));
        assert_eq!(history.grown(260, 19, true), Some(19), "etcd is full");
    }

    #[test]
    fn a_failed_compaction_stays_due() {
        let begun = Instant::now();
        let mut history = History::new(Pace::default(), begun, 7, 0);
        for minute in [60, 61] {
            assert_eq!(history.due(begun + minutes(minute)), Some(7));
        }
        history.compacted(begun + minutes(61), 7);
        assert_eq!(history.due(begun + minutes(130)), None, "nothing was written");
    }
}
