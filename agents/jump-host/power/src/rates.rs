//! Rate limits of many keys, of which a bounded number is remembered.

use std::{num::NonZeroU32, time::Duration};

use governor::{
    InsufficientCapacity, NotUntil, Quota, RateLimiter,
    clock::{Clock as _, DefaultClock},
    state::keyed::HashMapStateStore,
};

/// Keys with a limit of their own, at most. Beyond that number all further keys share one limit, until some have their full burst again.
const MAX_KEYS: usize = 4096;

/// The same limit for each of many keys.
pub(crate) struct Rates(RateLimiter<String, HashMapStateStore<String>, DefaultClock>);

impl std::fmt::Debug for Rates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rates").finish_non_exhaustive()
    }
}

impl Rates {
    pub(crate) fn new(quota: Quota) -> Self {
        Self(RateLimiter::hashmap(quota))
    }

    /// Counts several uses of a key at once; more than the burst count as the burst.
    ///
    /// # Errors
    /// How long to wait.
    pub(crate) fn count_many(&self, key: &str, uses: NonZeroU32) -> Result<(), Duration> {
        self.forget_idle();
        let key = self.key(key);
        let wait = |until: NotUntil<_>| until.wait_time_from(DefaultClock::default().now());
        match self.0.check_key_n(&key, uses) {
            Ok(counted) => counted.map_err(wait),
            Err(InsufficientCapacity(burst)) => match NonZeroU32::new(burst) {
                Some(burst) => self
                    .0
                    .check_key_n(&key, burst)
                    .map_or(Ok(()), |counted| counted.map_err(wait)),
                None => Ok(()),
            },
        }
    }

    fn forget_idle(&self) {
        if self.0.len() > MAX_KEYS {
            self.0.retain_recent();
        }
    }

    fn key(&self, key: &str) -> String {
        if self.0.len() > MAX_KEYS {
            String::new()
        } else {
            key.to_owned()
        }
    }

    /// Counts one use of a key.
    ///
    /// # Errors
    /// How long to wait for the next one.
    pub(crate) fn count(&self, key: &str) -> Result<(), Duration> {
        self.forget_idle();
        self.0
            .check_key(&self.key(key))
            .map_err(|until| until.wait_time_from(DefaultClock::default().now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_own_limit_and_a_refusal_says_when() {
        let rates = Rates::new(Quota::per_minute(NonZeroU32::new(2).unwrap()));
        rates.count("a").unwrap();
        rates.count("a").unwrap();
        let again = rates.count("a").unwrap_err();
        assert!(
            again > Duration::from_secs(20) && again <= Duration::from_secs(30),
            "{again:?}"
        );
        rates.count("b").unwrap();
    }

    #[test]
    fn many_uses_count_together_and_at_most_as_the_burst() {
        let many = |uses| NonZeroU32::new(uses).unwrap();
        let rates = Rates::new(Quota::per_minute(many(10)));
        rates.count_many("a", many(6)).unwrap();
        rates.count_many("a", many(6)).unwrap_err();
        rates.count_many("a", many(4)).unwrap();
        rates.count_many("b", many(11)).unwrap();
        rates.count_many("b", many(11)).unwrap_err();
    }

    #[test]
    fn a_bounded_number_of_keys_is_remembered() {
        let rates = Rates::new(Quota::per_hour(NonZeroU32::MIN));
        let counted = (0..2 * MAX_KEYS)
            .filter(|key| rates.count(&key.to_string()).is_ok())
            .count();
        assert!(rates.0.len() <= MAX_KEYS + 2, "{}", rates.0.len());
        assert!(counted <= MAX_KEYS + 2, "{counted}");
    }
}
