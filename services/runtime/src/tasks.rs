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
    /// A task returned although nobody asked for a shutdown.
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
        /// Why.
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
    /// Tasks did not end in time after a shutdown was asked for.
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
                // Whoever asked for the shutdown may have done so while this task was ending.
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
