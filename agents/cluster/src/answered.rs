//! The newest position from which the scheduler has answered.
//!
//! It is not read from statuses: who may write one could forge an epoch, and the agent would then refuse to act for the whole site. The agent
//! reports positions in statuses to the scheduler, which raises its epoch above them and refuses positions that no ledger can have issued.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use kit::placement::Position;
use proto::inventory::v1::Revision;

/// The highest epoch and the highest revision from which the scheduler has answered for the site. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Answered(Arc<Highest>);

#[derive(Debug, Default)]
struct Highest {
    epoch: AtomicU64,
    revision: AtomicU64,
}

impl Answered {
    /// Records the position of an answer.
    ///
    /// # Errors
    /// The highest epoch of earlier answers, if this answer has a lower one: the caller must not act on it.
    pub fn observe(&self, answered: Position) -> Result<(), u64> {
        self.0.revision.fetch_max(answered.revision(), Ordering::Relaxed);
        let seen = self.0.epoch.fetch_max(answered.epoch(), Ordering::Relaxed);
        if answered.epoch() < seen {
            Err(seen)
        } else {
            Ok(())
        }
    }

    /// The position above which the scheduler must continue: the higher epoch and the higher revision of its answers and of the statuses. A
    /// scheduler that has lost its ledger may have answered with a position that no status shows; [`Self::observe`] would refuse its successor
    /// for ever.
    #[must_use]
    pub fn highest_seen(&self, in_statuses: Option<Revision>) -> Option<Revision> {
        let (epoch, revision) = (&self.0.epoch, &self.0.revision);
        let answered = Revision {
            epoch: epoch.load(Ordering::Relaxed),
            revision: revision.load(Ordering::Relaxed),
        };
        if answered.epoch == 0 {
            return in_statuses;
        }
        let shown = in_statuses.unwrap_or_default();
        Some(Revision {
            epoch: answered.epoch.max(shown.epoch),
            revision: answered.revision.max(shown.revision),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: u64) -> Position {
        Position::new(epoch, 10 * epoch)
    }

    #[test]
    fn an_answer_from_an_older_epoch_is_refused() {
        let answered = Answered::default();
        assert_eq!(answered.observe(at(2)), Ok(()));
        assert_eq!(answered.observe(at(2)), Ok(()));
        assert_eq!(answered.observe(at(1)), Err(2));
        assert_eq!(answered.observe(at(3)), Ok(()));
        assert_eq!(answered.observe(at(2)), Err(3));
    }

    #[test]
    fn answers_and_statuses_together_are_the_highest_seen() {
        let seen = |epoch, revision| Some(Revision { epoch, revision });
        let answered = Answered::default();
        assert_eq!(answered.highest_seen(None), None);
        assert_eq!(answered.highest_seen(seen(1, 5)), seen(1, 5));
        answered.observe(at(2)).unwrap();
        assert_eq!(answered.highest_seen(None), seen(2, 20));
        assert_eq!(answered.highest_seen(seen(1, 25)), seen(2, 25));
        assert_eq!(answered.highest_seen(seen(3, 5)), seen(3, 20));
    }
}
