//! One pass over a `SIPCluster`: observe → validate → prune → members → prepare → render → expose → run → probe → report. Each step is entered
//! once, in this order; a pass that has written the status ends there, since the write triggers the next one. Predecessors of new instances
//! are pruned in a later pass than the others, once none is new, or before `expose` where a new instance wants a node port of theirs.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use api::{Cluster, MemberState, Placement, SIPCluster};
use kube::{ResourceExt as _, runtime::controller::Action};

use super::{
    context::Context,
    definition::{Scope, Service},
    desired::{Desired, name, validate},
    endpoints,
    error::Error,
    instances::{self, ExposedInstance, OrUnserved, refused},
    label_priority,
    observed::{Observed, is_decided},
    outcome::{Drain, Outcome},
    pass::{Pass, write, write_and_warn},
    pruning::Pruned,
    report, reported, status,
    tenant_watches::Access,
    unserved,
    without_scheduler::{keep, left, members_or_last, report_unanswered, restrict, revoke_existing},
};
use crate::{conditions::REMOVED, metrics};

/// Pause after which a `SIPCluster` that has changed under a write is reconciled again, should the watch not have delivered it by then.
const CHANGED_REQUEUE_DELAY: Duration = Duration::from_secs(2);
/// Pause after which an unchanged cluster is reconciled again. Nothing is written unless something has changed.
const RESYNC_PERIOD: Duration = Duration::from_mins(5);

/// Reconciles one cluster.
pub(super) async fn reconcile<S: Service>(
    object: Arc<SIPCluster>,
    context: Arc<Context<S>>,
) -> Result<Action, Error> {
    let namespace = object.namespace().unwrap_or_default();
    let Some(admitted) = context.shares.admit(&context.site.stores.clusters, object).await else {
        return Ok(Action::await_change());
    };
    let object = &*admitted.object;
    let counted = context.metrics.begin();
    let outcome = pass(object, &context).await;
    counted.end(match &outcome {
        // Nothing has failed: the watch delivers what has changed, and that is reconciled then.
        Ok(_) | Err(Error::Changed | Error::Gone) => metrics::Outcome::Succeeded,
        Err(Error::Kubernetes { .. } | Error::Refused(_)) => metrics::Outcome::ApiServerFailed,
        Err(Error::Scheduler(_)) => metrics::Outcome::SchedulerFailed,
    });
    let may_lack_rights = match &outcome {
        Ok(pass) => pass.refused,
        Err(error) => error.is_forbidden(),
    };
    if may_lack_rights {
        context.site.stores.access.doubt(&namespace);
    }
    let Pass { requeue, refused } = match outcome {
        Err(Error::Changed) => return Ok(Action::requeue(CHANGED_REQUEUE_DELAY)),
        Err(Error::Gone) => return Ok(Action::await_change()),
        other => other?,
    };
    let pause = refused.then(|| context.retries.failed(object));
    if pause.is_none() {
        context.retries.succeeded(object);
    }
    let requeue = requeue.into_iter().chain(pause).min();
    Ok(requeue.map_or_else(Action::await_change, Action::requeue))
}

/// When a cluster whose pass failed is reconciled again.
#[expect(clippy::needless_pass_by_value, reason = "the controller calls it so")]
pub(super) fn retry<S: Service>(object: Arc<SIPCluster>, error: &Error, context: Arc<Context<S>>) -> Action {
    let error = error as &dyn std::error::Error;
    tracing::warn!(
        namespace = object.namespace(),
        name = object.name_any(),
        error,
        "reconciling a SIPCluster failed; requeued"
    );
    Action::requeue(context.retries.failed(&*object))
}

async fn pass<S: Service>(object: &SIPCluster, context: &Context<S>) -> Result<Pass, Error> {
    context.label_priority.observe(object, Instant::now());
    if context.listed.clone().wait_for(|listed| *listed).await.is_err() {
        // The process ends.
        return Ok(Pass::requeue(None));
    }
    let stores = &context.site.stores;
    let access = stores.access.get(&object.namespace().unwrap_or_default());
    let observed = &Observed::new(object, &context.site);
    match access {
        Some(Access::Listed) => {}
        Some(Access::Forbidden(message)) => return report_not_granted(context, observed, &message).await,
        // The complete list triggers the next pass.
        None => return Ok(Pass::requeue(None)),
    }
    match validate::<S>(observed) {
        Desired::Removed => remove(context, observed).await,
        Desired::Unreadable => keep(context, observed, observed.names(), None).await,
        Desired::Waiting(desired) => restrict(context, observed, &desired.0, &desired.1).await,
        Desired::Instances(None) => {
            let pruned = Pruned::delete_others(context, observed, &[]).await;
            withdraw(context, observed, pruned).await
        }
        Desired::Instances(Some(desired)) => {
            let (cluster, entries) = *desired;
            if entries.is_empty() {
                let pruned = Pruned::delete_others(context, observed, &[]).await;
                return withdraw(context, observed, pruned).await;
            }
            serve(context, observed, (&cluster, &entries)).await
        }
    }
}

