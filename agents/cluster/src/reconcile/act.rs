//! Executes a plan and collects the outcomes. Decides nothing.

use std::time::{Duration, Instant};

use api::{BareMetalHost, ConsumerReference, Ownership, SIPCluster, conditions::Reason};
use futures::{FutureExt as _, StreamExt as _};
use kit::{
    apply,
    events::EventReason,
    placement::{ClusterId, HostId, ObjectKey},
};
use kube::Api;

use super::{
    context::{Context, MANAGER},
    error::Error,
    event::Event,
    finalizer,
    host_actions::{ConditionalPatch, HostAction, Verb},
    machine::{self, DELETE_ANNOTATION},
    metrics::HostWrite,
    named_objects::refusal,
    outcomes::Outcomes,
    plan::{FinalizerAction, MachineAction, NodesAction, Plan},
    scaling::{self, Scale, Spec},
    served_cluster::ServedCluster,
    write_probe::{Probe, probe},
};
use crate::{
    host_events::HostEvent,
    inventory::{Loss, Presence},
    late_claims::{Evidence, Released},
};

/// Concurrent writes of hosts of one cluster.
const MAX_CONCURRENT_WRITES: usize = 16;
/// Pause after which a host or Machine that changed under a write is reconciled again, should the watch not have delivered it by then.
const CHANGED_REQUEUE_DELAY: Duration = Duration::from_secs(2);
/// Pause after which a Machine that was marked is read again, for the replicas that wait for that: nothing watches Machines.
const MARKED_REQUEUE_DELAY: Duration = Duration::from_secs(1);
/// Pause after which a write that the API server refused is retried.
const REFUSED_REQUEUE_DELAY: Duration = Duration::from_secs(30);

/// Executes a plan for a cluster; `object`: its `SIPCluster`, if there is one.
pub(super) async fn act(object: Option<&SIPCluster>, plan: &Plan, context: &Context) -> Outcomes {
    if let Some(hosts) = &plan.watched {
        context.triggers.set_hosts(plan.cluster.key(), hosts.clone());
        if hosts.is_empty() {
            context.late_claims.forget(plan.cluster.key());
        }
    }
    let wanted = match &plan.nodes {
        NodesAction::Unchanged => None,
        NodesAction::Want(wanted) => Some(Some((**wanted).clone())),
        NodesAction::Forget => Some(None),
    };
    if let Some(wanted) = wanted {
        let nodes = &context.tenant_nodes;
        nodes.set_wanted(plan.cluster.key(), wanted, Instant::now());
    }
    let mut outcomes = Outcomes::default();
    if let (Some(object), Some(action)) = (object, plan.finalizer) {
        let result = match action {
            FinalizerAction::Add => finalizer::add(&context.client, object).await,
            FinalizerAction::Remove => finalizer::remove(&context.client, object).await,
        };
        outcomes.error = result.err();
    }
    for action in &plan.machines {
        act_on_machine(
            (&plan.cluster, action),
            plan.follows_machines,
            context,
            &mut outcomes,
        )
        .await;
    }
    if let Some(actions) = &plan.hosts {
        let released = act_on_hosts((&plan.cluster, actions), context, &mut outcomes).await;
        for released in &released {
            outcomes.released(released.release.host(), &plan.nodes_left);
        }
        if let Err(error) = confirm(plan, released, context).await {
            outcomes.error.get_or_insert(error);
        }
    }
    let spec = Spec {
        cluster: plan.cluster.clone(),
        generation: object.and_then(|object| object.metadata.generation),
    };
    for scale in &plan.scales {
        act_on_replicas((&spec, scale), context, &mut outcomes).await;
    }
    outcomes
}

