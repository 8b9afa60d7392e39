//! How long this process may write without a further renewal.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

/// A right to write that lapses unless it is renewed. It is measured by the machine's monotonic clock, which also runs while the process is
/// stopped.
#[derive(Debug)]
pub struct Right {
    until: Mutex<Instant>,
}

impl Right {
    /// A right that lapses at `until`.
    #[must_use]
    pub fn expiring_at(until: Instant) -> Self {
        Self {
            until: Mutex::new(until),
        }
    }

    /// When it lapses.
    #[must_use]
    pub fn lapses(&self) -> Instant {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the time at which the right lapses; a past time ends it at once.
    pub fn renew(&self, until: Instant) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    /// Whether it holds now.
    #[must_use]
    pub fn holds(&self) -> bool {
        Instant::now() < self.lapses()
    }
}
