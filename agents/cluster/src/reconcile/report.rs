//! Reports what a pass has found and done: the status, once; Events; metrics; and when the next pass is due.

use std::time::Duration;

use api::SIPCluster;
use k8s_openapi::jiff::Timestamp;
use kit::{
    apply,
    events::EventReason,
    metrics::{Outcome, Reconcile},
    placement::ObjectKey,
    scheduler_client,
};
use kube::{Client, Resource as _, ResourceExt as _, runtime::controller::Action};
use tonic::Code;

use super::{
    context::{Context, MANAGER},
    error::Error,
    event::Event,
    outcomes::Outcomes,
    pending_writes::PendingWrites,
    plan::Plan,
    status,
    status_draft::Draft,
};

/// Pause after which a `SIPCluster` that has changed under a write is reconciled again, should the watch not have delivered
/// it by then.
const CHANGED_REQUEUE_DELAY: Duration = Duration::from_secs(2);

/// Reports a pass over a `SIPCluster`. Returns when the next one is due.
///
/// # Errors
/// What ended the pass early, or why the status could not be written.
pub(super) async fn report(
    object: &SIPCluster,
    plan: Plan,
    outcomes: Outcomes,
    context: &Context,
) -> Result<Option<Duration>, Error> {
    let mut notices = plan.notices;
    for (host, why) in &outcomes.refused {
        let note = format!("BareMetalHost {host} {why}");
        notices.push(Event::new(EventReason::UnableToApplyLabels, note));
    }
    notices.extend(outcomes.events.iter().cloned());
    publish(notices, object, context).await;
    // Hosts that were written come back by their watch, and that pass writes the status.
    let follows = plan.status_follows && outcomes.requeue.is_none();
    let written = match plan.status {
        Some(draft) if !follows => {
            write(
                &context.client,
                &context.pending_statuses,
                object,
                draft,
                &outcomes,
            )
            .await
        }
        Some(_) | None => Ok(false),
    };
    if matches!(written, Ok(true)) {
        publish(plan.events, object, context).await;
    }
    match (outcomes.error, written) {
        (Some(error), _) | (None, Err(error)) => Err(error),
        (None, Ok(_)) => Ok([outcomes.requeue, plan.requeue].into_iter().flatten().min()),
    }
}

/// Writes the status if it differs, to the object as it was observed. Returns whether it was written.
///
/// # Errors
/// [`Error::Changed`] for an object that was written since, by this process or by another one; what else the API server answers.
async fn write(
    client: &Client,
    pending: &PendingWrites,
    object: &SIPCluster,
    draft: Draft,
    outcomes: &Outcomes,
) -> Result<bool, Error> {
    let Some(change) = status::change(object, draft.finish(outcomes), Timestamp::now()) else {
        return Ok(false);
    };
    let (key, observed) = (ObjectKey::for_object(object), object.resource_version());
    let observed = observed.unwrap_or_default();
    if pending.is_pending(&key, &observed) {
        return Err(Error::Changed);
    }
    let applied = status::Applied::new(object, &change);
    let written = apply::apply_status_of(client, MANAGER, object, &applied).await;
    let written = written.map_err(Error::conditional("write the status"))?;
    if written.resource_version().as_deref() != Some(&*observed) {
        pending.written(key, observed);
    }
    Ok(true)
}

async fn publish(events: Vec<Event>, object: &SIPCluster, context: &Context) {
    let reference = object.object_ref(&());
    for Event { reason, note } in events {
        context.events.publish(&reference, None, reason, &note).await;
    }
}

