//! What a pass does as long as the scheduler does not answer, or has not accepted the size of the spec: what the spec drops is deleted, but
//! not where something takes its place that cannot be made yet. Services that ask for it apply the spec with the members of the last answer.

use std::{collections::BTreeSet, pin::pin, time::Duration};

use api::{Cluster, Placement};
use tokio::time::timeout;

use super::{
    context::Context,
    definition::{Scope, Service},
    desired::{name, names},
    endpoints,
    error::{Error, Errors},
    instances,
    members::{Members, members},
    observed::Observed,
    pass::{Pass, write_and_warn},
    predecessors::Predecessors,
    problem::{PROGRESSING, REFUSED},
    pruning::Pruned,
    report,
    status::{self, Status},
    unserved,
};
use crate::conditions::Finding;

/// How long the scheduler may take for the members until the last ones are used.
const MEMBERS_TIMEOUT: Duration = Duration::from_secs(3);

/// Pause between two passes over a spec that waits. What a service does beside its passes (it revokes, for instance) it does for as long as
/// they name an entry.
pub const WAITING_RESYNC: Duration = Duration::from_secs(30);

/// The members that a cluster holds, as [`members`] answers them.
pub(super) async fn members_or_last<S: Service>(
    context: &Context<S>,
    observed: &Observed<'_>,
    held: &Placement,
    cluster: &Cluster,
    entries: &[S::Entry],
) -> Result<Option<Members>, Error> {
    if !S::NEEDS_MEMBERS {
        return Ok(Some(Members::default()));
    }
    let mut asked = pin!(members(&context.scheduler, observed, held));
    if !S::APPLIES_WITHOUT_SCHEDULER {
        return asked.await;
    }
    let early = timeout(MEMBERS_TIMEOUT, asked.as_mut()).await;
    if !matches!(early, Ok(Ok(Some(_)))) {
        apply_with_last_members(context, observed, held, cluster, entries).await?;
    }
    match early {
        Ok(answer) => answer,
        Err(_elapsed) => asked.await,
    }
}

/// Applies the instances with the members of the scheduler's last answer; if this process has none, only takes away what the spec does not give.
/// Nothing is reported: no host waits for it.
async fn apply_with_last_members<S: Service>(
    context: &Context<S>,
    observed: &Observed<'_>,
    held: &Placement,
    cluster: &Cluster,
    entries: &[S::Entry],
) -> Result<(), Error> {
    let Some(members) = context.last_members.still_held(observed.object(), held) else {
        // The pass is repeated in any case.
        let _revoked = revoke_existing(context, observed, cluster, entries).await;
        return Ok(());
    };
    let scope = Scope {
        observed,
        cluster,
        members: &members,
    };
    let mut errors = Errors::new();
    let prepared = instances::prepare(context, scope, entries, &mut errors).await;
    let rendered = instances::render(context, scope, entries, prepared);
    let exposed = instances::expose(context, observed, rendered, &mut errors).await;
    // The pass fails, and is repeated.
    let _revoked = unserved::revoke(
        context,
        (observed, cluster),
        instances::unserved(entries, &exposed),
    )
    .await;
    if instances::may_run(context, &exposed) {
        instances::run(context, observed, exposed, &mut errors).await;
    }
    errors.into_iter().next().map_or(Ok(()), Err)
}

/// Takes away what the spec does not give from instances that exist though nothing can be applied, as a former cluster of this name may have left
/// them (`kubectl delete --cascade=orphan`): nobody else does. Returns whether everything was taken away.
pub(super) async fn revoke_existing<S: Service>(
    context: &Context<S>,
    observed: &Observed<'_>,
    cluster: &Cluster,
    entries: &[S::Entry],
) -> bool {
    if !S::APPLIES_WITHOUT_SCHEDULER {
        return true;
    }
    let existing: Vec<&S::Entry> = entries
        .iter()
        .filter(|entry| observed.names().contains(name::<S>(entry)))
        .collect();
    unserved::revoke(context, (observed, cluster), existing.into_iter()).await
}

