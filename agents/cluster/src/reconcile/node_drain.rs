//! Whether the release of a host waits for its Node in the tenant's cluster, and what is done to that Node. Pure.
//!
//! No timeout releases a host: it only ends the wait for the Node. Every other condition of a release applies as it does without a Node, and a
//! host that may not be released stays, whether or not its Node is drained.

use std::{collections::BTreeSet, time::Duration};

use api::{Cluster, MemberState, SIPCluster};
use k8s_openapi::jiff::Timestamp;
use kit::{
    events::EventReason,
    placement::{HostId, Member},
    tenant::secret::User,
};
use kube::Resource as _;

use super::{
    event::Event,
    host_actions::Verb,
    label_or_release::Assessment,
    members::{Assessed, is_succeeded},
    observation::{Holding, Nodes},
    status,
};
use crate::{
    inventory::{ObservedHost, SipLabels},
    tenant_nodes::{Action, DELETION_TIMEOUT, Drain, Problem, Report, Wanted, WantedMember},
};

/// Groups of the kinds by which Cluster API uses a host: a `HostClaim` may lead to a Machine.
const CLUSTER_API: [&str; 2] = ["infrastructure.cluster.x-k8s.io", "metal3.io"];

/// The plan of a pass for Nodes.
#[derive(Debug)]
pub(super) struct Draining {
    /// The Nodes to poll, and what to do to them; `None` where the spec names no kubeconfig, or no member can have a Node.
    pub(super) wanted: Option<Wanted>,
    /// When the first wait ends.
    pub(super) requeue: Option<Duration>,
    /// Hosts whose Node is not drained and deleted when they are released now, each with the Event that states it.
    pub(super) left: Vec<(HostId, Event)>,
}

/// What is known of a member that leaves.
#[derive(Clone, Copy, Debug)]
struct Leaving<'a> {
    assessment: &'a Assessment,
    host: Option<&'a ObservedHost>,
    drain: Option<&'a Drain>,
    problem: Option<&'a Problem>,
    /// For how long it has been leaving; `None` where that is not known.
    waited: Option<Duration>,
    drain_for: Duration,
    /// How long the host still waits for the deletion of its Node, once the agent wants to delete it.
    deletion: Duration,
}

/// What is done to the Node of a member that leaves, and what the host waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Judged {
    action: Action,
    wait: Wait,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Wait {
    /// The host does not wait for its Node.
    No,
    /// The host waits for this (for messages), at most for this long.
    For(String, Duration),
    /// The host waits no longer, though its Node still exists; why, for messages.
    Over(String),
}

