//! Actions by their idempotency keys: each is carried out once, however often it is asked for.
//!
//! An action belongs to the process, not to the call that began it: it goes on when that call ends, and a repetition with the same key
//! gets the same steps. It is forgotten [`KEPT`] after its end. A process that has begun later knows nothing of it, so callers name the
//! term that they know, and a repetition that reaches another process is refused instead of carried out again.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use futures::{Stream, stream};
use proto::power::v1::{SetPowerResponse, set_power_response::Step};
use tokio::{sync::watch, time::Instant};
use tonic::Status;

use crate::{action::Action, error::Error};

/// For how long an action is known after its end.
const KEPT: Duration = Duration::from_mins(15);
/// Most actions of one cluster that are known: more than the limit of actions allows in that time.
const MOST: usize = 512;
/// Most steps of one action; a host that changes its power state more often shows no more of them.
const STEPS: usize = 64;
/// Length of a key.
const KEY: std::ops::RangeInclusive<usize> = 16..=64;

/// A key that a caller has chosen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(String);

impl Key {
    /// # Errors
    /// [`Error::Invalid`].
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if KEY.contains(&text.len()) && text.bytes().all(allowed) {
            return Ok(Self(text.to_owned()));
        }
        Err(Error::Invalid {
            field: "idempotency_key",
            value: crate::error::clipped(text),
            rule: "must have 16 to 64 characters out of A-Z, a-z, 0-9, - and _".to_owned(),
        })
    }
}

/// What became of an action so far.
#[derive(Clone, Debug, Default)]
struct Progress {
    steps: Vec<SetPowerResponse>,
    /// The request for the action may have left.
    sending: bool,
    end: Option<Result<(), Status>>,
}

/// An action that is known.
#[derive(Debug)]
struct Known {
    /// The host's uid.
    host: String,
    /// The host's name as it was asked for.
    asked: String,
    action: Action,
    progress: watch::Receiver<Progress>,
    ended: Option<Instant>,
}

type ByKey = HashMap<(String, Key), Known>;

/// All actions that are known.
#[derive(Debug, Default)]
pub(crate) struct Operations(Mutex<ByKey>);

/// The right to carry an action out, once. Dropping it ends the action.
#[derive(Debug)]
pub(crate) struct Operation {
    all: Arc<Operations>,
    key: (String, Key),
    progress: watch::Sender<Progress>,
}

/// What a request for an action gets.
#[derive(Debug)]
pub(crate) enum Begun {
    /// It is new: carry it out.
    New(Operation, Follower),
    /// It was asked for before.
    Known(Follower),
}

/// The steps of an action.
#[derive(Debug)]
pub(crate) struct Follower(watch::Receiver<Progress>);

impl Operations {
    /// The action that a cluster (by uid) has asked for before, under this key and by this name of a host. Whether the cluster still
    /// holds the host does not matter: nothing is carried out again.
    pub(crate) fn repeated(&self, cluster: &str, key: &Key, asked: &str, action: Action) -> Option<Follower> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = known.get(&(cluster.to_owned(), key.clone()))?;
        let is_kept = earlier.ended.is_none_or(|ended| Instant::now() < ended + KEPT);
        let is_same = (&*earlier.asked, earlier.action) == (asked, action);
        (is_kept && is_same).then(|| Follower(earlier.progress.clone()))
    }

    /// Begins an action of a cluster (by uid) on a host (uid, name, name as asked for), unless the key is known. `admit` is asked only
    /// for a new one.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a key that was used for something else; [`Error::UnderWay`] when the host (`name`) has an unfinished
    /// action; [`Error::TooManyActions`]; what `admit` answers.
    pub(crate) fn begin(
        self: &Arc<Self>,
        cluster: &str,
        key: Key,
        (host, name, asked): (&str, &str, &str),
        action: Action,
        admit: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Begun, Error> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        known.retain(|_, known| known.ended.is_none_or(|ended| now < ended + KEPT));
        let key = (cluster.to_owned(), key);
        if let Some(earlier) = known.get(&key) {
            if (&*earlier.host, earlier.action) == (host, action) {
                return Ok(Begun::Known(Follower(earlier.progress.clone())));
            }
            return Err(Error::Invalid {
                field: "idempotency_key",
                value: key.1.0,
                rule: "was used for another host or action: choose a new key for each action".to_owned(),
            });
        }
        if known
            .values()
            .any(|known| known.host == host && known.ended.is_none())
        {
            return Err(Error::UnderWay {
                host: name.to_owned(),
            });
        }
        if known.keys().filter(|(of, _)| of == cluster).count() >= MOST {
            return Err(Error::TooManyActions {
                what: format!("{MOST} actions of the cluster are remembered"),
                again: KEPT,
            });
        }
        admit()?;
        let (progress, follower) = watch::channel(Progress::default());
        let entry = Known {
            host: host.to_owned(),
            asked: asked.to_owned(),
            action,
            progress: follower.clone(),
            ended: None,
        };
        known.insert(key.clone(), entry);
        let operation = Operation {
            all: Arc::clone(self),
            key,
            progress,
        };
        Ok(Begun::New(operation, Follower(follower)))
    }
}