async fn act_on_replicas((spec, scale): (&Spec, &Scale), context: &Context, outcomes: &mut Outcomes) {
    match scaling::set(&context.client, scale).await {
        Ok(()) => {
            context.contests.set(spec, scale.target(), Instant::now());
            let event = Event::new(EventReason::ReplicasSet, scale.to_string());
            outcomes.events.push(event);
        }
        // Its controllers write it often: it is read again.
        Err(error) if matches!(apply::code(&error), Some(404 | 409)) => {
            outcomes.requeue_in(CHANGED_REQUEUE_DELAY);
            let why = scale.not_set("the object has changed since it was read");
            outcomes.unscaled.push((Reason::Waiting, why));
        }
        Err(error) => {
            outcomes.requeue_in(REFUSED_REQUEUE_DELAY);
            let why = scale.not_set(&apply::reason(&error));
            let event = Event::new(EventReason::ReplicasNotSet, &why);
            outcomes.events.push(event);
            outcomes.unscaled.push((Reason::Refused, why));
        }
    }
}

/// `follows`: replicas wait for the Machine to be marked.
async fn act_on_machine(
    (cluster, action): (&ClusterId, &MachineAction),
    follows: bool,
    context: &Context,
    outcomes: &mut Outcomes,
) {
    let cluster = cluster.key();
    let mut failed = |what: &str, error: &kube::Error| {
        // Cluster API writes its Machines often: that one has changed since it was read is no failure.
        if apply::code(error) == Some(409) {
            outcomes.requeue_in(CHANGED_REQUEUE_DELAY);
            return;
        }
        let note = format!("annotation {DELETE_ANNOTATION} {what}: {}", refusal(error));
        outcomes
            .events
            .push(Event::new(EventReason::MachineNotAnnotated, note));
        outcomes.requeue_in(REFUSED_REQUEUE_DELAY);
    };
    match action {
        MachineAction::Prioritize(machine) => {
            if let Err(error) = machine::prioritize(&context.client, cluster, machine).await {
                failed(&format!("cannot be set on Machine {machine}"), &error);
            } else if follows && !machine.is_marked() {
                outcomes.requeue_in(MARKED_REQUEUE_DELAY);
            }
        }
        MachineAction::Restore { host, machine } => {
            if let Err(error) = machine::restore(&context.client, cluster, machine).await {
                failed(&format!("cannot be removed from Machine {machine}"), &error);
                outcomes.stuck.insert(host.clone(), machine.clone());
            }
        }
    }
}

/// The outcome of an action on a host.
enum Outcome {
    /// It is on the API server, or was found there.
    Done,
    /// The host has changed since it was observed, or is gone: the watch delivers that.
    Changed,
    /// It failed; what cannot be done, and why, for messages.
    Refused(String),
}

/// Executes the actions, several at once. Returns the releases that are on the API server.
async fn act_on_hosts(
    (cluster, actions): (&ClusterId, &[HostAction]),
    context: &Context,
    outcomes: &mut Outcomes,
) -> Vec<Released> {
    let before = Instant::now();
    // Boxed and collected first: the compiler cannot see that a lazily mapped stream of borrows is Send.
    let acting: Vec<_> = actions
        .iter()
        .map(|action| act_on_host(action, context).boxed())
        .collect();
    let results: Vec<Outcome> = futures::stream::iter(acting)
        .buffered(MAX_CONCURRENT_WRITES)
        .collect()
        .await;
    let mut released = Vec::new();
    for (action, outcome) in actions.iter().zip(results) {
        if action.verb().writes() {
            context.metrics.host_written(match outcome {
                Outcome::Done => HostWrite::Done,
                Outcome::Changed => HostWrite::Changed,
                Outcome::Refused(_) => HostWrite::Refused,
            });
        }
        match outcome {
            Outcome::Done => {
                if let Some(event) = host_event(action, cluster) {
                    context.host_events.add(event);
                }
                released.extend(action.release().map(|release| Released {
                    release: release.clone(),
                    evidence: evidence(action.verb(), before),
                }));
            }
            Outcome::Changed => outcomes.requeue_in(CHANGED_REQUEUE_DELAY),
            Outcome::Refused(why) => {
                outcomes.requeue_in(REFUSED_REQUEUE_DELAY);
                outcomes.refused.push((action.host().key().clone(), why));
            }
        }
    }
    released
}

