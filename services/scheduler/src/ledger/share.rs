//! How much of the ledger's queue one site may fill: so many bytes that are staged and not durable yet. Whoever changes a site that
//! has its share waits until some of it is durable; other sites do not wait for that.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::{Mutex, MutexGuard, Notify};

/// Bytes that one site may have staged. What is staged at the same moment by other threads may come on top.
pub(super) const SHARE: usize = 8 << 20;

/// The share of one site. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Share(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    staged: AtomicUsize,
    /// Something of it is durable.
    freed: Notify,
    /// Who may stage next: one after the other.
    turn: Mutex<()>,
}

/// Bytes that are staged, until this is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    share: Share,
    bytes: usize,
}

impl Share {
    /// The turn of who waits longest.
    pub(super) async fn in_order(&self) -> MutexGuard<'_, ()> {
        self.0.turn.lock().await
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.staged.load(Ordering::Acquire) >= SHARE
    }

    /// Waits until something of it is durable. Only who has the turn waits.
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
        } = &*self.share.0;
        staged.fetch_sub(self.bytes, Ordering::AcqRel);
        freed.notify_one();
    }
}
