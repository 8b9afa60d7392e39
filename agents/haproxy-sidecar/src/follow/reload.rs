//! Reloads: a new worker replaces the current one where commands cannot.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Error, Follower, POLL_INTERVALS, Pass};
use crate::commands;
use crate::observe::Fingerprint;
use crate::wanted::Wanted;

/// Pause after which a configuration that HAProxy refused is retried: files that it names may exist by then.
const REFUSED_RETRY_DELAY: Duration = Duration::from_mins(1);
/// Pause between passes while only a change outside of this process can help.
const BLOCKED_RETRY_DELAY: Duration = Duration::from_secs(5);

/// The last reload.
pub(super) struct Attempt {
    digest: String,
    fingerprint: Fingerprint,
    refused: Option<String>,
    at: Instant,
}

impl Follower {
    /// Whether HAProxy refused this recently. The file then holds the configuration before, so that HAProxy can restart.
    pub(super) fn is_refused(&self, wanted: &Wanted) -> bool {
        let attempt = self.attempt.as_ref().filter(|attempt| attempt.refused.is_some());
        attempt.is_some_and(|attempt| {
            attempt.digest == wanted.digest() && attempt.at.elapsed() < REFUSED_RETRY_DELAY
        })
    }

    /// Commands have changed the worker that the last reload started: a configuration that it started with may need another reload.
    pub(super) fn worker_changed(&mut self) {
        self.attempt = self.attempt.take().filter(|attempt| attempt.refused.is_some());
    }

    pub(super) async fn reload(
        &mut self,
        wanted: &Arc<Wanted>,
        fingerprint: Fingerprint,
        reason: &str,
    ) -> Result<Pass, Error> {
        let in_vain = self.attempt.as_ref().filter(|attempt| {
            attempt.digest == wanted.digest()
                && attempt.at.elapsed() < REFUSED_RETRY_DELAY
                && !fingerprint.has_read_again_since(&attempt.fingerprint)
        });
        if let Some(attempt) = in_vain {
            let unlike = || {
                format!(
                    "HAProxy was reloaded, but what it runs still differs from the configuration: {reason}"
                )
            };
            return Ok(Pass {
                runs: false,
                failed: Some(attempt.refused.clone().unwrap_or_else(unlike)),
                pause: if self.leaving.is_empty() {
                    BLOCKED_RETRY_DELAY
                } else {
                    POLL_INTERVALS.1
                },
            });
        }
        self.file.write(&wanted.file()).await?;
        tracing::info!(reason, digest = wanted.digest(), "reloading HAProxy");
        let commands::Reloaded { fingerprint, refused } =
            commands::reload(&self.master, &fingerprint).await?;
        self.metrics.reloaded(refused.is_some());
        if let Some(message) = &refused {
            tracing::warn!(
                words = message,
                digest = wanted.digest(),
                "HAProxy still runs the previous configuration"
            );
            if let Some(good) = &self.good {
                self.file.write(&good.file()).await?;
            }
        }
        let pass = Pass {
            runs: false,
            pause: if refused.is_some() {
                POLL_INTERVALS.1
            } else {
                Duration::ZERO
            },
            failed: refused.clone(),
        };
        self.attempt = Some(Attempt {
            digest: wanted.digest().to_owned(),
            fingerprint,
            refused,
            at: Instant::now(),
        });
        Ok(pass)
    }
}
