//! Group commit: many decisions, one sync.
//!
//! A decision is made under its site's lock and *staged* there, which numbers it and queues it in the same
//! breath; one thread takes all that is queued, stores it as one batch, and then says up to which number all
//! is durable. Whoever answers waits for the number of what it says. So the order of numbers, of the queue
//! and of the decisions is one and the same, no lock is held while the disk works, and a slow disk makes
//! batches larger instead of queues longer.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    Change, Contents, Error, Ledger, Position,
    waiting::{Telling, Waiting, waiting},
};

/// Changes that may wait for the disk; more callers wait for a place before they decide.
pub const QUEUE: usize = 1024;
/// Changes in one batch.
const BATCH: usize = 512;

/// The ledger no longer takes changes: its term is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ledger has stopped; whether what was asked for is done is not known, so ask again")]
pub struct Stopped;

/// A handle to stage changes and to wait for them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Committer {
    sender: mpsc::Sender<Change>,
    staged: Arc<Mutex<Position>>,
    durable: watch::Receiver<Position>,
    waiting: Waiting,
    ending: CancellationToken,
    largest: Option<usize>,
}

/// A reserved place in the queue: with it, staging cannot fail or wait.
#[derive(Debug)]
pub struct Permit {
    place: mpsc::OwnedPermit<Change>,
    staged: Arc<Mutex<Position>>,
    largest: Option<usize>,
}

/// The thread's side.
#[derive(Debug)]
pub struct Writer {
    receiver: mpsc::Receiver<Change>,
    durable: watch::Sender<Position>,
    telling: Telling,
    _ending: DropGuard,
}

/// Makes both sides, for a ledger that stands at `position`.
#[must_use]
pub fn committer(position: Position) -> (Committer, Writer) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let (durable, seen) = watch::channel(position);
    let (waiting, telling) = waiting(position);
    let ending = CancellationToken::new();
    (
        Committer {
            sender,
            staged: Arc::new(Mutex::new(position)),
            durable: seen,
            waiting,
            ending: ending.clone(),
            largest: None,
        },
        Writer {
            receiver,
            durable,
            telling,
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
        let place = self.sender.clone().reserve_owned().await.map_err(|_| Stopped)?;
        Ok(Permit {
            place,
            staged: Arc::clone(&self.staged),
            largest: self.largest,
        })
    }

    /// Takes a place in the queue if one is free at once.
    ///
    /// # Errors
    /// [`Stopped`] when the writer has ended; `Ok(None)` when the queue is full.
    pub fn try_reserve(&self) -> Result<Option<Permit>, Stopped> {
        match self.sender.clone().try_reserve_owned() {
            Ok(place) => Ok(Some(Permit {
                place,
                staged: Arc::clone(&self.staged),
                largest: self.largest,
            })),
            Err(mpsc::error::TrySendError::Full(_)) => Ok(None),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(Stopped),
        }
    }

    /// Waits until all up to `revision` is durable.
    ///
    /// # Errors
    /// [`Stopped`] when the writer has ended before.
    pub async fn durable(&self, revision: u64) -> Result<Position, Stopped> {
        let told = self.waiting.until(revision);
        if self.sender.is_closed() && self.durable.borrow().revision < revision {
            return Err(Stopped);
        }
        told.await.map_err(|_| Stopped)
    }

    /// Where the durable history stands, and how to be told of its growth.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Position> {
        self.durable.clone()
    }

    /// Cancelled when the term ends, or is about to: streams end then, since what they tell would never change again.
    #[must_use]
    pub fn ending(&self) -> &CancellationToken {
        &self.ending
    }

    /// Where the history stands with everything that is staged, durable or not.
    #[must_use]
    pub fn staged(&self) -> Position {
        *self.staged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    /// The most bytes that a change may need, by its [`weight`](super::weight); `None` where there is no such limit.
    #[must_use]
    pub fn largest(&self) -> Option<usize> {
        self.largest
    }

    /// Number of the last change that is staged. Who looks at what is staged and changes nothing may tell of it when
    /// this is durable.
    #[must_use]
    pub fn reached(&self) -> u64 {
        self.staged
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .revision
    }

    /// Numbers a change and queues it. Call it while holding the lock under which it was decided.
    pub fn stage(self, change: impl FnOnce(Position) -> Change) -> u64 {
        let mut staged = self.staged.lock().unwrap_or_else(PoisonError::into_inner);
        let change = change(Position {
            revision: staged.revision + 1,
            ..*staged
        });
        // A new epoch may begin at a higher number: it must be above all that a site has seen.
        let revision = change.revision().max(staged.revision + 1);
        *staged = Position {
            revision,
            ..change.position(*staged)
        };
        self.place.send(change);
        revision
    }
}

impl Writer {
    /// Stores what is queued until every [`Committer`] is gone. Blocks: it wants a thread of its own.
    ///
    /// # Errors
    /// When the ledger fails. What was not stored is lost, none of it was answered, and the process must
    /// start anew from what is on disk.
    pub fn run(mut self, ledger: &dyn Ledger) -> Result<(), Error> {
        let mut batch = Vec::with_capacity(BATCH);
        while self.receiver.blocking_recv_many(&mut batch, BATCH) > 0 {
            self.store(ledger, &mut batch)?;
        }
        Ok(())
    }

    /// The same in the caller's task, which the ledger's work blocks: for tests in which one thread does everything,
    /// in an order that can be repeated. `disk` is what each batch takes before it is stored.
    ///
    /// # Errors
    /// As [`Writer::run`].
    pub async fn run_here(mut self, ledger: &dyn Ledger, mut disk: impl AsyncFnMut()) -> Result<(), Error> {
        let mut batch = Vec::with_capacity(BATCH);
        while self.receiver.recv_many(&mut batch, BATCH).await > 0 {
            disk().await;
            self.store(ledger, &mut batch)?;
        }
        Ok(())
    }

    /// As [`Writer::run`], until `stop` is cancelled at the latest; `durable` is kept as what the ledger holds for sure,
    /// whether or not it can still be read.
    ///
    /// # Errors
    /// As [`Writer::run`].
    pub fn run_until(
        mut self,
        ledger: &dyn Ledger,
        stop: &CancellationToken,
        durable: &mut Contents,
    ) -> Result<(), Error> {
        let runtime = tokio::runtime::Handle::current();
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let next = stop.run_until_cancelled(self.receiver.recv_many(&mut batch, BATCH));
            match runtime.block_on(next) {
                None | Some(0) => return Ok(()),
                Some(_) => ledger.commit(&batch)?,
            }
            self.tell(&batch);
            for change in batch.drain(..) {
                durable.apply(change);
            }
        }
    }

    /// Takes no changes any more: what is durable is told as before, and nothing can be staged.
    pub fn close(&mut self) {
        self.receiver.close();
    }

    fn store(&self, ledger: &dyn Ledger, batch: &mut Vec<Change>) -> Result<(), Error> {
        ledger.commit(batch)?;
        self.tell(batch);
        batch.clear();
        Ok(())
    }

    /// Tells that this is durable, before anything else is done with it: callers wait.
    fn tell(&self, batch: &[Change]) {
        let before = *self.durable.borrow();
        let durable = batch
            .iter()
            .fold(before, |position, change| change.position(position));
        self.durable.send_replace(durable);
        self.telling.tell(durable);
    }
}
