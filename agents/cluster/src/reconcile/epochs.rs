//! The epochs that the scheduler has answered from.
//!
//! Statuses do not count: anybody who may write one can forge an epoch, and it would keep the agent from acting for the whole site. What
//! the site shows raises the epoch of the scheduler, which refuses what no ledger can have issued.

use std::sync::atomic::{AtomicU64, Ordering};

/// The highest epoch of the site that the scheduler has answered from.
#[derive(Debug, Default)]
pub struct Epochs(AtomicU64);

impl Epochs {
    /// Takes in the epoch of an answer.
    ///
    /// # Errors
    /// The higher epoch of an earlier answer: this one must not be acted on.
    pub fn observe(&self, answered: u64) -> Result<(), u64> {
        let seen = self.0.fetch_max(answered, Ordering::Relaxed);
        if answered < seen { Err(seen) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_from_an_older_epoch_is_refused() {
        let epochs = Epochs::default();
        assert_eq!(epochs.observe(2), Ok(()));
        assert_eq!(epochs.observe(2), Ok(()));
        assert_eq!(epochs.observe(1), Err(2));
        assert_eq!(epochs.observe(3), Ok(()));
        assert_eq!(epochs.observe(2), Err(3));
    }
}
