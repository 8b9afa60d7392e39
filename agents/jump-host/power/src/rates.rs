//! Rate limits of many keys, of which a bounded number is remembered.

use std::time::Duration;

use governor::{
    Quota, RateLimiter,
    clock::{Clock as _, DefaultClock},
    state::keyed::HashMapStateStore,
};

/// Keys that are remembered. Beyond them all keys share one limit, until some have their full burst again.
const KEYS: usize = 4096;

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

    /// Counts one use of a key.
    ///
    /// # Errors
    /// How long to wait for the next one.
    pub(crate) fn count(&self, key: &str) -> Result<(), Duration> {
        if self.0.len() > KEYS {
            self.0.retain_recent();
        }
        let key = if self.0.len() > KEYS { "" } else { key };
        self.0
            .check_key(&key.to_owned())
            .map_err(|until| until.wait_time_from(DefaultClock::default().now()))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

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
    fn a_bounded_number_of_keys_is_remembered() {
        let rates = Rates::new(Quota::per_hour(NonZeroU32::MIN));
        let counted = (0..2 * KEYS)
            .filter(|key| rates.count(&key.to_string()).is_ok())
            .count();
        assert!(rates.0.len() <= KEYS + 2, "{}", rates.0.len());
        assert!(counted <= KEYS + 2, "{counted}");
    }
}