/// Reports that the agent has no rights in the cluster's namespace, unless nothing is asked of it there.
async fn report_not_granted<S: Service>(
    context: &Context<S>,
    observed: &Observed<'_>,
    message: &str,
) -> Result<Pass, Error> {
    let removed = observed
        .condition()
        .is_some_and(|condition| condition.reason == REMOVED);
    let asks = match validate::<S>(observed) {
        Desired::Instances(Some(desired)) | Desired::Waiting(desired) => !desired.1.is_empty(),
        Desired::Removed | Desired::Unreadable | Desired::Instances(None) => false,
    };
    // A host that leaves waits for this agent, whatever the spec asks for.
    let releases = S::IDENTITY.reports_drained && observed.placement().is_some_and(releases);
    let has_said = !observed.names().is_empty() || observed.condition().is_some();
    if releases || !removed && (asks || has_said) {
        let status = report::not_granted(S::IDENTITY, observed, message);
        write(context, observed, status).await?;
    }
    Ok(Pass::requeue(None))
}

fn releases(held: &Placement) -> bool {
    let mut members = held.members.iter();
    held.former_release.is_some() || members.any(|member| member.state == MemberState::Releasing)
}

/// The cluster holds no host any more: its instances are deleted.
async fn remove<S: Service>(context: &Context<S>, observed: &Observed<'_>) -> Result<Pass, Error> {
    let pruned = Pruned::delete_others(context, observed, &[]).await;
    if !pruned.is_complete() {
        return withdraw(context, observed, pruned).await;
    }
    if !observed.names().is_empty() || observed.condition().is_some() {
        let drain = Drain::unchanged(observed.drained());
        write(context, observed, report::removed(S::IDENTITY, &drain)).await?;
    }
    Ok(Pass::requeue(None))
}

/// No instance is desired, and every one that existed is deleted if that is possible. Its pods may still be ending.
async fn withdraw<S: Service>(
    context: &Context<S>,
    observed: &Observed<'_>,
    pruned: Pruned,
) -> Result<Pass, Error> {
    let drain = context.service.drain(observed, &[]).await;
    let status = if observed.is_deleting() && observed.condition().is_some() {
        let is_done = pruned.is_complete();
        report::deleting(S::IDENTITY, (&pruned.refused, is_done), &drain)
    } else {
        report::withdrawn(S::IDENTITY, &pruned.refused, &drain)
    };
    write(context, observed, status).await?;
    let pass = Pass {
        requeue: drain.requeue,
        refused: !pruned.refused.is_empty() || drain.forbidden,
    };
    pruned.end(pass)
}

/// The desired instances, from the members until they are exposed, and what [`run`] does with them then.
async fn serve<S: Service>(
    context: &Context<S>,
    observed: &Observed<'_>,
    (cluster, entries): (&Cluster, &[S::Entry]),
) -> Result<Pass, Error> {
    let (left, mut predecessors) = left::<S>(observed, entries);
    let mut pruned = Pruned::delete_others(context, observed, &left).await;
    let staying: Vec<&str> = predecessors.names().collect();
    let Some(held) = observed.placement() else {
        let is_revoked = revoke_existing(context, observed, cluster, entries).await;
        // A new cluster is mostly placed at once; that it waits is reported once its own agent has reported why.
        if is_decided(observed.object()) {
            let waits = report::waits_for_placement(S::IDENTITY, observed, &staying);
            write(context, observed, waits).await?;
        }
        return pruned.end(Pass {
            requeue: None,
            refused: !is_revoked,
        });
    };
    let members = match members_or_last(context, observed, held, cluster, entries).await {
        Ok(Some(members)) => members,
        Ok(None) => {
            let waits = report::waits_for_placement(S::IDENTITY, observed, &staying);
            write(context, observed, waits).await?;
            return pruned.end(Pass::requeue(context.unplaced.failed(observed.object())));
        }
        Err(error) => {
            report_unanswered(context, observed, &error, (&left, &staying), &pruned).await?;
            return Err(error);
        }
    };
    context.unplaced.succeeded(observed.object());
    let scope = Scope {
        observed,
        cluster,
        members: &members,
    };
    let prepared = instances::prepare(context, scope, entries, &mut pruned.errors).await;
    let mut rendered = instances::render(context, scope, entries, prepared);
    predecessors.record_served::<S>(&mut rendered);
    pruned.extend(
        predecessors
            .free_node_ports(context, observed, &mut rendered)
            .await,
    );
    let exposed = instances::expose(context, observed, rendered, &mut pruned.errors).await;
    // A pass with an entry that is not served is repeated in any case.
    let _revoked = unserved::revoke(
        context,
        (observed, cluster),
        instances::unserved(entries, &exposed),
    )
    .await;
    if observed.is_deleting() {
        let deleted = delete_refused(context, observed, entries, &exposed).await;
        pruned.extend(deleted);
    }
    let staying: Vec<Outcome> = predecessors.outcomes(observed).collect();
    let mut outcomes = instances::outcomes_before_run(context, observed, entries, &exposed);
    outcomes.extend(pruned.outcomes().chain(staying.iter().cloned()));
    if report_exposed(context, observed, held, &outcomes).await? {
        return pruned.end(Pass::requeue(RESYNC_PERIOD));
    }
    if !instances::may_run(context, &exposed) {
        return pruned.end(Pass::requeue(label_priority::LABEL_POLL_INTERVAL));
    }
    run(context, scope, (held, entries), exposed, staying, pruned).await
}

