//! Limits how often the hosts of a site are copied for questions, because changes of the site wait during a copy.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

/// Length of the pause after a copy, as a multiple of its duration, so that changes can use the site most of the time.
const REST_FACTOR: u32 = 4;

/// When the hosts of a site may be copied next.
#[derive(Debug, Default)]
pub(super) struct Copies(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    next: Option<Instant>,
    /// Duration of the last copy.
    took: Duration,
}

impl Copies {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the last copy was made long enough ago for another one, which [`reserve`](Self::reserve) may still refuse.
    pub(super) async fn rested(&self) {
        loop {
            let now = Instant::now();
            let Some(next) = self.lock().next.filter(|next| *next > now) else {
                return;
            };
            sleep_until(next).await;
        }
    }

    /// Reserves time for a copy and the pause after it, as if it took as long as the last one. `false`: it is too early for a copy.
    pub(super) fn reserve(&self) -> bool {
        let mut state = self.lock();
        let now = Instant::now();
        if state.next.is_some_and(|next| next > now) {
            return false;
        }
        state.next = Some(now + state.took * (REST_FACTOR + 1));
        true
    }

    /// Records that a copy was made, and how long it took.
    pub(super) fn made(&self, took: Duration) {
        let mut state = self.lock();
        state.took = took;
        let rested = Instant::now() + took * REST_FACTOR;
        state.next = state.next.max(Some(rested));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits until a copy may be made, and reserves it.
    async fn due(copies: &Copies) {
        loop {
            copies.rested().await;
            if copies.reserve() {
                return;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn copies_leave_most_of_the_time_to_changes() {
        const COPIES: u32 = 20;
        let copies = Copies::default();
        let (begun, took) = (Instant::now(), Duration::from_millis(10));
        for _ in 0..COPIES {
            due(&copies).await;
            tokio::time::sleep(took).await;
            copies.made(took);
        }
        let all = begun.elapsed();
        assert!(all >= (COPIES - 1) * took * 5, "{all:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_at_once_copies_one_after_the_other() {
        let copies = Copies::default();
        copies.made(Duration::from_millis(10));
        let begun = Instant::now();
        tokio::join!(due(&copies), due(&copies), due(&copies));
        let all = begun.elapsed();
        assert!(all >= Duration::from_millis(40 + 2 * 50), "{all:?}");
    }
}
