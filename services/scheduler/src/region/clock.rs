//! The clock of a region, which tests replace.

use std::{fmt, time::SystemTime};

/// A function that returns the present time.
pub(super) struct Clock(Box<dyn Fn() -> SystemTime + Send + Sync>);

impl Clock {
    pub(super) fn new(clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self(Box::new(clock))
    }

    pub(super) fn now(&self) -> SystemTime {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").finish_non_exhaustive()
    }
}
