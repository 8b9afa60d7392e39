//! Why a pass over a cluster fails. What runs is left as it is, and the pass is tried again with growing pauses.

use std::borrow::Cow;

use tonic::Status;

use super::problem::{Problem, REFUSED};
use crate::{apply, scheduler_client};

/// Why a pass over a cluster fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server did not do what it was asked.
    #[error("cannot {action} (API server)")]
    Kubernetes {
        /// What was tried.
        action: Cow<'static, str>,
        /// What it answered.
        #[source]
        source: Box<kube::Error>,
    },
    /// An entry cannot be served as it is: its instance is refused, and what runs of it is left as it is. Only for the step that
    /// prepares.
    #[error("{}", .0.message)]
    Refused(Problem),
    /// The scheduler did not answer.
    #[error("the scheduler: {} ({:?})", scheduler_client::reason(.0), .0.code())]
    Scheduler(Box<Status>),
    /// The `SIPCluster` has changed since it was observed, or is another one of its name: the watch delivers it.
    #[error("the SIPCluster has changed since it was observed")]
    Changed,
    /// The `SIPCluster` does not exist any more.
    #[error("the SIPCluster no longer exists")]
    Gone,
}

/// What failed in a pass: the other instances are served and reported, then the pass is tried again.
pub(super) type Errors = Vec<Error>;

impl Error {
    /// Whether the API server answered that the agent may not do it.
    pub(super) fn is_forbidden(&self) -> bool {
        match self {
            Self::Kubernetes { action: _, source } => apply::code(source) == Some(403),
            Self::Refused(_) | Self::Scheduler(_) | Self::Changed | Self::Gone => false,
        }
    }

    /// For `map_err` on a write to the `SIPCluster` that holds for the object as it was observed only.
    pub(super) fn conditional(action: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| match apply::code(&source) {
            Some(404) => Self::Gone,
            Some(409) => Self::Changed,
            _ => Self::kubernetes(action)(source),
        }
    }

    /// For `map_err` on calls of the API server.
    pub fn kubernetes(action: impl Into<Cow<'static, str>>) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Kubernetes {
            action: action.into(),
            source: Box::new(source),
        }
    }
}

/// What the API server refuses is a problem for the condition; everything else is a failure.
///
/// # Errors
/// The failure.
pub(super) fn refusal(action: impl Into<Cow<'static, str>>, error: kube::Error) -> Result<Problem, Error> {
    if apply::is_refusal(&error) {
        Ok(Problem::new(REFUSED, apply::reason(&error)))
    } else {
        Err(Error::kubernetes(action)(error))
    }
}
