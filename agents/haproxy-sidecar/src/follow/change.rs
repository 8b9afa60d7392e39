//! Orders to the current worker, and what to do when they do nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Error, Follower, Turn};
use crate::cli::Pid;
use crate::look::{Face, Look};
use crate::members::Members;
use crate::orders;
use crate::steps::Step;
use crate::wanted::Wanted;

/// How often a server without connections is deleted in vain before HAProxy is reloaded to be rid of it.
const DELETIONS: u8 = 5;

/// What a worker was told since it started.
#[derive(Default)]
pub(super) struct Told {
    to: Option<(Pid, Face)>,
    digest: String,
    steps: BTreeMap<Step, u8>,
    answer: String,
}

impl Follower {
    pub(super) async fn change(
        &mut self,
        (wanted, members): (&Arc<Wanted>, &Members),
        look: &Look,
        face: Face,
        steps: Vec<Step>,
        poll: Duration,
    ) -> Result<Turn, Error> {
        let Some(worker) = look.current.as_ref().map(|worker| worker.pid) else {
            return Ok(Turn::goes_on(poll));
        };
        let same_worker = self
            .told
            .to
            .as_ref()
            .is_some_and(|(earlier, then)| *earlier == worker && !face.has_read_again_since(then));
        if !same_worker || self.told.digest != wanted.digest() {
            self.told = Told {
                digest: wanted.digest().to_owned(),
                to: Some((worker, face.clone())),
                ..Told::default()
            };
        }
        let told = |step: &Step| self.told.steps.get(step).copied().unwrap_or_default();
        let refused = |step: &&Step| match step {
            Step::Add(..) | Step::Ready(_) | Step::Drain(_) => told(step) > 0,
            // A connection may have come in between.
            Step::Delete(_) => told(step) >= DELETIONS,
            Step::Trust(_) | Step::Cut(_) => false,
        };
        if let Some(step) = steps.iter().find(refused) {
            let reason = format!("HAProxy refuses {step:?}: {}", self.told.answer);
            return self.reload(wanted, face, &reason).await;
        }
        let any_new = steps.iter().any(|step| told(step) == 0);
        tracing::info!(
            worker,
            changes = steps.len(),
            digest = wanted.digest(),
            "changing servers"
        );
        self.told.answer = orders::take(&self.master, worker, &steps, members).await?;
        self.metrics.told(&steps);
        for step in steps {
            let times = self.told.steps.entry(step).or_default();
            *times = times.saturating_add(1);
        }
        Ok(Turn::goes_on(if any_new { Duration::ZERO } else { poll }))
    }
}
