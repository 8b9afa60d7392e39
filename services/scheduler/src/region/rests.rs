//! Some computations cannot be interrupted, such as a plan for a large site: short computations of other callers wait until it ends. So its caller
//! rests for as long as it computed before it gets its next copy of a site, and the thread is free for other callers. A caller that rests keeps no
//! copy.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

use super::turns::{Place, Turns};
use crate::ledger::commit::Stopped;

/// A computation that takes longer is followed by a rest.
const LONG: Duration = Duration::from_millis(100);
/// The longest rest.
const REST: Duration = Duration::from_secs(10);

/// Callers who have computed for long, and until when they rest. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Rests(Arc<Mutex<HashMap<String, Instant>>>);

impl Rests {
    /// Records that the caller has computed for `time` without a pause.
    pub(super) fn took(&self, caller: &str, time: Duration) {
        if time > LONG {
            let until = Instant::now() + time.min(REST);
            let mut resting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let own = resting.entry(caller.to_owned()).or_insert(until);
            *own = until.max(*own);
        }
    }

    /// Until when the caller rests; `None`: it does not.
    fn until(&self, caller: &str) -> Option<Instant> {
        let now = Instant::now();
        let mut resting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        resting.retain(|_, until| *until > now);
        resting.get(caller).copied()
    }

    /// The caller's place among those that keep copies, when it comes and the caller has rested.
    pub(super) async fn place(&self, copies: &Turns, caller: &str) -> Result<Place, Stopped> {
        loop {
            let place = copies.take(caller).await?;
            let Some(until) = self.until(caller) else {
                return Ok(place);
            };
            // Other callers may use the place during the rest.
            drop(place);
            sleep_until(until).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_rests_keeps_no_place_of_others() {
        let (copies, rests) = (Turns::new(1, 1), Rests::default());
        let place = rests.place(&copies, "one").await.unwrap();
        let mut next = Box::pin(rests.place(&copies, "one"));
        assert!((&mut next).now_or_never().is_none());
        rests.took("one", LONG * 5);
        drop(place);
        assert!((&mut next).now_or_never().is_none());
        let begun = Instant::now();
        drop(rests.place(&copies, "two").await.unwrap());
        assert_eq!(Instant::now(), begun);
        drop(next.await.unwrap());
        assert!(Instant::now() >= begun + LONG * 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rest_is_as_long_as_what_took_longest() {
        let rests = Rests::default();
        let now = Instant::now();
        rests.took("short", LONG);
        assert_eq!(rests.until("short"), None);
        rests.took("long", LONG * 20);
        rests.took("long", LONG * 2);
        assert_eq!(rests.until("long"), Some(now + LONG * 20));
        rests.took("longest", REST * 2);
        assert_eq!(rests.until("longest"), Some(now + REST));
        tokio::time::advance(REST).await;
        assert_eq!(rests.until("long"), None);
        assert!(rests.0.lock().unwrap().is_empty());
    }
}
