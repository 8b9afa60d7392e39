//! Revisions of etcd at which an export reads page after page: compaction leaves them for a while.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use crate::ledger::EXPORT_TIMEOUT;

/// Which revisions are read.
#[derive(Debug, Default)]
pub(super) struct Holds(Mutex<Vec<(i64, Instant)>>);

/// One that is read, until this is dropped.
#[derive(Debug)]
pub(super) struct Hold {
    holds: Arc<Holds>,
    held: (i64, Instant),
}

impl Holds {
    fn lock(&self) -> MutexGuard<'_, Vec<(i64, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads at a revision from now on.
    pub(super) fn hold(self: &Arc<Self>, revision: i64) -> Hold {
        let held = (revision, Instant::now());
        self.lock().push(held);
        Hold {
            holds: Arc::clone(self),
            held,
        }
    }

    /// Up to where may be compacted, when all up to `upto` is due: no further than the earliest revision that is read. Nobody keeps it back
    /// for longer than [`EXPORT_TIMEOUT`], nor where etcd is `full`.
    pub(super) fn compactable(&self, upto: i64, full: bool, now: Instant) -> i64 {
        let held = self.lock();
        let kept = held
            .iter()
            .filter(|(_, since)| !full && now.saturating_duration_since(*since) < EXPORT_TIMEOUT);
        kept.map(|(revision, _)| *revision).fold(upto, i64::min)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut held = self.holds.lock();
        if let Some(index) = held.iter().position(|held| *held == self.held) {
            held.swap_remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_left_for_some_minutes() {
        let holds = Arc::new(Holds::default());
        let now = Instant::now();
        assert_eq!(holds.compactable(9, false, now), 9);
        let (first, second) = (holds.hold(4), holds.hold(6));
        assert_eq!(holds.compactable(9, false, now), 4);
        assert_eq!(holds.compactable(3, false, now), 3);
        assert_eq!(holds.compactable(9, true, now), 9, "etcd is full");
        drop(first);
        assert_eq!(holds.compactable(9, false, now), 6);
        assert_eq!(holds.compactable(9, false, now + 2 * EXPORT_TIMEOUT), 9);
        drop(second);
        assert_eq!(holds.compactable(9, false, now), 9);
    }
}
