//! Supervised tasks: the first to end, even well, ends the process.
//!
//! A task that nobody watches can die while the process looks alive and ready. Here every task has a name,
//! and one that ends before it was asked to is a failure that names it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::error::Error as StdError;
use std::future::Future;
use std::time::Duration;

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::readiness::Readiness;

/// Any error that a task may end with.
pub type BoxError = Box<dyn StdError + Send + Sync>;

type Name = Cow<'static, str>;

/// Why the process must end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A task returned although no shutdown was requested.
    #[error("task `{task}` ended although it should run as long as the process")]
    Ended {
        /// Its name.
        task: Name,
    },
    /// A task failed.
    #[error("task `{task}` failed")]
    Failed {
        /// Its name.
        task: Name,
        /// The error of the task.
        #[source]
        source: BoxError,
    },
    /// A task panicked.
    #[error("task `{task}` panicked: {message}")]
    Panicked {
        /// Its name.
        task: Name,
        /// What the panic said.
        message: String,
    },
    /// Tasks did not end in time after a shutdown was requested.
    #[error("still running {deadline:?} after the shutdown began: {}", tasks.join(", "))]
    Stuck {
        /// Their names, sorted.
        tasks: Vec<Name>,
        /// How long they had.
        deadline: Duration,
    },
}

/// The supervised tasks of a process. Dropping it aborts them.
#[derive(Debug)]
pub struct Tasks {
    set: JoinSet<Result<(), BoxError>>,
    names: HashMap<Id, Name>,
    shutdown: CancellationToken,
}

impl Tasks {
    /// No tasks yet; cancelling `shutdown` asks all to end.
    #[must_use]
    pub fn new(shutdown: CancellationToken) -> Self {
        Self {
            set: JoinSet::new(),
            names: HashMap::new(),
            shutdown,
        }
    }

    /// Starts a task. It must run until the shutdown token is cancelled, and then end.
    pub fn spawn<E>(
        &mut self,
        name: impl Into<Name>,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) where
        E: Into<BoxError>,
    {
        let handle = self.set.spawn(async move { task.await.map_err(Into::into) });
        self.names.insert(handle.id(), name.into());
    }

    /// Starts a task that runs for ever and may be dropped at any await. It is dropped when the shutdown begins.
    pub fn spawn_endless<E>(
        &mut self,
        name: impl Into<Name>,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) where
        E: Into<BoxError>,
    {
        let shutdown = self.shutdown.clone();
        self.spawn(name, async move {
            shutdown.run_until_cancelled(task).await.unwrap_or(Ok(()))
        });
    }