/// The exposed instances, from what runs their pods to the report. `staying`: the outcomes of predecessors.
async fn run<S: Service>(
    context: &Context<S>,
    scope: Scope<'_>,
    (held, entries): (&Placement, &[S::Entry]),
    exposed: Vec<OrUnserved<ExposedInstance>>,
    staying: Vec<Outcome>,
    mut pruned: Pruned,
) -> Result<Pass, Error> {
    let observed = scope.observed;
    let desired = instances::desired(&exposed);
    let applied = instances::run(context, observed, exposed, &mut pruned.errors).await;
    if S::APPLIES_WITHOUT_SCHEDULER {
        let clusters = &context.site.stores.clusters;
        context
            .last_members
            .remember(observed.object(), scope.members.clone(), clusters);
    }
    let mut outcomes = instances::probe(context, scope, entries, applied).await;
    outcomes.extend(pruned.outcomes().chain(staying));
    let drain = context.service.drain(observed, &desired).await;
    if observed.is_deleting() && drain.problem.is_some() {
        // No pod has members that take new connections, and one of them does not follow: the pods have to end. The next pass deletes what
        // the status does not name any more; a pass on an older status would make it again.
        let status = report::withdrawn(S::IDENTITY, &pruned.refused, &drain);
        write(context, observed, status).await?;
        return pruned.end(Pass::requeue(drain.requeue));
    }
    let pass = report(context, observed, held, &outcomes, &drain).await?;
    pruned.end(pass)
}

/// A refused instance of a cluster that is being deleted cannot release its hosts, and there will be nothing to serve: its pods have
/// to end. The status no longer names it as applied, so the next pass does not desire it.
async fn delete_refused<S: Service>(
    context: &Context<S>,
    observed: &Observed<'_>,
    entries: &[S::Entry],
    exposed: &[OrUnserved<ExposedInstance>],
) -> Pruned {
    let names = refused(entries, exposed).map(|(entry, _)| name::<S>(entry));
    Pruned::delete(context, observed, names).await
}

/// Reports which instances have this placement, unless that is reported already: hosts get their labels as soon as it is, and pods
/// take their time. What was reported of this generation's pods stays, but for a `True` when pods start anew for the placement. The
/// ports of a new instance are reported with it: an entry without a name finds its instance by them. Returns whether the status was
/// written.
async fn report_exposed<S: Service>(
    context: &Context<S>,
    observed: &Observed<'_>,
    held: &Placement,
    outcomes: &[Outcome],
) -> Result<bool, Error> {
    let drain = Drain::unchanged(observed.drained());
    let generation = observed.generation();
    let mut next = report::status(S::IDENTITY, S::protocol, (generation, held), outcomes, &drain);
    if observed.applied() == next.applied && !status::lacked_rights(observed) {
        return Ok(false);
    }
    // No host waits for other services. While their condition is True, it is reported together with what they have applied: nobody may conclude that
    // pods have the newest members before they were asked.
    let follows_members = S::IDENTITY.reports_drained;
    if !follows_members && reported::is_available(observed) {
        return Ok(false);
    }
    let condition = observed.condition();
    let is_of_this = observed.has_condition_of_generation();
    if is_of_this {
        next.endpoints = endpoints::with_new(observed.endpoints(), next.endpoints);
    }
    // Which members there are does not change the pods of other services.
    if is_of_this && follows_members && report::is_disproved(condition, outcomes) {
        return write_and_warn(context, observed, next).await;
    }
    if is_of_this || report::is_unchecked(condition.is_some(), &mut next) {
        status::write_keeping_condition(&context.site.client, S::IDENTITY, observed, next).await?;
        return Ok(true);
    }
    write_and_warn(context, observed, next).await
}

async fn report<S: Service>(
    context: &Context<S>,
    observed: &Observed<'_>,
    held: &Placement,
    outcomes: &[Outcome],
    drain: &Drain,
) -> Result<Pass, Error> {
    let generation = observed.generation();
    let status = report::status(S::IDENTITY, S::protocol, (generation, held), outcomes, drain);
    let fails_anew =
        outcomes.iter().any(Outcome::is_failed) && !context.retries.is_failing(observed.object());
    if fails_anew && report::may_keep_condition(observed, &status) {
        // Most calls that fail succeed the next time.
        status::write_keeping_condition(&context.site.client, S::IDENTITY, observed, status).await?;
        return Ok(Pass::requeue(RESYNC_PERIOD));
    }
    write_and_warn(context, observed, status).await?;
    let requeue = outcomes.iter().filter_map(Outcome::requeue).chain(drain.requeue);
    Ok(Pass {
        requeue: Some(requeue.min().unwrap_or(RESYNC_PERIOD)),
        refused: outcomes.iter().any(Outcome::is_refused) || drain.forbidden,
    })
}
