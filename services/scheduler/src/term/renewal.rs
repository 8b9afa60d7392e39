//! Keeps the lease of a leader.
//!
//! On a thread and a connection of its own: a large decision keeps a thread of the runtime busy for as long as it takes, and
//! no decision may cost the right to write what it decided.

use std::{
    io,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use tokio::runtime::Builder;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::ledger::etcd::{Location, Right, send_with_retries};

/// How long the right to write lasts after a renewal was requested, with a lease of this time.
pub(super) fn held(time: Duration) -> Duration {
    time * 4 / 5
}

/// Renews until it is dropped.
#[derive(Debug)]
pub(super) struct Renewal {
    _stop: DropGuard,
}

impl Renewal {
    /// Begins to renew `lease`, which lasts for `time`, and with it `right`. `lost` is cancelled when no renewal has come in time,
    /// and however else renewing ends.
    ///
    /// # Errors
    /// When there can be no thread for it.
    pub(super) fn begin(
        location: Location,
        lease: i64,
        time: Duration,
        right: Arc<Right>,
        lost: CancellationToken,
    ) -> io::Result<Self> {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("lease".to_owned()).spawn(move || {
            let _lost = lost.drop_guard();
            let renewing = stopped.run_until_cancelled(renew(&location, lease, time, &right));
            if runtime.block_on(renewing).is_some() {
                tracing::error!("the lease was not renewed in time");
            }
        })?;
        Ok(Self {
            _stop: stop.drop_guard(),
        })
    }
}

/// Renews the lease until the right has lapsed, which is before the lease can have ended.
async fn renew(shared: &Location, lease: i64, time: Duration, right: &Right) {
    let location = match shared.reconnect().await {
        Ok(location) => location,
        Err(error) => {
            tracing::error!(error = error.chain(), "the lease cannot be renewed");
            return;
        }
    };
    let renewing = async {
        loop {
            tokio::time::sleep(time / 4).await;
            let begun = Instant::now();
            let renew = || {
                let mut leases = location.client().lease_client();
                async move { leases.keep_alive(lease).await }
            };
            match send_with_retries(time / 4, "renew the lease", renew).await {
                Ok(_) => right.renew(begun + held(time)),
                Err(error) => tracing::warn!(error = error.chain(), "the lease was not renewed"),
            }
        }
    };
    let lapsing = async {
        while right.holds() {
            tokio::time::sleep_until(right.lapses().into()).await;
        }
    };
    tokio::select! {
        () = renewing => {}
        () = lapsing => {}
        never = location.follow_certificates() => match never {},
    }
}
