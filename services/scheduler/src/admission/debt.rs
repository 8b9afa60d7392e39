//! Refused calls cost, too. So each takes as long as one that is served: meanwhile the connection by which it came is not read. Who is far
//! ahead is disconnected. Who keeps to its limits is neither, whatever others of its site do.

use std::{
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Who is further ahead is disconnected,
const FAR: Duration = Duration::from_secs(4);
/// but not before so many calls are refused: where few calls a second are allowed, a burst takes longer.
const BURST: u32 = 1024;

/// How far the refused calls of an identity, or of a site, are ahead of the time that so many served ones take.
#[derive(Debug)]
pub(super) struct Debt {
    each: Duration,
    far: Duration,
    until: Mutex<Option<Instant>>,
}

impl Debt {
    /// At this rate; `None`: refused calls cost their caller nothing.
    pub(super) fn new(rate: Option<NonZeroU32>) -> Self {
        let each = rate.map_or(Duration::ZERO, |rate| Duration::from_secs(1) / rate.get());
        Self {
            each,
            far: FAR.max(each * BURST),
            until: Mutex::default(),
        }
    }

    /// One more. For how long its caller waits.
    pub(super) fn add(&self, now: Instant) -> Duration {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let next = until.map_or(now, |until| until.max(now)) + self.each;
        // Who was disconnected begins anew before long.
        let next = next.min(now + self.far + FAR);
        *until = Some(next);
        next - now
    }

    /// Whether a caller that waits so long is disconnected.
    pub(super) fn is_far(&self, wait: Duration) -> bool {
        wait > self.far
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_takes_the_time_of_a_call() {
        let debt = Debt::new(NonZeroU32::new(1000));
        let now = Instant::now();
        let each = Duration::from_millis(1);
        assert_eq!(debt.add(now), each);
        assert_eq!(debt.add(now), each * 2);
        let later = now + each * 5;
        assert_eq!(debt.add(later), each);
        let waits: Vec<_> = (0..10_000).map(|_| debt.add(later)).collect();
        assert_eq!(waits.iter().filter(|wait| !debt.is_far(**wait)).count(), 3999);
        assert_eq!(waits.last(), Some(&(2 * FAR)));
        assert_eq!(Debt::new(None).add(now), Duration::ZERO);
        // All streams of a connection are no flood, however few calls a second are allowed.
        let slow = Debt::new(NonZeroU32::new(1));
        assert!((0..BURST).all(|_| !slow.is_far(slow.add(now))));
        assert!(slow.is_far(slow.add(now)));
    }
}
