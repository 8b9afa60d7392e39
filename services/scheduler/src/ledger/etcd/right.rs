//! How long this process may write at least.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

/// A right that lapses unless it is renewed. Time is the machine's monotonic one, which goes on while the process is
/// stopped.
#[derive(Debug)]
pub struct Right {
    until: Mutex<Instant>,
}

impl Right {
    /// One that lapses then.
    #[must_use]
    pub fn until(until: Instant) -> Self {
        Self {
            until: Mutex::new(until),
        }
    }

    /// When it lapses.
    #[must_use]
    pub fn lapses(&self) -> Instant {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves its end, or ends it.
    pub fn renew(&self, until: Instant) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    /// Whether it holds now.
    #[must_use]
    pub fn holds(&self) -> bool {
        Instant::now() < self.lapses()
    }
}