    /// Waits for the first task to end or for the shutdown, then drains the rest for at most `drain`.
    ///
    /// # Errors
    /// The first failure; what else went wrong meanwhile is logged.
    pub async fn run(mut self, drain: Duration, readiness: &Readiness) -> Result<(), Error> {
        let shutdown = self.shutdown.clone();
        let first = tokio::select! {
            biased;
            () = shutdown.cancelled() => None,
            ended = self.next() => ended,
        };
        let mut failure = first
            .map(|(task, end)| {
                // Another task may have requested the shutdown while this one ended.
                let unasked = end.and_then(|()| Err(Error::Ended { task }));
                match unasked {
                    Err(Error::Ended { task: _ }) if self.shutdown.is_cancelled() => Ok(()),
                    other => other,
                }
            })
            .transpose()
            .err();
        if let Some(error) = &failure {
            tracing::error!(error = error as &dyn StdError, "stopping the process");
        }
        readiness.stopping();
        self.shutdown.cancel();
        if let Err(error) = self.drain(drain).await {
            if failure.is_some() {
                tracing::error!(error = &error as &dyn StdError, "failed while stopping");
            } else {
                failure = Some(error);
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Waits for the remaining tasks to end.
    async fn drain(&mut self, deadline: Duration) -> Result<(), Error> {
        let until = Instant::now() + deadline;
        let mut failure = None;
        loop {
            match timeout_at(until, self.next()).await {
                Ok(None) => return failure.map_or(Ok(()), Err),
                Ok(Some((task, Ok(())))) => tracing::debug!(%task, "ended"),
                Ok(Some((_, Err(error)))) => {
                    if let Some(earlier) = failure.replace(error) {
                        tracing::error!(error = &earlier as &dyn StdError, "failed while stopping");
                    }
                }
                Err(_elapsed) => {
                    let mut tasks: Vec<Name> = self.names.drain().map(|(_, name)| name).collect();
                    tasks.sort();
                    self.set.abort_all();
                    if let Some(earlier) = failure {
                        tracing::error!(error = &earlier as &dyn StdError, "failed while stopping");
                    }
                    return Err(Error::Stuck { tasks, deadline });
                }
            }
        }
    }

    /// The next task to end, by name; `None` when there are none.
    async fn next(&mut self) -> Option<(Name, Result<(), Error>)> {
        let joined = self.set.join_next_with_id().await?;
        let id = match &joined {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let task = self.names.remove(&id).unwrap_or(Cow::Borrowed("unnamed"));
        let end = match joined {
            Ok((_, Ok(()))) => Ok(()),
            Ok((_, Err(source))) => Err(Error::Failed {
                task: task.clone(),
                source,
            }),
            Err(error) => Err(Error::Panicked {
                task: task.clone(),
                message: panic_message(error),
            }),
        };
        Some((task, end))
    }
}

/// What a panic said. Nobody aborts single tasks here, so a task that was cancelled says so.
fn panic_message(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(payload) => match payload.downcast::<String>() {
            Ok(text) => *text,
            Err(payload) => match payload.downcast::<&'static str>() {
                Ok(text) => (*text).to_owned(),
                Err(_) => "(no message)".to_owned(),
            },
        },
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::error_chain::chain;

    const DRAIN: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn an_endless_task_may_end_only_at_shutdown() {
        let shutdown = CancellationToken::new();
        let mut tasks = Tasks::new(shutdown.clone());
        tasks.spawn_endless("watch", std::future::pending::<Result<(), io::Error>>());
        shutdown.cancel();
        tasks.run(DRAIN, &Readiness::default()).await.unwrap();

        let mut tasks = Tasks::new(CancellationToken::new());
        tasks.spawn_endless("watch", async { Ok::<_, io::Error>(()) });
        let ended = tasks.run(DRAIN, &Readiness::default()).await;
        assert!(matches!(ended, Err(Error::Ended { task }) if task == "watch"));
    }

    /// Tasks with one that runs until it is asked to end, and whether it has ended so.
    fn supervised() -> (Tasks, CancellationToken, Arc<AtomicBool>) {
        let shutdown = CancellationToken::new();
        let mut tasks = Tasks::new(shutdown.clone());
        let ended = Arc::new(AtomicBool::new(false));
        let (stop, mark) = (shutdown.clone(), Arc::clone(&ended));
        tasks.spawn("steady", async move {
            stop.cancelled().await;
            mark.store(true, Ordering::SeqCst);
            Ok::<_, io::Error>(())
        });
        (tasks, shutdown, ended)
    }

    #[tokio::test]
    async fn the_first_task_to_end_stops_the_others_and_is_named() {
        type Start = fn(&mut Tasks);
        let cases: [(Start, &str); 3] = [
            (
                |tasks| tasks.spawn("watch", async { Ok::<_, io::Error>(()) }),
                "task `watch` ended although it should run as long as the process",
            ),
            (
                |tasks| tasks.spawn("watch", async { Err(io::Error::other("connection lost")) }),
                "task `watch` failed: connection lost",
            ),
            (
                |tasks| {
                    tasks.spawn("watch", async {
                        let host: u32 = "seven".parse().expect("a host's number");
                        assert_eq!(host, 7);
                        Ok::<_, io::Error>(())
                    });
                },
                "task `watch` panicked: a host's number: ParseIntError { kind: InvalidDigit }",
            ),
        ];
        for (start, message) in cases {
            let (mut tasks, shutdown, ended) = supervised();
            start(&mut tasks);
            let readiness = Readiness::default();
            let error = tasks.run(DRAIN, &readiness).await.unwrap_err();
            assert_eq!(chain(&error), message);
            assert!(ended.load(Ordering::SeqCst), "the others ended in order");
            assert!(shutdown.is_cancelled());
            assert_eq!(
                readiness.unready().get("process").map(String::as_str),
                Some("is shutting down")
            );
        }
    }

    #[tokio::test]
    async fn a_requested_shutdown_is_no_failure() {
        let (tasks, shutdown, ended) = supervised();
        shutdown.cancel();
        tasks.run(DRAIN, &Readiness::default()).await.unwrap();
        assert!(ended.load(Ordering::SeqCst));
    }

    #[tokio::test]
    async fn a_task_that_asks_for_the_shutdown_and_ends_is_no_failure() {
        let (mut tasks, shutdown, _ended) = supervised();
        tasks.spawn("signals", async move {
            shutdown.cancel();
            Ok::<_, io::Error>(())
        });
        tasks.run(DRAIN, &Readiness::default()).await.unwrap();
    }

    #[tokio::test]
    async fn a_failure_while_draining_is_reported() {
        let (mut tasks, shutdown, _ended) = supervised();
        let stop = shutdown.clone();
        tasks.spawn("ledger", async move {
            stop.cancelled().await;
            Err(io::Error::other("disk full"))
        });
        shutdown.cancel();
        let error = tasks.run(DRAIN, &Readiness::default()).await.unwrap_err();
        assert_eq!(chain(&error), "task `ledger` failed: disk full");
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_that_do_not_end_in_time_are_named_and_aborted() {
        let (mut tasks, shutdown, _ended) = supervised();
        let alive = Arc::new(());
        for name in ["watch", "ledger"] {
            let held = Arc::clone(&alive);
            tasks.spawn(name, async move {
                std::future::pending::<()>().await;
                drop(held);
                Ok::<_, io::Error>(())
            });
        }
        shutdown.cancel();
        let error = tasks.run(DRAIN, &Readiness::default()).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "still running 5s after the shutdown began: ledger, watch"
        );
        while Arc::strong_count(&alive) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
