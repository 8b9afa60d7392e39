//! Ctrl-C, the end of the terminal, or a polite kill.

use futures::future::select_all;
use tokio::signal::unix::{Signal, SignalKind, signal};

pub(crate) struct Interrupted(Vec<Signal>);

impl Interrupted {
    pub(crate) fn new() -> std::io::Result<Self> {
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ];
        Ok(Self(kinds.into_iter().map(signal).collect::<Result<_, _>>()?))
    }

    pub(crate) async fn wait(&mut self) {
        select_all(self.0.iter_mut().map(|signal| Box::pin(signal.recv()))).await;
    }
}
