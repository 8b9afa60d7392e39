//! The cost of refused calls. Each refused call takes as long as a served one: for that time the scheduler does not read from the connection of its
//! caller. A caller whose refused calls are far ahead of its rate is disconnected. A caller within its limits is neither delayed nor disconnected,
//! whatever other callers of its site do. All identities of a site share one rate of refused calls, whatever their number: the more of them there
//! are, the longer each refused call takes.

use std::{
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Backlog above which the server disconnects a caller, if [`MAX_BURST`] refused calls take less time than this.
const MAX_BACKLOG: Duration = Duration::from_secs(4);
/// Maximum number of refused calls before the server disconnects a caller, at any rate: at a low rate, a short burst exceeds
/// [`MAX_BACKLOG`].
const MAX_BURST: u32 = 1024;

/// Time that the refused calls of an identity would have taken as served calls, and that has not passed yet.
#[derive(Debug)]
pub(super) struct Backlog {
    each: Duration,
    state: Mutex<Option<State>>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    until: Instant,
    /// How many identities shared the rate when the last call was refused.
    identities: u32,
}

impl Backlog {
    /// A backlog to which each refused call adds the time between two calls at `rate`. Without a rate, refused calls add nothing.
    pub(super) fn new(rate: Option<NonZeroU32>) -> Self {
        let each = rate.map_or(Duration::ZERO, |rate| Duration::from_secs(1) / rate.get());
        Self {
            each,
            state: Mutex::default(),
        }
    }

    /// Adds one refused call of one of so many identities that share the rate. Returns how long its caller waits, and whether it is disconnected.
    ///
    /// The backlog is compared with its limit as a number of calls, by the time that they take if one identity has the whole rate: a change of the
    /// number of identities disconnects nobody. If there are more identities than before, the limit may have become lower than what is left: the part
    /// above it is dropped.
    pub(super) fn add(&self, now: Instant, identities: u32) -> (Duration, bool) {
        let identities = identities.max(1);
        let own_limit = MAX_BACKLOG / identities;
        let limit = own_limit.max(self.each * MAX_BURST);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let left = state.map_or(Duration::ZERO, |state| {
            let left = state.until.saturating_duration_since(now) / state.identities;
            if identities > state.identities {
                left.min(limit.saturating_sub(self.each))
            } else {
                left
            }
        });
        // The cap lets a caller that was disconnected start again after a bounded time.
        let next = (left + self.each).min(limit + own_limit);
        let wait = next * identities;
        *state = Some(State {
            until: now + wait,
            identities,
        });
        (wait, next > limit)
    }

    /// Whether its time has not passed yet.
    pub(super) fn is_pending(&self, now: Instant) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_some_and(|state| state.until > now)
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
        assert_eq!(backlog.add(now, 1), (each, false));
        assert_eq!(backlog.add(now, 1), (each * 2, false));
        let later = now + each * 5;
        assert!(backlog.is_pending(now) && !backlog.is_pending(later));
        assert_eq!(backlog.add(later, 1), (each, false));
        let waits: Vec<_> = (0..10_000).map(|_| backlog.add(later, 1)).collect();
        assert_eq!(waits.iter().filter(|(_, exceeds)| !exceeds).count(), 3999);
        assert_eq!(waits.last(), Some(&(2 * MAX_BACKLOG, true)));
        assert_eq!(Backlog::new(None).add(now, 16), (Duration::ZERO, false));
        // All streams of a connection are no flood, however few calls a second are allowed, or however many share them.
        for (rate, identities) in [(1, 1), (1000, 16)] {
            let slow = Backlog::new(NonZeroU32::new(rate));
            assert!((0..MAX_BURST).all(|_| !slow.add(now, identities).1));
            assert!(slow.add(now, identities).1);
        }
    }

    #[test]
    fn identities_that_leave_disconnect_nobody() {
        let backlog = Backlog::new(NonZeroU32::new(1000));
        let now = Instant::now();
        assert!((0..300).all(|_| !backlog.add(now, 16).1));
        assert_eq!(backlog.add(now, 1), (Duration::from_millis(301), false));
        assert_eq!(backlog.add(now, 16), (Duration::from_millis(302 * 16), false));
    }

    #[test]
    fn identities_that_come_disconnect_nobody() {
        let backlog = Backlog::new(NonZeroU32::new(1000));
        let now = Instant::now();
        assert!((0..2000).all(|_| !backlog.add(now, 1).1));
        let lowest = Duration::from_millis(u64::from(MAX_BURST));
        assert_eq!(backlog.add(now, 16), (lowest * 16, false));
        assert!(backlog.add(now, 16).1, "it goes on above the limit");
    }
}
