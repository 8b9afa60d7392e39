//! Actions by their idempotency keys: the agent executes each once, however often it is requested.
//!
//! An action belongs to the process, not to the call that began it: it continues when that call ends, and a repetition with the same key gets the
//! same steps. The process forgets it [`RETENTION`] after its end. A process that began later does not know it, so callers state the term that they
//! know, and a repetition that reaches another process is refused instead of executed again.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use futures::{Stream, stream};
use proto::power::v1::{Sent, SetPowerResponse, set_power_response::Step};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::{action::Action, error::Error};

/// Time for which an action is known after its end.
const RETENTION: Duration = Duration::from_mins(15);
/// Actions of one cluster that are known at most: more than the limit of actions allows in that time.
const MAX_ACTIONS_PER_CLUSTER: usize = 512;
/// Steps of one action that are recorded at most; a host may change its power state more often.
const MAX_STEPS: usize = 64;
/// Length of a key.
const KEY_LENGTH: std::ops::RangeInclusive<usize> = 16..=64;

/// A key that a caller has chosen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(String);

impl Key {
    /// # Errors
    /// [`Error::Invalid`].
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if KEY_LENGTH.contains(&text.len()) && text.bytes().all(allowed) {
            return Ok(Self(text.to_owned()));
        }
        Err(Error::Invalid {
            field: "idempotency_key",
            value: crate::error::clipped(text),
            rule: "must have 16 to 64 characters out of A-Z, a-z, 0-9, - and _".to_owned(),
        })
    }
}

/// The progress of an action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Preparing,
    /// Its request to the BMC may have left.
    Sending,
    /// The BMC has accepted it; the agent waits for its effect.
    Observing,
}

/// The progress of an action.
#[derive(Clone, Debug, Default)]
struct Progress {
    steps: Vec<SetPowerResponse>,
    stage: Stage,
    end: Option<Result<(), Status>>,
}

/// A recorded action.
#[derive(Debug)]
struct RecordedAction {
    /// The host's uid.
    host: String,
    /// The host's name in the request.
    requested_name: String,
    action: Action,
    progress: watch::Receiver<Progress>,
    superseded: CancellationToken,
    ended: Option<Instant>,
}

impl RecordedAction {
    fn is_unfinished_on(&self, host: &str) -> bool {
        self.host == host && self.ended.is_none()
    }

    /// Whether a forced action may supersede it: its request was sent, and none follows.
    fn is_observing(&self) -> bool {
        self.progress.borrow().stage == Stage::Observing
    }
}

type ByKey = HashMap<(String, Key), RecordedAction>;

/// All recorded actions.
#[derive(Debug, Default)]
pub(crate) struct Operations(Mutex<ByKey>);

/// The right to execute an action, once. Dropping it ends the action.
#[derive(Debug)]
pub(crate) struct Operation {
    all: Arc<Operations>,
    key: (String, Key),
    progress: watch::Sender<Progress>,
    superseded: CancellationToken,
}

/// What the service does with a request for an action.
#[derive(Debug)]
pub(crate) enum ActionRequest {
    /// Execute it: it is new.
    New(Operation, Follower),
    /// Report its steps: it was requested before.
    Repeated(Follower),
}

/// The steps of an action.
#[derive(Debug)]
pub(crate) struct Follower(watch::Receiver<Progress>);

