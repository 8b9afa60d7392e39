//! SIGTERM and SIGINT become a cancellation token.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The two signals that ask a process to end.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Takes the signals over; from here on they no longer kill the process.
    ///
    /// # Errors
    /// When the handlers cannot be installed.
    pub fn install() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Cancels `shutdown` at the first signal; ends when `shutdown` is cancelled, by this or by others.
    pub async fn forward(mut self, shutdown: CancellationToken) {
        let signal = tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            () = shutdown.cancelled() => return,
        };
        tracing::info!(signal, "shutting down");
        shutdown.cancel();
    }
}
