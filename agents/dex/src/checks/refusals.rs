//! Directories that have refused the account of a connector. Many lock an account after some refusals, and then nobody can log in: so a
//! refused account binds again after growing pauses. Another password or account is another bind, which does not wait.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use kit::tenant::destinations::Destinations;
use tokio::time;

use super::PAUSE;
use crate::directory::{Bind, Error};

/// Longest pause before a refused account binds again.
const LONGEST: Duration = Duration::from_mins(10);

/// A bind that was refused.
struct Refused {
    bind: Bind,
    error: Error,
    pause: Duration,
    /// When it is tried again.
    due: Instant,
}

impl Refused {
    /// The next pause begins, which is longer than the last.
    fn pause_from(&mut self, now: Instant) {
        self.pause = (self.pause * 2).min(LONGEST);
        self.due = now + self.pause;
    }
}

/// How long a bind waits after it was interrupted: the first pause, and the longest, with which a check still ends in time.
const INTERRUPTED: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(15));

/// A bind whose check ended before it had an answer, which may have been a refusal.
struct Interrupted {
    bind: Bind,
    pause: Duration,
    due: time::Instant,
}

#[derive(Default)]
struct Known {
    refused: Vec<Refused>,
    interrupted: Vec<Interrupted>,
}

/// The binds of one provider that were refused or interrupted.
#[derive(Default)]
pub struct Refusals(Mutex<Known>);

/// A bind that has no answer yet.
struct UnderWay<'a> {
    refusals: &'a Refusals,
    bind: &'a Bind,
    answered: bool,
}

impl UnderWay<'_> {
    fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let Self {
            refusals,
            bind,
            answered,
        } = self;
        let Known { refused, interrupted } = &mut *refusals.known();
        let before = interrupted.iter().position(|known| known.bind == **bind);
        let before = before.map(|before| interrupted.swap_remove(before));
        if *answered {
            return;
        }
        let pause = before.map_or(INTERRUPTED.0, |before| (before.pause * 2).min(INTERRUPTED.1));
        interrupted.push(Interrupted {
            bind: bind.clone(),
            pause,
            due: time::Instant::now() + pause,
        });
        if let Some(refused) = refused.iter_mut().find(|refused| refused.bind == **bind) {
            refused.pause_from(Instant::now());
        }
    }
}

impl Refusals {
    /// Binds, unless that was refused and is not due yet: then the refusal is what is found.
    ///
    /// # Errors
    /// When the directory cannot be used.
    pub async fn check(&self, bind: &Bind, destinations: &Destinations) -> Result<(), Error> {
        if let Some(error) = self.held(bind, Instant::now()) {
            return Err(error);
        }
        let under_way = self.begin(bind).await;
        let found = bind.check(destinations).await;
        under_way.answered();
        self.record(bind, &found, Instant::now());
        found
    }

    /// One that was interrupted waits: whoever changes a spec again and again has it bind no more often.
    async fn begin<'a>(&'a self, bind: &'a Bind) -> UnderWay<'a> {
        let due = {
            let known = self.known();
            let interrupted = known
                .interrupted
                .iter()
                .find(|interrupted| interrupted.bind == *bind);
            interrupted.map(|interrupted| interrupted.due)
        };
        if let Some(due) = due {
            time::sleep_until(due).await;
        }
        UnderWay {
            refusals: self,
            bind,
            answered: false,
        }
    }

    /// Forgets all but these.
    pub(super) fn keep(&self, binds: &[Bind]) {
        let Known { refused, interrupted } = &mut *self.known();
        refused.retain(|refused| binds.contains(&refused.bind));
        interrupted.retain(|interrupted| binds.contains(&interrupted.bind));
    }

    /// The refusal of a bind that is not to be tried now.
    fn held(&self, bind: &Bind, now: Instant) -> Option<Error> {
        let known = self.known();
        let held = known.refused.iter().find(|refused| refused.bind == *bind)?;
        (now < held.due).then(|| held.error.clone())
    }

