//! Group commit: many decisions, one sync.
//!
//! A decision is made under its site's lock and *staged* under the same lock, which gives it a number and queues it. One thread takes all queued
//! changes, stores them as one batch, and then announces the number up to which all changes are durable. A call answers only when the number of its
//! change is durable. So numbers, queue and decisions have the same order, no lock is held during a write to the disk, and a slow disk makes
//! batches larger, not queues longer.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use super::permit::Permit;
use super::{
    Change, Commit, Contents, Error, Ledger, StageMetrics,
    permit::Staged,
    refusal::{Refusal, substitute},
    share::{Charge, MAX_STAGED_BYTES, Share},
    waiting::{Notifier, Waiting, waiting},
};

/// Maximum number of changes that wait for the disk. Further callers wait for a place before they decide.
pub const MAX_QUEUED_CHANGES: usize = 1024;
/// Maximum number of changes in one batch.
const MAX_BATCH_CHANGES: usize = 512;
/// Size of one batch, in bytes, but for its last change: one site's share at most twice.
const MAX_BATCH_BYTES: usize = 2 * MAX_STAGED_BYTES;

/// The ledger no longer takes changes: its term is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ledger has stopped; the change may or may not be done, so retry")]
pub struct Stopped;

/// A handle to stage changes and to wait for them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Committer {
    sender: mpsc::Sender<Staged>,
    staged: Arc<Mutex<Commit>>,
    durable: watch::Receiver<Commit>,
    waiting: Waiting,
    ending: CancellationToken,
    largest: Option<usize>,
    metrics: StageMetrics,
}

/// The side of the thread that stores changes.
#[derive(Debug)]
pub struct Writer {
    receiver: mpsc::Receiver<Staged>,
    durable: watch::Sender<Commit>,
    notifier: Notifier,
    /// Sites with a refused change, each with the last commit that may rest on that change.
    cut: BTreeMap<String, Commit>,
    metrics: StageMetrics,
    _ending: DropGuard,
}

/// Changes that are taken from the queue, and stored, together.
#[derive(Debug, Default)]
pub struct Batch {
    changes: Vec<Change>,
    bytes: usize,
    /// Counts the bytes of the changes against their sites' shares until all changes are durable or refused.
    charges: Vec<Charge>,
}

impl Batch {
    fn push(&mut self, staged: Staged) {
        let Staged {
            change,
            bytes,
            charge,
        } = staged;
        self.changes.push(change);
        self.bytes += bytes;
        self.charges.extend(charge);
    }
}

/// Makes both sides, for a ledger whose last commit is `last`.
#[must_use]
pub fn committer(last: Commit) -> (Committer, Writer) {
    measured(last, StageMetrics::default())
}

/// The same, with metrics.
#[must_use]
pub fn measured(last: Commit, metrics: StageMetrics) -> (Committer, Writer) {
    let (sender, receiver) = mpsc::channel(MAX_QUEUED_CHANGES);
    let (durable, seen) = watch::channel(last);
    let (waiting, notifier) = waiting(last);
    let ending = CancellationToken::new();
    (
        Committer {
            sender,
            staged: Arc::new(Mutex::new(last)),
            durable: seen,
            waiting,
            ending: ending.clone(),
            largest: None,
            metrics: metrics.clone(),
        },
        Writer {
            receiver,
            durable,
            notifier,
            cut: BTreeMap::new(),
            metrics,
            _ending: ending.drop_guard(),
        },
    )
}

impl Committer {
    /// The same, for a ledger that takes changes of so many bytes at most.
    #[must_use]
    pub fn taking(self, largest: Option<usize>) -> Self {
        Self { largest, ..self }
    }

    /// Waits for a place in the queue.
    ///
    /// # Errors
    /// [`Stopped`] when the writer has ended.
    pub async fn reserve(&self) -> Result<Permit, Stopped> {
        let begun = Instant::now();
        let place = self.sender.clone().reserve_owned().await.map_err(|_| Stopped)?;
        self.metrics.queued(begun);
        let staged = Arc::clone(&self.staged);
        Ok(Permit::new(place, staged, self.durable.clone(), self.largest))
    }