/// The Event on the host of an action that was executed.
fn host_event(action: &HostAction, cluster: &ClusterId) -> Option<HostEvent> {
    let key = cluster.key();
    let (reason, note) = match action.verb() {
        Verb::Label => (
            EventReason::Labeled,
            format!("claimed and labelled for SIPCluster {key}"),
        ),
        Verb::Relabel | Verb::RelabelClaimed => (
            EventReason::Relabeled,
            format!("labels of SIPCluster {key} are restored"),
        ),
        Verb::Adopt => (
            EventReason::Adopted,
            format!(
                "annotation {} is set as on SIPCluster {key}",
                api::annotations::CLUSTER_API_CLUSTER
            ),
        ),
        Verb::Unlabel => (
            EventReason::Released,
            format!("the labels of SIPCluster {key} are removed"),
        ),
        Verb::Confirm | Verb::ConfirmGone => return None,
    };
    Some(HostEvent {
        host: action.host().clone(),
        cluster: cluster.clone(),
        reason,
        note,
    })
}

fn evidence(verb: Verb, before: Instant) -> Evidence {
    match verb {
        Verb::ConfirmGone => Evidence::Gone,
        Verb::Confirm => Evidence::Seen,
        Verb::Unlabel | Verb::Label | Verb::Relabel | Verb::RelabelClaimed | Verb::Adopt => {
            Evidence::Written { before }
        }
    }
}

async fn act_on_host(action: &HostAction, context: &Context) -> Outcome {
    let ObjectKey { namespace, name } = action.host().key();
    let hosts: Api<BareMetalHost> = Api::namespaced(context.client.clone(), namespace);
    let Some(ConditionalPatch {
        host,
        resource_version,
        change,
    }) = action.patch()
    else {
        return match action.verb() {
            Verb::ConfirmGone => confirm_gone(action.host(), context).await,
            Verb::Confirm
            | Verb::Unlabel
            | Verb::Label
            | Verb::Relabel
            | Verb::RelabelClaimed
            | Verb::Adopt => Outcome::Done,
        };
    };
    let condition = (host.uid(), resource_version);
    match apply::merge_metadata(&hosts, MANAGER, name, condition, change).await {
        Ok(_) => {
            let base = resource_version.to_owned();
            context.pending_writes.written(host.key().clone(), base);
            context.inventory.write_accepted(host.key());
            Outcome::Done
        }
        Err(error) if matches!(apply::code(&error), Some(404 | 409)) => Outcome::Changed,
        Err(error) => {
            if matches!(apply::code(&error), Some(403 | 422))
                && let Probe::Refused(message) = probe(&context.client, host).await
            {
                context.inventory.write_refused(host, &message);
            }
            Outcome::Refused(format!("cannot be written: {}", apply::reason(&error)))
        }
    }
}

async fn confirm_gone(host: &HostId, context: &Context) -> Outcome {
    let namespace = &host.key().namespace;
    let is_watched = context.host_namespaces.contains(namespace);
    let presence = Presence::find(&context.client, host).await;
    match presence.loss(namespace, is_watched) {
        Loss::Confirmed => Outcome::Done,
        Loss::Refuted => Outcome::Changed,
        Loss::Unconfirmed(why) => Outcome::Refused(format!("cannot be confirmed as gone: {why}")),
    }
}

/// Confirms to the scheduler which hosts were released and can no longer be claimed by late patches.
async fn confirm(plan: &Plan, released: Vec<Released>, context: &Context) -> Result<(), Error> {
    let served = ServedCluster::new(&plan.cluster, plan.cluster_api.as_ref());
    let is_own =
        |consumer: &ConsumerReference, label: Option<&str>| served.owns(consumer, label) == Ownership::Own;
    let (confirmed, failed) = context
        .late_claims
        .confirmed(&plan.cluster, released, &context.client, is_own)
        .await;
    if !confirmed.is_empty() {
        let answer = context.scheduler.confirm(&plan.cluster, &confirmed).await;
        answer.map_err(Error::scheduler)?;
    }
    failed.map_or(Ok(()), |error| {
        Err(Error::kubernetes("read a released host")(error))
    })
}
