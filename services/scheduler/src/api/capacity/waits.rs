//! How the time of a question about all sites is divided among them.

use std::time::{Duration, Instant};

/// How long a read waits for a site that is locked or pauses after a copy, before it has tried all others.
const FIRST_TIMEOUT: Duration = Duration::from_millis(100);
/// How long a read waits for one site after that.
const SECOND_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a question about all sites waits for each, so that busy sites neither hide others nor use up the time until its deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    /// For each site before all are tried.
    pub(super) brief: Duration,
    /// From then on it waits for no site.
    until: Instant,
    /// From then on it waits for no permit and counts no copies either: what is left is for the answer.
    pub(super) ends: Instant,
}

impl Waits {
    /// For a question about so many sites that has so much time.
    pub(super) fn new(now: Instant, time: Duration, sites: usize) -> Self {
        let waits = time / 3 * 2;
        Self {
            // Half of the time is left for the sites that are busy.
            brief: FIRST_TIMEOUT.min(share(waits / 2, sites)),
            until: now + waits,
            ends: now + time / 6 * 5,
        }
    }

    /// For one of so many busy sites that are left.
    pub(super) fn next(&self, now: Instant, sites: usize) -> Duration {
        SECOND_TIMEOUT.min(share(self.until.saturating_duration_since(now), sites))
    }

    /// Until when copies are counted in one of so many sites that are left: each of the others keeps as much time.
    pub(super) fn counted_by(&self, now: Instant, sites: usize) -> Instant {
        now + share(self.ends.saturating_duration_since(now), sites)
    }
}

/// The time for each of so many sites.
fn share(time: Duration, sites: usize) -> Duration {
    time / u32::try_from(sites.max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_count_leaves_others_as_much_time() {
        let (now, time) = (Instant::now(), Duration::from_secs(30));
        let waits = Waits::new(now, time, 3);
        assert_eq!(waits.counted_by(now, 3), now + Duration::from_secs(25) / 3);
        // The last one has all that the others have left.
        assert_eq!(waits.counted_by(now, 1), waits.ends);
        assert_eq!(waits.counted_by(now + time, 1), now + time);
    }

    #[test]
    fn busy_sites_share_two_thirds_of_the_time() {
        let (now, time) = (Instant::now(), Duration::from_secs(30));
        let waits = Waits::new(now, time, 4);
        assert_eq!(waits.brief, FIRST_TIMEOUT);
        let mut later = now + 4 * waits.brief;
        for left in (1..=4).rev() {
            later += waits.next(later, left);
        }
        assert!(later <= now + Duration::from_secs(20));
        assert!(later > now + Duration::from_secs(19));
        assert_eq!(waits.next(now, 1), SECOND_TIMEOUT);
        assert_eq!(waits.next(now + time, 1), Duration::ZERO);
        // However many sites there are, half of it is left after all are tried.
        let many = Waits::new(now, time, 10_000);
        assert!(10_000 * many.brief <= Duration::from_secs(10));
    }
}
