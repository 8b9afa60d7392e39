//! The cost of refused calls. Each refused call takes as long as a served one: for that time the scheduler does not read from the connection of its
//! caller. A caller whose refused calls are far ahead of its rate is disconnected. A caller within its limits is neither delayed nor disconnected,
//! whatever other callers of its site do.

use std::{
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Backlog above which a caller is disconnected, if [`BURST`] refused calls take less time than this.
const LIMIT: Duration = Duration::from_secs(4);
/// Refused calls before a caller is disconnected, at any rate: at a low rate, a short burst exceeds [`LIMIT`].
const BURST: u32 = 1024;

/// Time that the refused calls of an identity, or of a site, would have taken as served calls, and that has not passed yet.
#[derive(Debug)]
pub(super) struct Backlog {
    each: Duration,
    limit: Duration,
    until: Mutex<Option<Instant>>,
}

impl Backlog {
    /// A backlog to which each refused call adds the time between two calls at `rate`. Without a rate, refused calls add nothing.
    pub(super) fn new(rate: Option<NonZeroU32>) -> Self {
        let each = rate.map_or(Duration::ZERO, |rate| Duration::from_secs(1) / rate.get());
        Self {
            each,
            limit: LIMIT.max(each * BURST),
            until: Mutex::default(),
        }
    }

    /// Adds one refused call. Returns how long its caller waits.
    pub(super) fn add(&self, now: Instant) -> Duration {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let next = until.map_or(now, |until| until.max(now)) + self.each;
        // The cap lets a caller that was disconnected start again after a bounded time.
        let next = next.min(now + self.limit + LIMIT);
        *until = Some(next);
        next - now
    }

    /// Whether a caller that waits so long is disconnected.
    pub(super) fn exceeds_limit(&self, wait: Duration) -> bool {
        wait > self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_takes_the_time_of_a_call() {
        let backlog = Backlog::new(NonZeroU32::new(1000));
        let now = Instant::now();
        let each = Duration::from_millis(1);
        assert_eq!(backlog.add(now), each);
        assert_eq!(backlog.add(now), each * 2);
        let later = now + each * 5;
        assert_eq!(backlog.add(later), each);
        let waits: Vec<_> = (0..10_000).map(|_| backlog.add(later)).collect();
        assert_eq!(
            waits.iter().filter(|wait| !backlog.exceeds_limit(**wait)).count(),
            3999
        );
        assert_eq!(waits.last(), Some(&(2 * LIMIT)));
        assert_eq!(Backlog::new(None).add(now), Duration::ZERO);
        // All streams of a connection are no flood, however few calls a second are allowed.
        let slow = Backlog::new(NonZeroU32::new(1));
        assert!((0..BURST).all(|_| !slow.exceeds_limit(slow.add(now))));
        assert!(slow.exceeds_limit(slow.add(now)));
    }
}