/// The instances that are not deleted: those that the spec names, and the predecessors of new ones. The latter are also given by themselves.
pub(super) fn left<'a, S: Service>(
    observed: &'a Observed<'_>,
    entries: &'a [S::Entry],
) -> (Vec<&'a str>, Predecessors<'a>) {
    let predecessors = Predecessors::new::<S>(observed, entries);
    let mut left = names::<S>(entries);
    left.extend(predecessors.names());
    (left, predecessors)
}

/// The scheduler does not answer: the status names what is left of what the spec drops, and what cannot be deleted. The second time in a row it
/// also states that, if no condition is of this generation: nobody would learn otherwise that the agent runs, and what it waits for. It states it at
/// once where the condition names what was dropped.
pub(super) async fn report_unanswered<S: Service>(
    context: &Context<S>,
    observed: &Observed<'_>,
    error: &Error,
    (left, predecessors): (&[&str], &[&str]),
    pruned: &Pruned,
) -> Result<(), Error> {
    let mut names = observed.names().iter();
    let are_dropped = names.any(|name| !left.contains(&name.as_str()));
    let is_reported = observed.has_condition_of_generation() && !status::lacked_rights(observed);
    let waits = || {
        Finding::no(
            S::IDENTITY.condition,
            PROGRESSING,
            runtime::error_chain::chain(error),
        )
    };
    let fails = || !is_reported && context.retries.is_failing(observed.object());
    let names_dropped = || pruned.is_complete() && names_dropped(observed, left);
    let finding = report::summary(S::IDENTITY, &pruned.refused)
        .or_else(|| (fails() || names_dropped()).then(waits))
        .map(|finding| report::with_predecessors(finding, predecessors));
    if are_dropped {
        keep(context, observed, &after(observed, left, pruned), finding).await?;
    } else if let Some(finding) = finding {
        let status = report::unchanged(observed, finding);
        status::write(&context.site.client, S::IDENTITY, observed, status).await?;
    }
    Ok(())
}

/// Whether the condition, unless it is True, names an instance that the spec drops, as one that stayed or whose deletion was refused.
fn names_dropped(observed: &Observed<'_>, left: &[&str]) -> bool {
    let condition = observed.condition();
    let condition = condition.filter(|condition| condition.status != "True");
    let message = condition.map(|condition| &*condition.message);
    let dropped = observed.names().iter().map(String::as_str);
    let mut dropped = dropped.filter(|name| !left.contains(name));
    dropped.any(|dropped| message.is_some_and(|message| has_name(message, dropped)))
}

/// Whether a message has a name as a whole word.
fn has_name(message: &str, name: &str) -> bool {
    let in_name = |character: char| character.is_ascii_alphanumeric() || character == '-';
    message
        .split(|character| !in_name(character))
        .any(|word| word == name)
}

/// The instances that are left after what the spec drops was deleted, as far as it was.
fn after(observed: &Observed<'_>, left: &[&str], pruned: &Pruned) -> BTreeSet<String> {
    let is_left = |name: &&String| left.contains(&name.as_str()) || !pruned.is_complete();
    observed.names().iter().filter(is_left).cloned().collect()
}

/// The spec gives nothing as long as it waits for the scheduler, but what it takes away is taken away at once.
pub(super) async fn restrict<S: Service>(
    context: &Context<S>,
    observed: &Observed<'_>,
    cluster: &Cluster,
    entries: &[S::Entry],
) -> Result<Pass, Error> {
    let (left, predecessors) = left::<S>(observed, entries);
    let pruned = Pruned::delete_others(context, observed, &left).await;
    let predecessors: Vec<&str> = predecessors.names().collect();
    let is_revoked = unserved::revoke(context, (observed, cluster), entries.iter()).await;
    let finding = report::summary(S::IDENTITY, &pruned.refused).or_else(|| {
        // Of a spec that waits nothing else is reported than deletions that are refused, and what stays. Once these are over, that it waits.
        let waits = "the scheduler has not accepted the size of the spec yet";
        let condition = observed
            .condition()
            .filter(|_| observed.has_condition_of_generation());
        let was_refused = condition.is_some_and(|condition| condition.reason == REFUSED);
        let are_over = pruned.is_complete() && (was_refused || names_dropped(observed, &left));
        let is_reported = !predecessors.is_empty() || are_over;
        is_reported.then(|| Finding::no(S::IDENTITY.condition, PROGRESSING, waits))
    });
    let finding = finding.map(|finding| report::with_predecessors(finding, &predecessors));
    let pass = keep(context, observed, &after(observed, &left, &pruned), finding).await?;
    let refused = pass.refused || !pruned.refused.is_empty() || !is_revoked;
    let requeue = next_of_waiting(pass.requeue, !entries.is_empty());
    pruned.end(Pass { requeue, refused })
}