    fn record(&self, bind: &Bind, found: &Result<(), Error>, now: Instant) {
        let all = &mut self.known().refused;
        let before = all.iter().position(|refused| refused.bind == *bind);
        match found {
            Ok(()) => {
                before.map(|before| all.swap_remove(before));
            }
            // Nobody has checked the account. But of one that was refused before that is not certain: directories answer refusals late, or
            // not at all, after some of them.
            Err(Error::Unreachable { .. }) => {
                if let Some(refused) = before.and_then(|before| all.get_mut(before)) {
                    refused.pause_from(now);
                }
            }
            Err(error @ Error::Refused { .. }) => {
                let before = before.map(|before| all.swap_remove(before));
                let mut refused = Refused {
                    bind: bind.clone(),
                    error: error.clone(),
                    pause: before.map_or(PAUSE, |before| before.pause),
                    due: now,
                };
                refused.pause_from(now);
                all.push(refused);
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often an account binds in a time, if every bind has this result.
    fn binds(refusals: &Refusals, bind: &Bind, found: &Result<(), Error>, lasting: Duration) -> u32 {
        let began = Instant::now();
        let mut count = 0;
        let mut passed = Duration::ZERO;
        while passed < lasting {
            if refusals.held(bind, began + passed).is_none() {
                refusals.record(bind, found, began + passed);
                count += 1;
            }
            passed += PAUSE;
        }
        count
    }

    fn refused() -> Result<(), Error> {
        Err(Error::Refused {
            address: "ldap:636".to_owned(),
            account: "cn=search".to_owned(),
            reason: "invalid credentials".to_owned(),
        })
    }

    #[test]
    fn a_refused_account_binds_in_growing_pauses() {
        let refusals = Refusals::default();
        let bind = Bind::with_password("wrong");
        let hour = Duration::from_hours(1);
        // After 0, 20, 60, 140, 300 and 620 s, then every 10 minutes; without pauses 360 times.
        assert_eq!(binds(&refusals, &bind, &refused(), hour), 10);
        // Each for itself: another password is tried at once.
        let changed = Bind::with_password("right");
        assert!(refusals.held(&changed, Instant::now()).is_none());
        assert!(refusals.held(&bind, Instant::now()).is_some());
        refusals.keep(std::slice::from_ref(&changed));
        assert!(refusals.held(&bind, Instant::now()).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_interrupted_bind_waits_before_the_next() {
        let (refusals, bind) = (Refusals::default(), Bind::with_password("right"));
        let waits = async || {
            let begun = time::Instant::now();
            let under_way = refusals.begin(&bind).await;
            (begun.elapsed().as_secs(), under_way)
        };
        for expected in [0, 5, 10, 15, 15] {
            let (waited, under_way) = waits().await;
            assert_eq!(waited, expected);
            drop(under_way);
        }
        // Another one does not.
        let begun = time::Instant::now();
        drop(refusals.begin(&Bind::with_password("changed")).await);
        assert_eq!(begun.elapsed(), Duration::ZERO);
        waits().await.1.answered();
        assert_eq!(waits().await.0, 0);

        // One that was refused before may have been refused again.
        refusals.record(&bind, &refused(), Instant::now());
        let due = Instant::now() + PAUSE * 3;
        assert!(refusals.held(&bind, due).is_none());
        drop(waits().await.1);
        assert!(refusals.held(&bind, due).is_some());
    }

    fn unreachable() -> Result<(), Error> {
        Err(Error::Unreachable {
            address: "ldap:636".to_owned(),
            reason: "no answer within 5 s".to_owned(),
        })
    }

    #[test]
    fn a_refusal_that_comes_too_late_makes_pauses_too() {
        let refusals = Refusals::default();
        let bind = Bind::with_password("wrong");
        refusals.record(&bind, &refused(), Instant::now());
        // After 20, 60, 140, 300 and 620 s, and then every 10 minutes.
        assert_eq!(
            binds(&refusals, &bind, &unreachable(), Duration::from_hours(1)),
            9
        );
    }

    #[test]
    fn nothing_but_a_refusal_makes_pauses() {
        let refusals = Refusals::default();
        let bind = Bind::with_password("right");
        let minute = Duration::from_mins(1);
        for found in [Ok(()), unreachable()] {
            assert_eq!(binds(&refusals, &bind, &found, minute), 6, "{found:?}");
        }
        // An account that is accepted again begins anew.
        refusals.record(&bind, &refused(), Instant::now());
        refusals.record(&bind, &Ok(()), Instant::now());
        refusals.record(&bind, &refused(), Instant::now());
        assert!(refusals.held(&bind, Instant::now() + PAUSE * 2).is_none());
    }

    #[test]
    fn a_directory_that_fails_itself_is_asked_again_soon() {
        let bind = Bind::with_password("right");
        let minute = Duration::from_mins(1);
        // By RFC 4511: operationsError, timeLimitExceeded, busy, unavailable, other.
        for (code, expected) in [
            (1, 6),
            (3, 6),
            (51, 6),
            (52, 6),
            (80, 6),
            (49, 2),
            (48, 2),
            (53, 2),
        ] {
            let found = bind.judged("cn=search".to_owned(), code);
            let refusals = Refusals::default();
            assert_eq!(binds(&refusals, &bind, &found, minute), expected, "{found:?}");
        }
    }
}
