//! Who waits for a commit to become durable.
//!
//! Each waiter is woken once, when its own commit is durable: with hundreds of callers most of a commit's wake-ups would
//! otherwise be of those who have to wait on.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

use super::Commit;

/// Receives a commit when the awaited one is durable.
pub(super) type Waiter = oneshot::Receiver<Commit>;

/// The waiters' side. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Waiting(Arc<Mutex<State>>);

/// The writer's side. When it is dropped, every waiter ends with an error.
#[derive(Debug)]
pub(super) struct Notifier(Waiting);

#[derive(Debug)]
struct State {
    durable: Commit,
    /// By the commit that they wait for.
    waiters: BTreeMap<Commit, Vec<oneshot::Sender<Commit>>>,
    ended: bool,
}

/// Both sides, of a history that is durable up to here.
pub(super) fn waiting(durable: Commit) -> (Waiting, Notifier) {
    let waiting = Waiting(Arc::new(Mutex::new(State {
        durable,
        waiters: BTreeMap::new(),
        ended: false,
    })));
    (waiting.clone(), Notifier(waiting))
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A receiver that gets a message when `commit` is durable, and an error if the writer ends before that.
    pub(super) fn waiter(&self, commit: Commit) -> Waiter {
        let (sender, waiter) = oneshot::channel();
        let mut state = self.lock();
        if state.durable >= commit {
            // The receiver is still in this function, so sending succeeds.
            let _ = sender.send(state.durable);
        } else if !state.ended {
            let waiters = state.waiters.entry(commit).or_default();
            // Before it grows: so those who have gone are never more than those who wait.
            if waiters.len() == waiters.capacity() {
                waiters.retain(|waiter| !waiter.is_closed());
            }
            waiters.push(sender);
        }
        waiter
    }
}

impl Notifier {
    /// Wakes all waiters for commits up to `durable`.
    pub(super) fn notify(&self, durable: Commit) {
        let waiter = {
            let mut state = self.0.lock();
            state.durable = durable;
            let later = state.waiters.split_off(&durable.next());
            std::mem::replace(&mut state.waiters, later)
        };
        for waiter in waiter.into_values().flatten() {
            // Sending fails if the waiter has given up.
            let _ = waiter.send(durable);
        }
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.ended = true;
        state.waiters.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: u64) -> Commit {
        Commit::new(number)
    }

    #[test]
    fn each_waiter_resumes_once_its_revision_is_durable() {
        let (waiting, notifier) = waiting(at(3));
        assert_eq!(
            waiting.waiter(at(3)).blocking_recv(),
            Ok(at(3)),
            "it is durable already"
        );
        let (mut four, mut six) = (waiting.waiter(at(4)), waiting.waiter(at(6)));
        notifier.notify(at(5));
        assert_eq!(four.try_recv(), Ok(at(5)));
        assert_eq!(six.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        notifier.notify(at(6));
        assert_eq!(six.try_recv(), Ok(at(6)));
    }

    #[test]
    fn waiters_see_the_end_of_the_writer() {
        let (waiting, notifier) = waiting(at(3));
        let five = waiting.waiter(at(5));
        drop(notifier);
        assert!(five.blocking_recv().is_err());
        assert!(waiting.waiter(at(5)).blocking_recv().is_err());
        assert_eq!(
            waiting.waiter(at(2)).blocking_recv(),
            Ok(at(3)),
            "this one is durable"
        );
    }

    #[test]
    fn waiters_who_have_gone_are_forgotten() {
        let (waiting, _telling) = waiting(at(3));
        let stays = waiting.waiter(at(4));
        for _ in 0..10_000 {
            drop(waiting.waiter(at(4)));
        }
        let kept: usize = waiting.lock().waiters.values().map(Vec::len).sum();
        assert!(kept < 16, "{kept} are kept");
        drop(stays);
    }
}
