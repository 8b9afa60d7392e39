//! What a server does about a peer that exceeds its limits: it reads what comes by that connection later, or ends the connection.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Of one connection. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Brake(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// Nothing is read before this.
    until: Mutex<Option<Instant>>,
    over: CancellationToken,
}

impl Brake {
    /// Nothing is read before this time.
    pub(super) fn pause(&self, until: Instant) {
        let mut own = self.0.until.lock().unwrap_or_else(PoisonError::into_inner);
        *own = (*own).max(Some(until));
    }

    /// Until when nothing is read; `None` when something may be.
    pub(super) fn paused(&self) -> Option<Instant> {
        let mut own = self.0.until.lock().unwrap_or_else(PoisonError::into_inner);
        *own = own.filter(|until| *until > Instant::now());
        *own
    }

    pub(super) fn close(&self) {
        self.0.over.cancel();
    }

    /// Is done once the connection is closed.
    pub(super) fn closed(&self) -> WaitForCancellationFutureOwned {
        self.0.over.clone().cancelled_owned()
    }
}
