//! What a server does about a peer that exceeds its limits: it reads what comes by that connection later, or ends the connection.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Nothing is read for so long at most: keepalive of the peer's would end the connection.
const LONGEST: Duration = Duration::from_secs(1);

/// Of one connection. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Brake(Arc<State>);

#[derive(Debug, Default)]
struct State {
    pause: Mutex<Option<Pause>>,
    over: CancellationToken,
}

/// While nothing is read.
#[derive(Debug, Clone, Copy)]
struct Pause {
    begun: Instant,
    until: Instant,
}

impl Brake {
    /// Nothing is read before this time, but something once in each [`LONGEST`].
    pub(super) fn pause(&self, until: Instant) {
        let now = Instant::now();
        let mut own = self.0.pause.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = own.get_or_insert(Pause {
            begun: now,
            until: now,
        });
        pause.until = pause.until.max(until).min(pause.begun + LONGEST);
    }

    /// Until when nothing is read; `None` when something may be.
    pub(super) fn paused(&self) -> Option<Instant> {
        let mut own = self.0.pause.lock().unwrap_or_else(PoisonError::into_inner);
        *own = own.filter(|pause| pause.until > Instant::now());
        own.map(|pause| pause.until)
    }

    /// Returns whether it was open until now.
    pub(super) fn close(&self) -> bool {
        // One who comes at the same time waits.
        let _alone = self.0.pause.lock().unwrap_or_else(PoisonError::into_inner);
        let was_open = !self.0.over.is_cancelled();
        self.0.over.cancel();
        was_open
    }

    /// Is done once the connection is closed.
    pub(super) fn closed(&self) -> WaitForCancellationFutureOwned {
        self.0.over.clone().cancelled_owned()
    }
}
