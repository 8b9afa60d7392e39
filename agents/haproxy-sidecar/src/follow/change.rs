//! Commands to the current worker, and what follows when they have no effect.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Error, Follower, Pass};
use crate::cli::Pid;
use crate::commands;
use crate::members::Members;
use crate::observe::{Fingerprint, Observation};
use crate::steps::Step;
use crate::wanted::Wanted;

/// Failed deletions of a server without connections after which HAProxy is reloaded to remove it.
const MAX_FAILED_DELETIONS: u8 = 5;

/// Commands that a worker got since it started.
#[derive(Default)]
pub(super) struct Sent {
    to: Option<(Pid, Fingerprint)>,
    digest: String,
    steps: BTreeMap<Step, u8>,
    answer: String,
}

impl Follower {
    pub(super) async fn change(
        &mut self,
        (wanted, members): (&Arc<Wanted>, &Members),
        observed: &Observation,
        fingerprint: Fingerprint,
        steps: Vec<Step>,
        poll: Duration,
    ) -> Result<Pass, Error> {
        let Some(worker) = observed.current.as_ref().map(|worker| worker.pid) else {
            return Ok(Pass::pending(poll));
        };
        let same_worker = self
            .sent
            .to
            .as_ref()
            .is_some_and(|(earlier, then)| *earlier == worker && !fingerprint.has_read_again_since(then));
        if !same_worker || self.sent.digest != wanted.digest() {
            self.sent = Sent {
                digest: wanted.digest().to_owned(),
                to: Some((worker, fingerprint.clone())),
                ..Sent::default()
            };
        }
        let times_sent = |step: &Step| self.sent.steps.get(step).copied().unwrap_or_default();
        let refused = |step: &&Step| match step {
            Step::Add(..) | Step::Ready(_) | Step::Drain(_) => times_sent(step) > 0,
            // A connection may have been opened in between.
            Step::Delete(_) => times_sent(step) >= MAX_FAILED_DELETIONS,
            Step::Trust(_) | Step::Cut(_) => false,
        };
        if let Some(step) = steps.iter().find(refused) {
            let reason = format!("HAProxy refuses {step:?}: {}", self.sent.answer);
            return self.reload(wanted, fingerprint, &reason).await;
        }
        let any_new = steps.iter().any(|step| times_sent(step) == 0);
        tracing::info!(
            worker,
            changes = steps.len(),
            digest = wanted.digest(),
            "changing servers"
        );
        self.sent.answer = commands::run(&self.master, worker, &steps, members).await?;
        self.worker_changed();
        self.metrics.count_changes(&steps);
        for step in steps {
            let times = self.sent.steps.entry(step).or_default();
            *times = times.saturating_add(1);
        }
        Ok(Pass::pending(if any_new { Duration::ZERO } else { poll }))
    }
}
