//! All metrics in both formats, encoded once for everybody who asks within a second: encoding takes the time of a core, and anybody who
//! reaches the port may ask.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use crate::metrics::{Metrics, exposition};

/// All metrics. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Exposition {
    pub(super) openmetrics: Bytes,
    /// In the text format 0.0.4.
    pub(super) text: Bytes,
}

/// How long the server reuses one encoding of the metrics.
const ENCODING_TTL: Duration = Duration::from_secs(1);

/// Answers scrapes. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Scrapes {
    metrics: Metrics,
    latest: Arc<Mutex<Option<Encoded>>>,
}

#[derive(Debug)]
struct Encoded {
    at: Instant,
    /// `None`: it failed, which is in the log.
    all: Option<Exposition>,
}

impl Scrapes {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self {
            metrics,
            latest: Arc::default(),
        }
    }

    /// All metrics, as they were a second ago at most.
    ///
    /// # Errors
    /// When they cannot be encoded, which is then in the log.
    pub(super) async fn all(&self) -> Result<Exposition, fmt::Error> {
        let mut latest = Arc::clone(&self.latest).lock_owned().await;
        if let Some(Encoded { at, all }) = &*latest
            && at.elapsed() < ENCODING_TTL
        {
            return all.clone().ok_or(fmt::Error);
        }
        let metrics = self.metrics.clone();
        // It holds the lock itself: whoever asks and leaves at once begins no second one beside it.
        let encoding = spawn_blocking(move || {
            let encoded = metrics.encode();
            let all = encoded
                .inspect_err(|error| tracing::error!(%error, "metrics could not be encoded"))
                .map(|openmetrics| Exposition {
                    text: exposition::text(&openmetrics).into(),
                    openmetrics: openmetrics.into(),
                });
            *latest = Some(Encoded {
                at: Instant::now(),
                all: all.clone().ok(),
            });
            all
        });
        encoding.await.map_err(|_| fmt::Error)?
    }
}