impl Operation {
    /// Tells of a step.
    pub(crate) fn step(&self, step: Step) {
        self.progress.send_modify(|progress| {
            if progress.steps.len() < STEPS || matches!(step, Step::Done(_)) {
                progress.steps.push(SetPowerResponse {
                    time: Some(SystemTime::now().into()),
                    step: Some(step),
                });
            }
        });
    }

    /// From now on the action may reach the BMC: if nothing ends it properly, what became of it is not known.
    pub(crate) fn sending(&self) {
        self.progress.send_modify(|progress| progress.sending = true);
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
            let cause = if progress.sending {
                Error::Abandoned
            } else {
                Error::Ending
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
mod tests {
    use futures::{FutureExt as _, StreamExt as _};
    use proto::power::v1::{Done, Sent};

    use super::*;

    const KEY: &str = "0123456789abcdef";

    fn begin(all: &Arc<Operations>, key: &str, host: &str) -> Result<Begun, Error> {
        all.begin("c", Key::parse(key)?, (host, host, host), Action::Reboot, || {
            Ok(())
        })
    }

    fn new(begun: Result<Begun, Error>) -> (Operation, Follower) {
        match begun.unwrap() {
            Begun::New(operation, follower) => (operation, follower),
            Begun::Known(_) => panic!("known"),
        }
    }

    async fn all_steps(follower: Follower) -> Vec<Result<Option<Step>, tonic::Code>> {
        let steps = follower.steps();
        let steps = steps.map(|step| step.map(|step| step.step).map_err(|status| status.code()));
        steps.collect().await
    }

    #[tokio::test]
    async fn a_repetition_gets_the_same_steps_and_carries_nothing_out() {
        let all = Arc::new(Operations::default());
        let (operation, first) = new(begin(&all, KEY, "h"));
        operation.step(Step::Sent(Sent {}));
        let Begun::Known(second) = begin(&all, KEY, "h").unwrap() else {
            panic!("it is carried out again");
        };
        operation.step(Step::Done(Done::default()));
        operation.end(Ok(()));
        let Begun::Known(third) = begin(&all, KEY, "h").unwrap() else {
            panic!("it is carried out again");
        };
        let expected = [
            Ok(Some(Step::Sent(Sent {}))),
            Ok(Some(Step::Done(Done::default()))),
        ];
        for follower in [first, second, third] {
            assert_eq!(all_steps(follower).await, expected);
        }
    }

    #[test]
    fn a_key_of_another_cluster_is_another_key() {
        let all = Arc::new(Operations::default());
        let (operation, _) = new(begin(&all, KEY, "h"));
        let key = || Key::parse(KEY).unwrap();
        assert!(all.repeated("c", &key(), "h", Action::Reboot).is_some());
        assert!(all.repeated("d", &key(), "h", Action::Reboot).is_none());
        // A host that has moved from one cluster to the other: neither the first one's steps, nor a second action beside its own.
        let names = ("h", "h", "h");
        let moved = all.begin("d", key(), names, Action::Reboot, || Ok(()));
        assert!(matches!(moved, Err(Error::UnderWay { .. })), "{moved:?}");
        operation.end(Ok(()));
        let _new = new(all.begin("d", key(), names, Action::Reboot, || Ok(())));
    }

    #[tokio::test]
    async fn a_repetition_of_what_failed_fails_in_the_same_way() {
        let all = Arc::new(Operations::default());
        let (operation, _) = new(begin(&all, KEY, "h"));
        operation.end(Err(Status::aborted("x")));
        let Begun::Known(again) = begin(&all, KEY, "h").unwrap() else {
            panic!("it is carried out again");
        };
        assert_eq!(all_steps(again).await, [Err(tonic::Code::Aborted)]);
    }

    #[tokio::test]
    async fn an_action_whose_task_is_gone_has_ended() {
        let all = Arc::new(Operations::default());
        let (operation, follower) = new(begin(&all, KEY, "h"));
        drop(operation);
        assert_eq!(all_steps(follower).await, [Err(tonic::Code::Unavailable)]);
        let (operation, follower) = new(begin(&all, "fedcba9876543210", "h"));
        operation.sending();
        drop(operation);
        assert_eq!(all_steps(follower).await, [Err(tonic::Code::Aborted)]);
        new(begin(&all, "another-key-0000", "h"));
    }

    #[test]
    fn a_host_has_one_unfinished_action() {
        let all = Arc::new(Operations::default());
        let (operation, _) = new(begin(&all, KEY, "h"));
        let other = "fedcba9876543210";
        assert!(matches!(begin(&all, other, "h"), Err(Error::UnderWay { .. })));
        let (_other_host, _) = new(begin(&all, other, "i"));
        operation.end(Ok(()));
        new(begin(&all, "another-key-0000", "h"));
    }

    #[test]
    fn a_key_stands_for_one_action() {
        let all = Arc::new(Operations::default());
        let (_operation, _) = new(begin(&all, KEY, "h"));
        for other in [
            all.begin(
                "c",
                Key::parse(KEY).unwrap(),
                ("i", "i", "i"),
                Action::Reboot,
                || Ok(()),
            ),
            all.begin(
                "c",
                Key::parse(KEY).unwrap(),
                ("h", "h", "h"),
                Action::Off,
                || Ok(()),
            ),
        ] {
            assert!(matches!(other, Err(Error::Invalid { .. })));
        }
        // Of another cluster it is another key.
        let begun = all.begin(
            "d",
            Key::parse(KEY).unwrap(),
            ("i", "i", "i"),
            Action::Off,
            || Ok(()),
        );
        new(begun);
        for bad in [
            "",
            "short",
            "with blank 0123456",
            "ümlaut0123456789a",
            &"a".repeat(65),
        ] {
            assert!(Key::parse(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_action_is_forgotten_a_time_after_its_end() {
        let all = Arc::new(Operations::default());
        let (operation, _) = new(begin(&all, KEY, "h"));
        tokio::time::advance(2 * KEPT).await;
        assert!(
            matches!(begin(&all, KEY, "h").unwrap(), Begun::Known(_)),
            "unfinished"
        );
        operation.end(Ok(()));
        tokio::time::advance(KEPT.saturating_sub(Duration::from_secs(1))).await;
        assert!(matches!(begin(&all, KEY, "h").unwrap(), Begun::Known(_)), "ended");
        tokio::time::advance(Duration::from_secs(2)).await;
        new(begin(&all, KEY, "h"));
    }

    #[tokio::test]
    async fn a_follower_waits_for_the_next_step() {
        let all = Arc::new(Operations::default());
        let (operation, follower) = new(begin(&all, KEY, "h"));
        let mut steps = Box::pin(follower.steps());
        assert!(steps.next().now_or_never().is_none());
        operation.step(Step::Sent(Sent {}));
        assert!(steps.next().await.unwrap().is_ok());
    }
}
