//! Who waits for a revision to become durable.
//!
//! Each waiter is woken once, when its own revision is durable: with hundreds of callers most of a commit's wake-ups would
//! otherwise be of those who have to wait on.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

use super::Position;

/// Where a waiter is told.
pub(super) type Told = oneshot::Receiver<Position>;

/// The waiters' side. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Waiting(Arc<Mutex<State>>);

/// The writer's side: when it is gone, nobody is told any more, and all who wait see that.
#[derive(Debug)]
pub(super) struct Telling(Waiting);

#[derive(Debug)]
struct State {
    durable: Position,
    /// By the revision that they wait for. Each is durable soon or never, so who has given up stays for no longer.
    waiters: BTreeMap<u64, Vec<oneshot::Sender<Position>>>,
    ended: bool,
}

/// Both sides, of a history that is durable up to here.
pub(super) fn waiting(durable: Position) -> (Waiting, Telling) {
    let waiting = Waiting(Arc::new(Mutex::new(State {
        durable,
        waiters: BTreeMap::new(),
        ended: false,
    })));
    (waiting.clone(), Telling(waiting))
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is told when `revision` is durable; not at all once the writer has ended.
    pub(super) fn until(&self, revision: u64) -> Told {
        let (sender, told) = oneshot::channel();
        let mut state = self.lock();
        if state.durable.revision >= revision {
            // The receiver is here: it cannot be gone.
            let _ = sender.send(state.durable);
        } else if !state.ended {
            state.waiters.entry(revision).or_default().push(sender);
        }
        told
    }
}

impl Telling {
    /// All up to `durable` is durable.
    pub(super) fn tell(&self, durable: Position) {
        let told = {
            let mut state = self.0.lock();
            state.durable = durable;
            let later = state.waiters.split_off(&durable.revision.saturating_add(1));
            std::mem::replace(&mut state.waiters, later)
        };
        for waiter in told.into_values().flatten() {
            // Whoever has given up is not told.
            let _ = waiter.send(durable);
        }
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.ended = true;
        state.waiters.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(revision: u64) -> Position {
        Position { epoch: 1, revision }
    }

    #[test]
    fn each_waiter_is_told_when_its_own_revision_is_durable_and_not_before() {
        let (waiting, telling) = waiting(at(3));
        assert_eq!(
            waiting.until(3).blocking_recv(),
            Ok(at(3)),
            "it is durable already"
        );
        let (mut four, mut six) = (waiting.until(4), waiting.until(6));
        telling.tell(at(5));
        assert_eq!(four.try_recv(), Ok(at(5)));
        assert_eq!(six.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        telling.tell(at(6));
        assert_eq!(six.try_recv(), Ok(at(6)));
    }

    #[test]
    fn who_waits_sees_the_end_of_the_writer_and_so_does_who_comes_later() {
        let (waiting, telling) = waiting(at(3));
        let five = waiting.until(5);
        drop(telling);
        assert!(five.blocking_recv().is_err());
        assert!(waiting.until(5).blocking_recv().is_err());
        assert_eq!(waiting.until(2).blocking_recv(), Ok(at(3)), "this one is durable");
    }
}
