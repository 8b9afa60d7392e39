//! Drops etcd's history of earlier values, which otherwise grows with every commit until etcd is full.
//!
//! The ledger needs a value at an earlier revision only while one answer is read, such as an export: what was current at
//! least [`Pace::keep`] ago is needed by nothing. etcd's own compaction may drop more; then there is nothing to do.

use std::{
    collections::VecDeque,
    convert::Infallible,
    time::{Duration, Instant},
};

use etcd_client::{GetOptions, ResponseHeader};

use super::{
    Place,
    request::{REQUEST, send},
};
use crate::ledger::Error;

/// When the leader compacts.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How often etcd is asked for its revision.
    pub interval: Duration,
    /// How long a revision is kept at least after it was current.
    pub keep: Duration,
    /// How long after a compaction the next one is due.
    pub every: Duration,
    /// With so many revisions to drop the next one is due at once.
    pub count: i64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            interval: Duration::from_mins(1),
            keep: Duration::from_mins(15),
            every: Duration::from_hours(1),
            count: 100_000,
        }
    }
}

/// Revisions that were current, and what was dropped.
#[derive(Debug)]
struct History {
    pace: Pace,
    observed: VecDeque<(Instant, i64)>,
    compacted: i64,
    at: Instant,
}

impl History {
    fn new(pace: Pace, now: Instant, revision: i64) -> Self {
        Self {
            pace,
            observed: VecDeque::from([(now, revision)]),
            compacted: 0,
            at: now,
        }
    }

    fn observe(&mut self, now: Instant, revision: i64) {
        self.observed.push_back((now, revision));
    }

    /// Up to where it is time to compact.
    fn due(&mut self, now: Instant) -> Option<i64> {
        let is_old = |observed: &(Instant, i64)| now.saturating_duration_since(observed.0) >= self.pace.keep;
        // The newest of those that are old enough stays the first.
        while self.observed.get(1).is_some_and(is_old) {
            self.observed.pop_front();
        }
        let (_, upto) = *self.observed.front().filter(|observed| is_old(observed))?;
        let more = upto - self.compacted;
        let is_time = now.saturating_duration_since(self.at) >= self.pace.every;
        // What an earlier leader has dropped is not known: the first time counts no revisions.
        let is_much = self.compacted > 0 && more >= self.pace.count;
        (more > 0 && (is_time || is_much)).then_some(upto)
    }

    fn compacted(&mut self, now: Instant, upto: i64) {
        self.compacted = upto;
        self.at = now;
    }
}

impl Place {
    /// Compacts again and again, as a leader does besides. What fails is reported and tried again.
    pub async fn compact_history(&self, pace: Pace) -> Infallible {
        let mut history: Option<History> = None;
        loop {
            if let Err(error) = self.compact_if_due(&mut history, pace).await {
                tracing::warn!(
                    error = error.chain(),
                    "the history of etcd was not compacted and is tried again"
                );
            }
            tokio::time::sleep(pace.interval).await;
        }
    }

    async fn compact_if_due(&self, history: &mut Option<History>, pace: Pace) -> Result<(), Error> {
        let revision = self.revision().await?;
        let now = Instant::now();
        let Some(history) = history else {
            *history = Some(History::new(pace, now, revision));
            return Ok(());
        };
        history.observe(now, revision);
        if let Some(upto) = history.due(now) {
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

    /// Drops what was overwritten or deleted up to that revision. That etcd has none of it any more is no error.
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
        send(REQUEST * 5, "compact the history of etcd", compact).await
    }
}

/// Whether etcd says that it has dropped that revision.
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
        let mut history = History::new(Pace::default(), begun, 100);
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
        let mut history = History::new(Pace::default(), begun, 1);
        history.compacted(begun, 1);
        history.observe(begun + minutes(1), 100_001);
        assert_eq!(history.due(begun + minutes(15)), None, "nothing is old");
        assert_eq!(history.due(begun + minutes(16)), Some(100_001));
    }

    #[test]
    fn a_failed_compaction_stays_due() {
        let begun = Instant::now();
        let mut history = History::new(Pace::default(), begun, 7);
        for minute in [60, 61] {
            assert_eq!(history.due(begun + minutes(minute)), Some(7));
        }
        history.compacted(begun + minutes(61), 7);
        assert_eq!(history.due(begun + minutes(130)), None, "nothing was written");
    }
}
