//! A reserved place in the ledger's queue, and the change that takes it.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, watch};

use super::{
    CallChanges, Change, Commit, TooLarge,
    share::{ActiveChange, Charge, Share},
    weight,
};

/// A change in the queue.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) change: Change,
    pub(super) bytes: usize,
    pub(super) charge: Option<Charge>,
}

/// A reserved place in the queue: with it, staging cannot fail or wait.
#[derive(Debug)]
pub struct Permit {
    place: mpsc::OwnedPermit<Staged>,
    /// The site's share of the queue, which the bytes of the change count against; `None`: no share limits it.
    share: Option<Share>,
    /// Counts as one of the site's reserved places until the change is staged.
    _under_way: Option<ActiveChange>,
    staged: Arc<Mutex<Commit>>,
    durable: watch::Receiver<Commit>,
    largest: Option<usize>,
    /// What the call has staged for which the place is reserved; `None`: no call has requested the change.
    changes: Option<CallChanges>,
}

impl Permit {
    /// A place that no share limits, for a change that no call has requested.
    pub(super) fn new(
        place: mpsc::OwnedPermit<Staged>,
        staged: Arc<Mutex<Commit>>,
        durable: watch::Receiver<Commit>,
        largest: Option<usize>,
    ) -> Self {
        Self {
            place,
            share: None,
            _under_way: None,
            staged,
            durable,
            largest,
            changes: None,
        }
    }

    /// The same within a site's share.
    pub(super) fn with_share(self, share: Share, under_way: ActiveChange) -> Self {
        Self {
            share: Some(share),
            _under_way: Some(under_way),
            ..self
        }
    }

    /// The same for a change that counts as one of this call.
    #[must_use]
    pub fn counted(self, changes: Option<CallChanges>) -> Self {
        Self { changes, ..self }
    }

    /// The most bytes that a change may need, by its [`weight`](super::weight); `None` where there is no such limit.
    #[must_use]
    pub fn largest(&self) -> Option<usize> {
        self.largest
    }

    /// The last staged commit. A caller that reads staged state without changing it may answer when this commit is durable.
    #[must_use]
    pub fn reached(&self) -> Commit {
        *self.staged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last commit that is durable.
    #[must_use]
    pub fn durable(&self) -> Commit {
        *self.durable.borrow()
    }

    /// Numbers a change and queues it. Call it while holding the lock under which it was decided.
    ///
    /// # Errors
    /// [`TooLarge`] when the ledger does not take a change of this size: it is not queued and has used no number.
    pub fn stage(self, change: impl FnOnce(Commit) -> Change) -> Result<Commit, TooLarge> {
        let mut staged = self.staged.lock().unwrap_or_else(PoisonError::into_inner);
        let commit = staged.next();
        let change = change(commit);
        weight::require_change(&change, self.largest)?;
        *staged = commit;
        if let Some(changes) = &self.changes {
            changes.add(&change);
        }
        let bytes = weight::change(&change);
        self.place.send(Staged {
            change,
            bytes,
            charge: self.share.map(|share| share.charge(bytes)),
        });
        Ok(commit)
    }
}