/// Plans the Node of every member, and makes hosts wait whose Node is not drained or deleted yet.
pub(super) fn plan(
    object: &SIPCluster,
    cluster: &Cluster,
    (holding, members): (&Holding, &mut [Assessed<'_>]),
    now: Timestamp,
) -> Draining {
    let Some(secret) = cluster.kubeconfig_secret() else {
        return Draining {
            wanted: None,
            requeue: None,
            left: Vec::new(),
        };
    };
    let Nodes { report, drain_for } = &holding.nodes;
    let among = holding.placement.members();
    let (mut wanted, mut waits, mut left) = (Vec::new(), Vec::new(), Vec::new());
    for assessed in members.iter_mut() {
        // The cluster still holds the host, by a newer member.
        if assessed.is_former || is_succeeded(assessed.member, among) {
            continue;
        }
        let (member, uid) = (assessed.member, assessed.member.host().uid());
        let action = if member.is_releasing() {
            let judged = judge(Leaving {
                assessment: &assessed.assessment,
                host: holding.hosts.get(member.host().key()),
                drain: report.drains.get(uid),
                problem: report.problem.as_ref(),
                waited: waited(object, member, now),
                drain_for: *drain_for,
                deletion: report.deletions.get(uid).copied().unwrap_or(DELETION_TIMEOUT),
            });
            match judged.wait {
                Wait::No => {}
                Wait::For(why, at_most) => {
                    assessed.assessment = Assessment::NodeDrains(why);
                    waits.push(at_most);
                }
                Wait::Over(why) => {
                    let note = format!("{} is released although {why}", member.host());
                    left.push((
                        member.host().clone(),
                        Event::new(EventReason::NodeNotDrained, note),
                    ));
                }
            }
            judged.action
        } else {
            Action::Keep
        };
        wanted.push(wanted_member(member, action));
    }
    let known = object
        .status
        .as_ref()
        .and_then(|status| status.tenant_nodes.clone());
    Draining {
        // Without members no Node is a member's.
        wanted: (!wanted.is_empty()).then(|| Wanted {
            object: object.object_ref(&()),
            user: User::from_spec(cluster),
            secret: secret.to_owned(),
            members: wanted,
            known: known.unwrap_or_default(),
        }),
        requeue: waits.into_iter().min(),
        left,
    }
}

/// `status.tenantNodes` by the report of the polls; `None` if the cluster has no Nodes to poll.
pub(super) fn tenant_nodes(
    object: &SIPCluster,
    wanted: Option<&Wanted>,
    report: &Report,
) -> Option<api::TenantNodes> {
    wanted?;
    if !report.is_polled {
        // No poll of this process has ended yet: the status stays.
        return object
            .status
            .as_ref()
            .and_then(|status| status.tenant_nodes.clone());
    }
    Some(api::TenantNodes {
        problem: report.lasting_problem.clone(),
        not_preferred: report.not_preferred.clone(),
    })
}

fn wanted_member(member: &Member, action: Action) -> WantedMember {
    WantedMember {
        host: member.host().clone(),
        role: member.role().to_owned(),
        addresses: member.addresses().collect::<BTreeSet<_>>(),
        is_balanced: !member.is_releasing(),
        action,
    }
}

/// For how long a member has been leaving, by the status: so another process counts from the same time.
fn waited(object: &SIPCluster, member: &Member, now: Timestamp) -> Option<Duration> {
    let held = status::placement_in_status(object)?.members.iter();
    let mut held =
        held.filter(|held| held.uid == member.host().uid() && held.state == MemberState::Releasing);
    let since = held.next()?.since.as_ref()?.0;
    Some(now.duration_since(since).try_into().unwrap_or_default())
}

fn judge(leaving: Leaving<'_>) -> Judged {
    let Leaving {
        assessment,
        host,
        drain: drain_of_node,
        problem,
        waited,
        drain_for,
        deletion,
    } = leaving;
    let go = |action| Judged {
        action,
        wait: Wait::No,
    };
    // A host that never had labels never had a Node.
    let was_never_given = host.is_some_and(|host| *host.sip_labels() == SipLabels::default());
    let (false, Some(waited)) = (
        drain_for.is_zero() || is_of_cluster_api(host) || was_never_given,
        waited,
    ) else {
        return go(Action::Leave);
    };
    match assessment {
        // The release waits for its consumer or for a pod of a load balancer, too; the Node is drained in the meantime.
        Assessment::InUse(_) | Assessment::StillRouted => return go(Action::Drain),
        Assessment::Due(action) if matches!(action.verb(), Verb::Unlabel | Verb::ConfirmGone) => {}
        Assessment::Settled
        | Assessment::Due(_)
        | Assessment::Blocked(_)
        | Assessment::ForeignConsumer(_)
        | Assessment::Waits(_)
        | Assessment::Gone
        | Assessment::NodeDrains(_)
        | Assessment::Unwritable => return go(Action::Leave),
    }
    let drain = |why| Judged {
        action: Action::Drain,
        wait: Wait::For(why, drain_for.saturating_sub(waited)),
    };
    let delete = |why| {
        let left = drain_for.saturating_sub(waited).max(deletion);
        Judged {
            action: Action::Delete,
            wait: if left.is_zero() {
                Wait::Over(why)
            } else {
                Wait::For(why, left)
            },
        }
    };
    let is_over = waited >= drain_for;
    let seconds = drain_for.as_secs();
    match (drain_of_node, problem) {
        // The host does not wait for a problem that only a user can end; the status states it.
        (Some(Drain::NoNode | Drain::ClusterApi), _) | (None, Some(Problem { passes: false, .. })) => {
            go(Action::Drain)
        }
        (Some(Drain::Drained { node }), _) => {
            delete(format!("its Node {node} is drained and not deleted yet"))
        }
        (Some(Drain::Deleting { node }), _) => {
            delete(format!("the deletion of its Node {node} is not complete"))
        }
        (Some(Drain::Draining { node, left }), _) if is_over => delete(format!(
            "its Node {node} was drained for {seconds} s, and is not deleted yet: {left}"
        )),
        (Some(Drain::Draining { node, left }), _) => {
            drain(format!("its Node {node} is being drained: {left}"))
        }
        (Some(Drain::Refused { node, why }), _) => Judged {
            action: Action::Drain,
            wait: Wait::Over(format!(
                "the tenant's API server refuses to drain its Node {node}: {why}"
            )),
        },
        (None, Some(Problem { message, .. })) if is_over => {
            delete(format!("its Node cannot be deleted now: {message}"))
        }
        (None, Some(Problem { message, .. })) => drain(format!("its Node cannot be drained now: {message}")),
        // No poll of this process has reached the Node.
        (None, None) if is_over => delete("its Node is to be deleted".to_owned()),
        (None, None) => drain("its Node is to be drained".to_owned()),
    }
}

/// Whether Cluster API uses a host, and so drains its Node itself.
fn is_of_cluster_api(host: Option<&ObservedHost>) -> bool {
    let consumer = host.and_then(ObservedHost::consumer);
    let version = consumer.and_then(|consumer| consumer.api_version.as_deref());
    let group = version
        .and_then(|version| version.split_once('/'))
        .map(|(group, _)| group);
    group.is_some_and(|group| CLUSTER_API.contains(&group))
}

#[cfg(test)]
mod tests;