/// Reports how a pass over a `SIPCluster` has ended, and returns what the controller does next.
///
/// # Errors
/// What the controller is to pause for.
pub(super) async fn finish(
    object: &SIPCluster,
    result: Result<Option<Duration>, Error>,
    counted: Reconcile<'_>,
    context: &Context,
) -> Result<Action, Error> {
    if let Err(Error::Scheduler(status)) = &result
        && status.code() == Code::Unavailable
        && object.status.is_some()
    {
        let note = format!(
            "the scheduler does not serve the call, so nothing changes: {}",
            scheduler_client::reason(status)
        );
        publish(vec![Event::new(EventReason::Stale, note)], object, context).await;
    }
    let result = match result {
        // Nothing has failed: the watch delivers what has changed, and that is reconciled then.
        Err(Error::Changed) => Ok(Some(CHANGED_REQUEUE_DELAY)),
        Err(Error::Gone) => Ok(None),
        other => other,
    };
    counted.end(match &result {
        Ok(_) => Outcome::Succeeded,
        Err(Error::Kubernetes { .. } | Error::Drains(_) | Error::Changed | Error::Gone) => {
            Outcome::ApiServerFailed
        }
        Err(Error::Scheduler(_) | Error::OldEpoch { .. } | Error::OldRevision { .. }) => {
            Outcome::SchedulerFailed
        }
    });
    let requeue = result?;
    context.retries.succeeded(object);
    Ok(requeue.map_or_else(Action::await_change, Action::requeue))
}

/// Reports a pass over a cluster without `SIPCluster`, to the log. `routed_by`: what its hosts wait for. Returns when the next one
/// is due.
///
/// # Errors
/// What ended the pass early, or what its hosts wait for: no watch reports when that has ended.
pub(super) fn report_orphan(
    outcomes: Outcomes,
    routed_by: Option<String>,
) -> Result<Option<Duration>, Error> {
    let Outcomes {
        requeue,
        refused,
        unscaled: _,
        stuck: _,
        events: _,
        error,
    } = outcomes;
    for (host, why) in refused {
        tracing::warn!(host = %host, why, "a BareMetalHost cannot be released");
    }
    match (error, routed_by) {
        (Some(error), _) => Err(error),
        (None, Some(what)) => Err(Error::Drains(what)),
        (None, None) => Ok(requeue),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use api::conditions::{Reason, SCHEDULED};
    use kit::conditions::Finding;
    use kube::client::Body;

    use super::{super::status::OwnStatus, *};
    use crate::fixtures::cluster;

    /// An API server that answers every write with the cluster at this version; and how many writes there were.
    fn server(version: &'static str) -> (Client, Arc<AtomicUsize>) {
        let writes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&writes);
        let service = tower::service_fn(move |_: http::Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            let body = serde_json::to_vec(&observed(version)).unwrap();
            std::future::ready(Ok::<_, std::convert::Infallible>(http::Response::new(
                Body::from(body),
            )))
        });
        (Client::new(service, "tenant"), writes)
    }

    fn observed(version: &str) -> SIPCluster {
        let mut object = cluster(&serde_json::json!({}));
        object.metadata.resource_version = Some(version.to_owned());
        object
    }

    async fn write_to(
        client: &Client,
        pending: &PendingWrites,
        observed: &SIPCluster,
    ) -> Result<bool, Error> {
        let draft = Draft::Fixed(OwnStatus {
            findings: vec![Finding::no(SCHEDULED, Reason::InvalidSpec, "no")],
            ..OwnStatus::default()
        });
        write(client, pending, observed, draft, &Outcomes::default()).await
    }

    #[tokio::test]
    async fn a_status_is_not_written_again_before_the_watch_shows_it() {
        let (client, writes) = server("8");
        let pending = PendingWrites::default();
        assert!(write_to(&client, &pending, &observed("7")).await.unwrap());
        let again = write_to(&client, &pending, &observed("7")).await;
        assert!(matches!(again, Err(Error::Changed)), "{again:?}");
        assert_eq!(
            writes.load(Ordering::Relaxed),
            1,
            "it would be answered with a conflict"
        );
        assert!(write_to(&client, &pending, &observed("9")).await.unwrap());
    }

    #[tokio::test]
    async fn a_write_that_changes_nothing_is_not_awaited() {
        let (client, writes) = server("7");
        let pending = PendingWrites::default();
        for _ in 0..2 {
            assert!(write_to(&client, &pending, &observed("7")).await.unwrap());
        }
        assert_eq!(writes.load(Ordering::Relaxed), 2);
    }
}