/// When a spec that waits is reconciled again: without an entry only for what is requeued anyway.
fn next_of_waiting(requeue: Option<Duration>, names_entries: bool) -> Option<Duration> {
    requeue
        .into_iter()
        .chain(names_entries.then_some(WAITING_RESYNC))
        .min()
}

/// These instances stay; hosts that leave are released where no instance runs. `None`: nothing new is found of them.
pub(super) async fn keep<S: Service>(
    context: &Context<S>,
    observed: &Observed<'_>,
    names: &BTreeSet<String>,
    finding: Option<Finding>,
) -> Result<Pass, Error> {
    let drain = context.service.drain(observed, &[]).await;
    let (mut applied, mut endpoints) = (observed.applied(), observed.endpoints());
    applied.retain(|applied| names.contains(&applied.service));
    endpoints.retain(|endpoint| names.contains(endpoints::instance(endpoint)));
    let status = Status {
        finding,
        applied,
        endpoints,
        drained: drain.drained,
    };
    if status.finding.is_some() {
        write_and_warn(context, observed, status).await?;
    } else {
        status::write_keeping_condition(&context.site.client, S::IDENTITY, observed, status).await?;
    }
    Ok(Pass {
        requeue: drain.requeue,
        refused: drain.forbidden,
    })
}

#[cfg(test)]
mod tests {
    use api::SIPCluster;
    use serde_json::json;

    use super::{super::identity::BALANCERS, *};

    #[test]
    fn a_condition_is_outdated_once_it_names_what_is_dropped() {
        let (kept, dropped) = ("loadbalancer-worker-shop", "loadbalancer-worker-shop-b");
        for (status, message, expected) in [
            ("False", format!("quota; until then, this stays: {dropped}"), true),
            ("False", format!("{kept}: the image cannot be pulled"), false),
            ("True", format!("{kept}, {dropped}: no member answers"), false),
        ] {
            let applied = [kept, dropped]
                .map(|service| json!({"service": service, "epoch": 1, "revision": 1, "generation": 1}));
            let condition = json!({
                "type": "LoadBalancerReady", "status": status, "reason": "Progressing", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            let object = json!({
                "metadata": {"namespace": "tenant", "name": "shop", "uid": "u"}, "spec": {},
                "status": {"applied": applied, "conditions": [condition]},
            });
            let object: SIPCluster = serde_json::from_value(object).unwrap();
            let observed = Observed::among(&object, BALANCERS, Vec::new(), &[]);
            assert_eq!(names_dropped(&observed, &[kept]), expected, "{message}");
            assert!(!names_dropped(&observed, &[kept, dropped]), "nothing is dropped");
        }
    }

    #[test]
    fn a_message_names_whole_names_only() {
        let message = "quota; until pods are available, this stays: lb-shop-1, lb-shop-2";
        for (name, expected) in [
            ("lb-shop-1", true),
            ("lb-shop-2", true),
            ("lb-shop", false),
            ("shop-1", false),
        ] {
            assert_eq!(has_name(message, name), expected, "{name}");
        }
    }

    #[test]
    fn a_spec_that_waits_is_reconciled_again() {
        let (sooner, later) = (WAITING_RESYNC / 2, WAITING_RESYNC * 10);
        for (requeue, names_entries, expected) in [
            (None, false, None),
            (Some(later), false, Some(later)),
            (None, true, Some(WAITING_RESYNC)),
            (Some(sooner), true, Some(sooner)),
            (Some(later), true, Some(WAITING_RESYNC)),
        ] {
            assert_eq!(next_of_waiting(requeue, names_entries), expected);
        }
    }
}
