//! Some computations cannot be interrupted, such as a plan for a large site: short computations of other callers wait until it ends. So its caller
//! pauses for as long as it computed before it gets its next copy of a site, and the thread is free for other callers. A caller that pauses keeps
//! no copy.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

use super::caller_permits::{CallerPermit, CallerPermits};
use crate::ledger::commit::Stopped;

/// Duration of a computation above which a pause follows it.
const COOLDOWN_THRESHOLD: Duration = Duration::from_millis(100);
/// Maximum length of that pause.
const MAX_COOLDOWN: Duration = Duration::from_secs(10);

/// Callers who have computed for long, and until when they pause. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Cooldowns(Arc<Mutex<HashMap<String, Instant>>>);

impl Cooldowns {
    /// Records that the caller has computed for `time` without a pause.
    pub(super) fn record(&self, caller: &str, time: Duration) {
        if time > COOLDOWN_THRESHOLD {
            let until = Instant::now() + time.min(MAX_COOLDOWN);
            let mut callers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let own = callers.entry(caller.to_owned()).or_insert(until);
            *own = until.max(*own);
        }
    }

    /// Until when the caller pauses; `None`: it does not.
    fn paused_until(&self, caller: &str) -> Option<Instant> {
        let now = Instant::now();
        let mut callers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        callers.retain(|_, until| *until > now);
        callers.get(caller).copied()
    }

    /// The caller's permit to keep a copy, when it comes and the caller's pause is over.
    pub(super) async fn permit(&self, copies: &CallerPermits, caller: &str) -> Result<CallerPermit, Stopped> {
        loop {
            let permit = copies.take(caller).await?;
            let Some(until) = self.paused_until(caller) else {
                return Ok(permit);
            };
            // Other callers may use the permit during the pause.
            drop(permit);
            sleep_until(until).await;
        }
    }

    /// The same permit if the caller need not wait for it.
    pub(super) fn try_permit(&self, copies: &CallerPermits, caller: &str) -> Option<CallerPermit> {
        if self.paused_until(caller).is_some() {
            return None;
        }
        copies.try_take(caller)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_pauses_keeps_no_permit_of_others() {
        let (copies, cooldowns) = (CallerPermits::new(1, 1), Cooldowns::default());
        let permit = cooldowns.permit(&copies, "one").await.unwrap();
        let mut next = Box::pin(cooldowns.permit(&copies, "one"));
        assert!((&mut next).now_or_never().is_none());
        cooldowns.record("one", COOLDOWN_THRESHOLD * 5);
        drop(permit);
        assert!((&mut next).now_or_never().is_none());
        let begun = Instant::now();
        drop(cooldowns.permit(&copies, "two").await.unwrap());
        assert_eq!(Instant::now(), begun);
        drop(next.await.unwrap());
        assert!(Instant::now() >= begun + COOLDOWN_THRESHOLD * 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_is_as_long_as_what_took_longest() {
        let cooldowns = Cooldowns::default();
        let now = Instant::now();
        cooldowns.record("short", COOLDOWN_THRESHOLD);
        assert_eq!(cooldowns.paused_until("short"), None);
        cooldowns.record("long", COOLDOWN_THRESHOLD * 20);
        cooldowns.record("long", COOLDOWN_THRESHOLD * 2);
        assert_eq!(
            cooldowns.paused_until("long"),
            Some(now + COOLDOWN_THRESHOLD * 20)
        );
        cooldowns.record("longest", MAX_COOLDOWN * 2);
        assert_eq!(cooldowns.paused_until("longest"), Some(now + MAX_COOLDOWN));
        tokio::time::advance(MAX_COOLDOWN).await;
        assert_eq!(cooldowns.paused_until("long"), None);
        assert!(cooldowns.0.lock().unwrap().is_empty());
    }
}
