//! Why the reconciliation of a cluster ends early.

use kit::{apply, scheduler_client};
use tonic::Status;

/// What ended a pass over a cluster early; it is tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused or failed a request.
    #[error("cannot {action} (API server)")]
    Kubernetes {
        /// What was tried.
        action: &'static str,
        /// What it answered.
        #[source]
        source: Box<kube::Error>,
    },
    /// The scheduler did not answer.
    #[error("the scheduler: {} ({:?})", scheduler_client::reason(.0), .0.code())]
    Scheduler(Box<Status>),
    /// The object has changed since it was observed: the watch delivers it.
    #[error("the SIPCluster has changed since it was observed")]
    Changed,
    /// The object no longer exists.
    #[error("the SIPCluster no longer exists")]
    Gone,
    /// The scheduler is at an older epoch than the status, or than in an earlier answer.
    #[error("the scheduler answers with epoch {answered}, which is older than the observed epoch {seen}")]
    OldEpoch {
        /// In the answer.
        answered: u64,
        /// In the status, or in an earlier answer.
        seen: u64,
    },
    /// The scheduler answers with an older placement than the status has.
    #[error(
        "the scheduler answers with revision {answered} of epoch {epoch}, and the status has revision {seen}"
    )]
    OldRevision {
        /// Of both.
        epoch: u64,
        /// In the answer.
        answered: u64,
        /// In the status.
        seen: u64,
    },
    /// Pods of a cluster without `SIPCluster` may route to its hosts.
    #[error("hosts are not released while {0} exists, which may route to them")]
    Drains(String),
}

impl Error {
    pub(super) fn kubernetes(action: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Kubernetes {
            action,
            source: Box::new(source),
        }
    }

    pub(super) fn scheduler(status: Status) -> Self {
        Self::Scheduler(Box::new(status))
    }

    /// Why a write to the `SIPCluster` failed that holds for the object as it was observed only.
    pub(super) fn conditional(action: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| match apply::code(&source) {
            Some(404) => Self::Gone,
            Some(409) => Self::Changed,
            _ => Self::kubernetes(action)(source),
        }
    }
}