impl Operations {
    /// The action that a cluster (by uid) has requested under this key and by this name of a host. It is found even if the cluster does not hold
    /// the host any longer, since nothing is executed again.
    pub(crate) fn repeated(
        &self,
        cluster: &str,
        key: &Key,
        requested_name: &str,
        action: Action,
    ) -> Option<Follower> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = known.get(&(cluster.to_owned(), key.clone()))?;
        let is_kept = earlier
            .ended
            .is_none_or(|ended| Instant::now() < ended + RETENTION);
        let is_same = (&*earlier.requested_name, earlier.action) == (requested_name, action);
        (is_kept && is_same).then(|| Follower(earlier.progress.clone()))
    }

    /// Begins an action of a cluster (by uid) on a host (uid, name, name as requested), unless the key is known. Calls `admit` only for a new
    /// action. A forced action supersedes an earlier one of the same cluster whose effect the agent waits for: an operating system that hangs
    /// ignores graceful actions.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a key that was used for something else; [`Error::UnderWay`] when the host (`name`) has an unfinished
    /// action; [`Error::TooManyActions`]; what `admit` answers.
    pub(crate) fn begin(
        self: &Arc<Self>,
        cluster: &str,
        key: Key,
        (host, name, requested_name): (&str, &str, &str),
        action: Action,
        admit: impl FnOnce() -> Result<(), Error>,
    ) -> Result<ActionRequest, Error> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        known.retain(|_, known| known.ended.is_none_or(|ended| now < ended + RETENTION));
        let key = (cluster.to_owned(), key);
        if let Some(earlier) = known.get(&key) {
            if (&*earlier.host, earlier.action) == (host, action) {
                return Ok(ActionRequest::Repeated(Follower(earlier.progress.clone())));
            }
            return Err(Error::Invalid {
                field: "idempotency_key",
                value: key.1.0,
                rule: "was used for another host or action: choose a new key for each action".to_owned(),
            });
        }
        let mut superseded = Vec::new();
        for ((of, _), earlier) in known.iter().filter(|(_, earlier)| earlier.is_unfinished_on(host)) {
            if !action.is_forced() || *of != key.0 || !earlier.is_observing() {
                return Err(Error::UnderWay {
                    host: name.to_owned(),
                });
            }
            superseded.push(earlier.superseded.clone());
        }
        if known.keys().filter(|(of, _)| of == cluster).count() >= MAX_ACTIONS_PER_CLUSTER {
            return Err(Error::TooManyActions {
                what: format!(
                    "the limit of {MAX_ACTIONS_PER_CLUSTER} recent or unfinished actions of the cluster is reached"
                ),
                retry_after: RETENTION,
            });
        }
        admit()?;
        superseded.iter().for_each(CancellationToken::cancel);
        let (progress, follower) = watch::channel(Progress::default());
        let entry = RecordedAction {
            host: host.to_owned(),
            requested_name: requested_name.to_owned(),
            action,
            progress: follower.clone(),
            superseded: CancellationToken::new(),
            ended: None,
        };
        let superseded = entry.superseded.clone();
        known.insert(key.clone(), entry);
        let operation = Operation {
            all: Arc::clone(self),
            key,
            progress,
            superseded,
        };
        Ok(ActionRequest::New(operation, Follower(follower)))
    }
}

impl Operation {
    /// Records a step, and shows it to the followers.
    pub(crate) fn step(&self, step: Step) {
        self.progress.send_modify(|progress| {
            if progress.steps.len() < MAX_STEPS || matches!(step, Step::Done(_)) {
                progress.steps.push(SetPowerResponse {
                    time: Some(SystemTime::now().into()),
                    step: Some(step),
                });
            }
        });
    }

    /// Records that the action may reach the BMC from now on. If nothing ends it properly, its outcome counts as unknown.
    pub(crate) fn sending(&self) {
        self.progress
            .send_modify(|progress| progress.stage = Stage::Sending);
    }

    /// Records that the BMC has accepted the action. From now on a forced one may supersede it.
    pub(crate) fn sent(&self) {
        self.progress
            .send_modify(|progress| progress.stage = Stage::Observing);
        self.step(Step::Sent(Sent {}));
    }

    /// Waits until a forced action has superseded this one.
    pub(crate) async fn superseded(&self) {
        self.superseded.cancelled().await;
    }

    /// Ends the action.
    pub(crate) fn end(self, outcome: Result<(), Status>) {
        self.progress.send_modify(|progress| progress.end = Some(outcome));
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        let mut known = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get_mut(&self.key) {
            known.ended = Some(Instant::now());
        }
        drop(known);
        self.progress.send_if_modified(|progress| {
            let dropped = progress.end.is_none();
            let cause = match progress.stage {
                Stage::Preparing => Error::Ending,
                Stage::Sending | Stage::Observing => Error::Abandoned,
            };
            progress.end.get_or_insert_with(|| Err(cause.into()));
            dropped
        });
    }
}

impl Follower {
    /// Every step from the first one, then how the action ended.
    pub(crate) fn steps(self) -> impl Stream<Item = Result<SetPowerResponse, Status>> + Send {
        stream::unfold((Some(self.0), 0), async |(receiver, next)| {
            let mut receiver = receiver?;
            loop {
                let (step, end) = {
                    let progress = receiver.borrow_and_update();
                    (progress.steps.get(next).cloned(), progress.end.clone())
                };
                match (step, end) {
                    (Some(step), _) => return Some((Ok(step), (Some(receiver), next + 1))),
                    (None, Some(Ok(()))) => return None,
                    (None, Some(Err(status))) => return Some((Err(status), (None, next))),
                    (None, None) => {
                        if receiver.changed().await.is_err() {
                            return Some((Err(Error::Ending.into()), (None, next)));
                        }
                    }
                }
            }
        })
    }
}

#[cfg(test)]
mod tests;