    /// Waits for a place in the queue within a site's share. Of each site a few changes at most have a place and are not staged: so
    /// many may be staged beyond its share, and so many places wait for its lock, however many callers change it.
    ///
    /// # Errors
    /// [`Stopped`] when the writer has ended.
    pub async fn reserve_within(&self, share: &Share) -> Result<Permit, Stopped> {
        let under_way = share.begin().await.ok_or(Stopped)?;
        let _in_order = share.lock_in_order().await;
        loop {
            if !share.is_full() {
                let permit = self.reserve().await?;
                if !share.is_full() {
                    return Ok(permit.with_share(share.clone(), under_way));
                }
            }
            tokio::select! {
                () = share.freed() => {}
                () = self.sender.closed() => return Err(Stopped),
            }
        }
    }

    /// Waits until all up to `commit` is durable.
    ///
    /// # Errors
    /// [`Stopped`] when the writer has ended before.
    pub async fn durable(&self, commit: Commit) -> Result<Commit, Stopped> {
        let told = self.waiting.waiter(commit);
        if self.sender.is_closed() && *self.durable.borrow() < commit {
            return Err(Stopped);
        }
        told.await.map_err(|_| Stopped)
    }

    /// The last durable commit, and how to learn of the next.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Commit> {
        self.durable.clone()
    }

    /// Metrics of the stages of changes.
    pub(crate) fn metrics(&self) -> &StageMetrics {
        &self.metrics
    }

    /// The last durable commit.
    #[must_use]
    pub fn last_durable(&self) -> Commit {
        *self.durable.borrow()
    }

    /// Cancelled when the term ends, or is about to: streams end then, since what they tell would never change again.
    #[must_use]
    pub fn ending(&self) -> &CancellationToken {
        &self.ending
    }

    /// The last commit that is staged, durable or not.
    #[must_use]
    pub fn staged(&self) -> Commit {
        *self.staged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer {
    /// Stores what is queued until every [`Committer`] is gone; `durable` is kept as what the ledger holds for sure, whether or
    /// not it can still be read. A change that the storage refuses is not made: `undo` resets its site to what is durable and
    /// returns the last commit that was staged by then; all other changes are stored.
    ///
    /// It waits only between batches. The ledger's work blocks its thread, and may drive the runtime: run it on a thread of its own,
    /// outside of every runtime.
    ///
    /// # Errors
    /// When the ledger fails. What was not stored is lost, none of it was answered, and the process must
    /// start anew from what is on disk.
    pub async fn run(
        mut self,
        ledger: &dyn Ledger,
        durable: &mut Contents,
        undo: &dyn Fn(&Refusal<'_>) -> Commit,
    ) -> Result<(), Error> {
        while let Some(batch) = self.receive().await {
            self.store(ledger, batch, durable, undo)?;
        }
        Ok(())
    }

    /// What is queued, as soon as there is anything. `None`: every [`Committer`] is gone, or the writer is closed.
    pub async fn receive(&mut self) -> Option<Batch> {
        let mut batch = Batch::default();
        batch.push(self.receiver.recv().await?);
        while batch.changes.len() < MAX_BATCH_CHANGES && batch.bytes < MAX_BATCH_BYTES {
            match self.receiver.try_recv() {
                Ok(staged) => batch.push(staged),
                Err(_) => break,
            }
        }
        Some(batch)
    }

    /// Stores a batch and announces that it is durable. See [`Writer::run`].
    ///
    /// # Errors
    /// As [`Writer::run`].
    pub fn store(
        &mut self,
        ledger: &dyn Ledger,
        batch: Batch,
        durable: &mut Contents,
        undo: &dyn Fn(&Refusal<'_>) -> Commit,
    ) -> Result<(), Error> {
        let Batch {
            changes: mut batch,
            bytes: _,
            charges: _charges,
        } = batch;
        self.replace_cut(&mut batch, durable);
        match self.commit(ledger, &batch) {
            Ok(()) => {
                self.accept(batch, durable);
                Ok(())
            }
            Err(Error::Refused { stored, cause: _ }) => {
                let rest = batch.split_off(stored.min(batch.len()));
                self.accept(batch, durable);
                self.store_divided(ledger, rest.into(), durable, undo)
            }
            Err(error) => Err(error),
        }
    }

    fn commit(&self, ledger: &dyn Ledger, batch: &[Change]) -> Result<(), Error> {
        let begun = Instant::now();
        let stored = ledger.commit(batch);
        self.metrics.stored(begun, batch.len());
        stored
    }

    /// Stores changes in smaller and smaller batches, until the ones that the storage refuses are found.
    fn store_divided(
        &mut self,
        ledger: &dyn Ledger,
        mut rest: VecDeque<Change>,
        durable: &mut Contents,
        undo: &dyn Fn(&Refusal<'_>) -> Commit,
    ) -> Result<(), Error> {
        let mut size = rest.len().div_ceil(2);
        while !rest.is_empty() {
            let mut part: Vec<Change> = rest.drain(..size.clamp(1, rest.len())).collect();
            self.replace_cut(&mut part, durable);
            match self.commit(ledger, &part) {
                Ok(()) => {
                    self.accept(part, durable);
                    size = size.saturating_mul(2);
                }
                Err(Error::Refused { stored, cause }) => {
                    let mut refused = part.split_off(stored.min(part.len()));
                    self.accept(part, durable);
                    size = refused.len().div_ceil(2);
                    if refused.len() == 1
                        && let Some(culprit) = refused.pop()
                    {
                        self.refuse(ledger, &culprit, &cause, durable, undo)?;
                    }
                    for change in refused.into_iter().rev() {
                        rest.push_front(change);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Resets the site of a refused change, and stores an entry that says so under the number of that change: every number is used.
    fn refuse(
        &mut self,
        ledger: &dyn Ledger,
        culprit: &Change,
        cause: &str,
        durable: &mut Contents,
        undo: &dyn Fn(&Refusal<'_>) -> Commit,
    ) -> Result<(), Error> {
        let instead = substitute(culprit, cause, durable);
        let refusal = Refusal {
            site: culprit.site(),
            commit: culprit.commit(),
            cause,
            durable,
        };
        tracing::error!(
            site = refusal.site,
            commit = refusal.commit.number(),
            cause,
            "the storage refuses a change"
        );
        // Before this commit is announced as durable: from then on no reader may find the refused change in memory.
        let upto = undo(&refusal);
        self.cut.insert(refusal.site.to_owned(), upto);
        self.commit(ledger, std::slice::from_ref(&instead))?;
        self.accept(vec![instead], durable);
        Ok(())
    }

    /// Replaces changes that rest on a refused change by entries that say so.
    fn replace_cut(&mut self, batch: &mut [Change], durable: &Contents) {
        for change in batch {
            let cut = self.cut.get(change.site());
            if cut.is_some_and(|upto| change.commit() <= *upto) {
                let cause = "it was decided on top of a change that the storage has refused";
                *change = substitute(change, cause, durable);
            }
        }
    }

    /// Announces that these changes are durable, and applies them to `durable`.
    fn accept(&mut self, stored: Vec<Change>, durable: &mut Contents) {
        let Some(last) = stored.last().map(Change::commit) else {
            return;
        };
        self.notify(&stored);
        for change in stored {
            durable.apply(change);
        }
        self.cut.retain(|_, upto| *upto > last);
    }

    /// Refuses further changes. Nothing can be staged from now on; what is durable can still be read.
    pub fn close(&mut self) {
        self.receiver.close();
    }

    /// Wakes the callers that wait for these changes. This is done first, before anything else happens with the batch.
    fn notify(&self, batch: &[Change]) {
        let Some(last) = batch.last() else { return };
        let durable = last.commit();
        self.durable.send_replace(durable);
        self.notifier.notify(durable);
    }
}

#[cfg(test)]
mod tests;
