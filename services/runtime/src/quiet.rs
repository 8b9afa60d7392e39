//! Log lines that others can cause: some at once, then one a second.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

/// Lines that may come at once.
const BURST: NonZeroU32 = NonZeroU32::new(32).unwrap();
/// Lines a second after that.
const RATE: NonZeroU32 = NonZeroU32::MIN;

/// How often one kind of line may be logged.
#[derive(Debug)]
pub struct Quiet {
    limiter: DefaultDirectRateLimiter,
    withheld: AtomicU64,
}

impl Default for Quiet {
    fn default() -> Self {
        Self {
            limiter: RateLimiter::direct(Quota::per_second(RATE).allow_burst(BURST)),
            withheld: AtomicU64::new(0),
        }
    }
}

impl Quiet {
    /// Whether the line is to be logged, and how many before it were not.
    #[must_use]
    pub fn line(&self) -> Option<u64> {
        if self.limiter.check().is_ok() {
            Some(self.withheld.swap(0, Ordering::Relaxed))
        } else {
            self.withheld.fetch_add(1, Ordering::Relaxed);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_burst_are_counted() {
        let quiet = Quiet::default();
        let logged = (0..1000).filter_map(|_| quiet.line()).count();
        assert!((32..40).contains(&logged), "{logged}");
        let withheld = quiet.withheld.load(Ordering::Relaxed);
        assert_eq!(withheld + u64::try_from(logged).unwrap(), 1000);
    }
}
