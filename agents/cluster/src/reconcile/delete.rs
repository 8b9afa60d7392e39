//! A `SIPCluster` that is being deleted: hosts are released as they are by every other way, then each agent deletes its own
//! children, then the finalizer goes.

use std::time::Duration;

use api::{
    Cluster, SIPCluster,
    conditions::{self, Reason},
};
use k8s_openapi::jiff::Timestamp;
use kit::{
    conditions::{Finding, REMOVED, find},
    placement::ClusterId,
};
use kube::runtime::controller::Action;

use super::{
    Context, Error, act_on_hosts, finalizer, findings, holds,
    hosts::{self, Step},
    key,
    need::Need,
    never_older, services, stale, status, write,
};

/// Takes the next step.
pub(super) async fn run(object: &SIPCluster, context: &Context) -> Result<Action, Error> {
    let reference = ClusterId::for_object(object);
    let placement = match context.scheduler.release(&reference).await {
        Ok(Some(placement)) => placement,
        Ok(None) => return finish(object, context).await,
        Err(status) => return Err(stale(object, context, status).await),
    };
    never_older(object, &placement)?;
    context.triggers.holds(
        &key(object),
        placement
            .members()
            .iter()
            .map(|member| member.host().key().clone())
            .collect(),
    );
    let epoch = placement.position().epoch();
    let steps: Vec<Step<'_>> = placement
        .members()
        .iter()
        .map(|member| {
            let drained = services::drained(&context.not_installed, object, epoch, member);
            Step::of(&reference, member, &context.inventory, drained)
        })
        .collect();
    let own = |refused: &[(hosts::Key, String)]| status::Own {
        findings: conditions_of(&progress(object, &steps, refused), is_stuck(&steps, refused)),
        placement: Some(status::placement(&placement)),
        ..status::Own::default()
    };
    // A status that says what is given back is written before it is done, and then again only if that was refused.
    let held = holds(object, &placement);
    let written = if held {
        None
    } else {
        write(object, context, own(&[])).await?
    };
    let (again, refused) = act_on_hosts(object, &placement, &steps, context).await?;
    if held || !refused.is_empty() {
        write(written.as_ref().unwrap_or(object), context, own(&refused)).await?;
    }
    Ok(again.map_or_else(Action::await_change, Action::requeue))
}

/// Whether something is in the way that does not pass by itself.
fn is_stuck(steps: &[Step<'_>], refused: &[(hosts::Key, String)]) -> bool {
    !refused.is_empty() || steps.iter().any(|step| matches!(step.need, Need::Blocked(_)))
}

fn progress(object: &SIPCluster, steps: &[Step<'_>], refused: &[(hosts::Key, String)]) -> String {
    let refused = (!refused.is_empty()).then(|| findings::refused_in_words(refused));
    let waits: Vec<String> = steps
        .iter()
        .filter_map(|step| {
            let why = match &step.need {
                Need::Waits(why) | Need::Blocked(why) => why.clone(),
                Need::Drains => services::drains(object, step.member),
                Need::Nothing | Need::Label | Need::Unlabel | Need::Confirm | Need::ConfirmGone => {
                    return None;
                }
            };
            let hosts::Key { namespace, name } = step.member.host().key().clone();
            Some(format!("{namespace}/{name}: {why}"))
        })
        .chain(refused)
        .collect();
    if waits.is_empty() {
        format!("{} hosts are being given back", steps.len())
    } else {
        format!(
            "{} hosts are being given back; {}",
            steps.len(),
            findings::named(&waits)
        )
    }
}

fn conditions_of(why: &str, stuck: bool) -> Vec<Finding> {
    let reason = if stuck {
        conditions::ready::UNABLE_TO_DECOMMISSION
    } else {
        conditions::ready::PROGRESSING
    };
    vec![
        Finding::no(
            conditions::SCHEDULED,
            Reason::Deleting,
            "the cluster is being deleted",
        ),
        Finding::no(conditions::HOSTS_LABELED, Reason::Waiting, why),
        Finding::no(conditions::READY, reason, why),
    ]
}

/// Nothing is held any more: the other agents delete their children, and the finalizer goes.
async fn finish(object: &SIPCluster, context: &Context) -> Result<Action, Error> {
    context
        .triggers
        .holds(&key(object), std::collections::BTreeSet::new());
    let waiting = children(object, context);
    let held = object
        .status
        .as_ref()
        .and_then(|status| status.placement.as_ref());
    let empty = api::Placement {
        epoch: held.map_or(0, |held| held.epoch),
        revision: held.map_or(0, |held| held.revision),
        generation: object.metadata.generation.unwrap_or_default(),
        members: Vec::new(),
    };
    if waiting.is_empty() {
        finalizer::remove(&context.client, object).await?;
        return Ok(Action::await_change());
    }
    let why = format!(
        "every host is given back; waiting for the removal of: {}",
        waiting.join(", ")
    );
    let own = status::Own {
        findings: conditions_of(&why, false),
        placement: Some(empty),
        ..status::Own::default()
    };
    write(object, context, own).await?;
    Ok(Action::requeue(services::ANSWER_WITHIN + Duration::from_secs(1)))
}

/// Sections whose agents have answered before and have not said that their children are removed. An agent that
/// does not answer within a minute is not waited for: the children's owner references see to them.
fn children(object: &SIPCluster, context: &Context) -> Vec<String> {
    let Ok(cluster) = Cluster::parse(object) else {
        return Vec::new();
    };
    let deleted = object.metadata.deletion_timestamp.as_ref();
    let waited = deleted.map_or(Duration::ZERO, |time| services::waited(time, Timestamp::now()));
    if waited > services::ANSWER_WITHIN {
        return Vec::new();
    }
    let said = object
        .status
        .as_ref()
        .map(|status| &*status.conditions)
        .unwrap_or_default();
    let (gating, _) = services::sections(&cluster, &context.not_installed);
    gating
        .into_iter()
        .filter(|section| find(said, services::condition_of(*section)).is_some_and(|c| c.reason != REMOVED))
        .map(|section| section.to_string())
        .collect()
}
