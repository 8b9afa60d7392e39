//! Refused calls cost, too. So each takes as long as one that is served: meanwhile the connection by which it came is not read. Who keeps to
//! its limits is never paused, whatever others of its site do.

use std::{
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Nobody is paused for longer: keepalive of either side would end the connection. Who is further ahead is disconnected.
pub(super) const LONGEST: Duration = Duration::from_secs(4);

/// How far the refused calls of an identity, or of a site, are ahead of the time that so many served ones take.
#[derive(Debug)]
pub(super) struct Debt {
    each: Duration,
    until: Mutex<Option<Instant>>,
}

impl Debt {
    /// At this rate; `None`: refused calls cost their caller nothing.
    pub(super) fn new(rate: Option<NonZeroU32>) -> Self {
        Self {
            each: rate.map_or(Duration::ZERO, |rate| Duration::from_secs(1) / rate.get()),
            until: Mutex::default(),
        }
    }

    /// One more. Until when its caller waits.
    pub(super) fn add(&self, now: Instant) -> Instant {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let next = until.map_or(now, |until| until.max(now)) + self.each;
        // Who was disconnected begins anew before long.
        let next = next.min(now + 2 * LONGEST);
        *until = Some(next);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_takes_the_time_of_a_call() {
        let debt = Debt::new(NonZeroU32::new(100));
        let now = Instant::now();
        let each = Duration::from_millis(10);
        assert_eq!(debt.add(now), now + each);
        assert_eq!(debt.add(now), now + each * 2);
        let later = now + each * 5;
        assert_eq!(debt.add(later), later + each);
        let last = (0..10_000).map(|_| debt.add(later)).last().unwrap();
        assert_eq!(last, later + 2 * LONGEST);
        assert_eq!(Debt::new(None).add(now), now);
    }
}
