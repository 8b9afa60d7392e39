//! How much of the ledger's queue one site may fill, in bytes that are staged and not durable yet. A caller that changes a site at its limit waits
//! until some of those bytes are durable; callers of other sites do not wait.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::{Mutex, MutexGuard, Notify, OwnedSemaphorePermit, Semaphore, watch};

/// Maximum number of bytes that one site may have staged. What other threads stage at the same moment may come on top.
pub(super) const MAX_STAGED_BYTES: usize = 8 << 20;

/// Maximum number of changes of one site that have a place in the queue and are not staged yet: they wait for the site's lock. The queue's
/// other places are for other sites.
const MAX_UNSTAGED_CHANGES: usize = 4;

/// The share of one site. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Share(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    staged: AtomicUsize,
    /// Notified when a change of the site has left the queue.
    freed: Notify,
    /// Held by the caller that may stage next; the others wait in order.
    turn: Mutex<()>,
    under_way: Arc<Semaphore>,
    /// Changes whenever a change of the site has left the queue, stored or refused.
    stored: watch::Sender<()>,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            staged: AtomicUsize::new(0),
            freed: Notify::new(),
            turn: Mutex::new(()),
            under_way: Arc::new(Semaphore::new(MAX_UNSTAGED_CHANGES)),
            stored: watch::Sender::new(()),
        }
    }
}

/// One of the changes of a site that are under way, until this is dropped.
#[derive(Debug)]
pub(super) struct ActiveChange {
    _permit: OwnedSemaphorePermit,
}

/// Bytes that are staged, until this is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    share: Share,
    bytes: usize,
}

impl Share {
    /// Waits until another change of the site may be under way: in the order in which they come. `None`: never again.
    pub(super) async fn begin(&self) -> Option<ActiveChange> {
        let permit = Arc::clone(&self.0.under_way).acquire_owned().await;
        permit.ok().map(|permit| ActiveChange { _permit: permit })
    }

    /// A receiver that changes whenever a change of the site becomes durable or is refused.
    pub(crate) fn stored(&self) -> watch::Receiver<()> {
        self.0.stored.subscribe()
    }

    /// Waits until this caller has waited longest, and keeps that turn until the guard is dropped.
    pub(super) async fn lock_in_order(&self) -> MutexGuard<'_, ()> {
        self.0.turn.lock().await
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.staged.load(Ordering::Acquire) >= MAX_STAGED_BYTES
    }

    /// Waits until a change of the site has left the queue. Only the holder of the turn may call this.
    pub(super) async fn freed(&self) {
        self.0.freed.notified().await;
    }

    pub(super) fn charge(&self, bytes: usize) -> Charge {
        self.0.staged.fetch_add(bytes, Ordering::AcqRel);
        Charge {
            share: self.clone(),
            bytes,
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let Inner {
            staged,
            freed,
            turn: _,
            under_way: _,
            stored,
        } = &*self.share.0;
        staged.fetch_sub(self.bytes, Ordering::AcqRel);
        freed.notify_one();
        stored.send_replace(());
    }
}
