//! What a server does about a peer that exceeds its limits: it pauses reading from that connection, or ends the connection.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Maximum pause: without reads for longer, the peer's keepalive would end the connection.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Pauses and ends one connection. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Throttle(Arc<State>);

#[derive(Debug, Default)]
struct State {
    pause: Mutex<Option<Pause>>,
    over: CancellationToken,
}

/// A period without reads.
#[derive(Debug, Clone, Copy)]
struct Pause {
    begun: Instant,
    until: Instant,
}

impl Throttle {
    /// Pauses reading until `until`, but for at most [`MAX_PAUSE`] after the present pause began.
    pub(super) fn pause(&self, until: Instant) {
        let now = Instant::now();
        let mut own = self.0.pause.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = own.get_or_insert(Pause {
            begun: now,
            until: now,
        });
        pause.until = pause.until.max(until).min(pause.begun + MAX_PAUSE);
    }

    /// End of the present pause; `None` if reading is allowed.
    pub(super) fn paused(&self) -> Option<Instant> {
        let mut own = self.0.pause.lock().unwrap_or_else(PoisonError::into_inner);
        *own = own.filter(|pause| pause.until > Instant::now());
        own.map(|pause| pause.until)
    }

    /// Ends the connection. Returns whether it was open until now.
    pub(super) fn disconnect(&self) -> bool {
        // Serialises concurrent calls, so that only one of them returns true.
        let _alone = self.0.pause.lock().unwrap_or_else(PoisonError::into_inner);
        let was_open = !self.0.over.is_cancelled();
        self.0.over.cancel();
        was_open
    }

    /// Completes when the connection is to end.
    pub(super) fn disconnected(&self) -> WaitForCancellationFutureOwned {
        self.0.over.clone().cancelled_owned()
    }
}
