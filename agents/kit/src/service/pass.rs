//! How a pass over a cluster ends, and the status that it writes.

use std::time::Duration;

use kube::Resource as _;

use super::{
    context::Context,
    definition::Service,
    error::Error,
    observed::Observed,
    problem::{AVAILABLE, PROGRESSING},
    status::{self, Status},
};
use crate::{conditions::Finding, events::EventReason};

/// How a pass over a cluster ended.
pub(super) struct Pass {
    /// When the next one is due, if no watch triggers one before.
    pub(super) requeue: Option<Duration>,
    /// Whether the API server, or a rule of the site, refused something: pauses between passes grow then.
    pub(super) refused: bool,
}

impl Pass {
    /// The next one is due after a pause, if no watch triggers one before.
    pub(super) fn requeue(requeue: impl Into<Option<Duration>>) -> Self {
        Self {
            requeue: requeue.into(),
            refused: false,
        }
    }
}

/// Writes the status if it differs from the observed one. Returns whether it did.
pub(super) async fn write<S: Service>(
    context: &Context<S>,
    observed: &Observed<'_>,
    status: Status,
) -> Result<bool, Error> {
    status::write(&context.site.client, S::IDENTITY, observed, status).await
}

/// The same, and publishes an Event for a finding that is neither progress nor success.
pub(super) async fn write_and_warn<S: Service>(
    context: &Context<S>,
    observed: &Observed<'_>,
    status: Status,
) -> Result<bool, Error> {
    let notable = status
        .finding
        .clone()
        .filter(|finding| ![PROGRESSING, AVAILABLE].contains(&finding.reason));
    let is_written = write(context, observed, status).await?;
    if is_written && let Some(Finding { reason, message, .. }) = notable {
        let object = observed.object().object_ref(&());
        let reason = EventReason::Condition(reason);
        context.events.publish(&object, None, reason, &message).await;
    }
    Ok(is_written)
}
