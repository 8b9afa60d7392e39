//! A new worker in the place of the current one, where orders do not do.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Error, Follower, POLL, Turn};
use crate::look::Face;
use crate::orders;
use crate::wanted::Wanted;

/// When a configuration that HAProxy has refused is tried again: what it lacks may be there by then.
const REFUSED: Duration = Duration::from_mins(1);
/// When to look again where only somebody else can help.
const HELPLESS: Duration = Duration::from_secs(5);

/// The last reload.
pub(super) struct Attempt {
    digest: String,
    face: Face,
    refused: Option<String>,
    at: Instant,
}

impl Follower {
    /// Whether HAProxy has refused this lately. The file holds what ran before then, so that it could start again.
    pub(super) fn is_refused(&self, wanted: &Wanted) -> bool {
        let attempt = self.attempt.as_ref().filter(|attempt| attempt.refused.is_some());
        attempt.is_some_and(|attempt| attempt.digest == wanted.digest() && attempt.at.elapsed() < REFUSED)
    }

    pub(super) async fn reload(
        &mut self,
        wanted: &Arc<Wanted>,
        face: Face,
        reason: &str,
    ) -> Result<Turn, Error> {
        let in_vain = self.attempt.as_ref().filter(|attempt| {
            attempt.digest == wanted.digest()
                && attempt.at.elapsed() < REFUSED
                && !face.has_read_again_since(&attempt.face)
        });
        if let Some(attempt) = in_vain {
            let unlike = || format!("HAProxy has read the configuration anew, and yet: {reason}");
            return Ok(Turn {
                runs: false,
                failed: Some(attempt.refused.clone().unwrap_or_else(unlike)),
                pause: if self.leaving.is_empty() { HELPLESS } else { POLL.1 },
            });
        }
        self.file.write(&wanted.file()).await?;
        tracing::info!(reason, digest = wanted.digest(), "reloading HAProxy");
        let orders::Reloaded { face, refused } = orders::reload(&self.master, &face).await?;
        self.metrics.reloaded(refused.is_some());
        if let Some(words) = &refused {
            tracing::warn!(
                words,
                digest = wanted.digest(),
                "HAProxy still runs the previous configuration"
            );
            if let Some(good) = &self.good {
                self.file.write(&good.file()).await?;
            }
        }
        let turn = Turn {
            runs: false,
            pause: if refused.is_some() { POLL.1 } else { Duration::ZERO },
            failed: refused.clone(),
        };
        self.attempt = Some(Attempt {
            digest: wanted.digest().to_owned(),
            face,
            refused,
            at: Instant::now(),
        });
        Ok(turn)
    }
}
