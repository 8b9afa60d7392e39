//! Plans for a `SIPCluster` that is being deleted: the agent releases its hosts as in any other case, then each agent deletes its own children,
//! then the cluster agent removes the finalizer.

use std::{collections::BTreeSet, time::Duration};

use api::{Cluster, Placement};
use kit::{
    conditions::{REMOVED, find},
    config::Section,
    placement::ClusterId,
};

use super::{
    advice::FOREIGN_CONSUMER_OF_DELETED,
    label_or_release::{Assessment, GONE, UNWRITABLE},
    members::{self, Assessed},
    observation::{Evidence, Holding, Observation},
    plan::{FinalizerAction, NodesAction, Plan},
    services,
    status::{self, OwnStatus},
    status_draft::{self, Draft, Progress},
};

/// Pause after which the agent lists again the pods that may route to hosts, where no agent reports them.
const POD_LIST_INTERVAL: Duration = Duration::from_secs(5);

/// Plans a pass over a cluster that releases its hosts.
pub(super) fn releasing(observation: &Observation<'_>, holding: &Holding, evidence: &Evidence) -> Plan {
    let object = observation.object;
    let placement = &holding.placement;
    let epoch = placement.position().epoch();
    let members = members::assess_all(holding, |member| match evidence {
        Evidence::Reported => services::drained(observation.not_installed, object, epoch, member),
        Evidence::Listed(routed_by) => routed_by.is_none(),
    });
    let is_held = status::has_placement(object, placement);
    Plan {
        cluster_api: holding.cluster_api.clone(),
        // Every Node of the tenant's cluster goes, so pods have no Node to move to.
        nodes: NodesAction::Forget,
        watched: Some(members::hosts(&members)),
        hosts: is_held.then(|| members::host_actions(holding, &members)),
        status_follows: is_held && members::writes_hosts(&members),
        status: Some(Draft::Deleting(Progress {
            placement: status::placement(placement),
            members: members.len(),
            waits: members
                .iter()
                .filter_map(|member| wait_reason(object, evidence, member))
                .collect(),
            blocked: members.iter().any(|member| {
                matches!(
                    member.assessment,
                    Assessment::Blocked(_)
                        | Assessment::Gone
                        | Assessment::ForeignConsumer(_)
                        | Assessment::Unwritable
                )
            }),
        })),
        requeue: matches!(evidence, Evidence::Listed(Some(_))).then_some(POD_LIST_INTERVAL),
        ..Plan::nothing(placement.cluster().clone())
    }
}

/// Prefix of a message that concerns an earlier incarnation or address of a host that the cluster still holds.
const FORMER: &str = "its former address ";

/// What the release of a member's host waits for, for messages; `None` if it waits for nothing.
fn wait_reason(
    object: &api::SIPCluster,
    evidence: &Evidence,
    Assessed {
        member,
        assessment,
        is_former,
    }: &Assessed<'_>,
) -> Option<String> {
    let of_what = if *is_former { FORMER } else { "" };
    let why = match (assessment, evidence) {
        (
            Assessment::Waits(why)
            | Assessment::InUse(why)
            | Assessment::NodeDrains(why)
            | Assessment::Blocked(why),
            _,
        ) => why.clone(),
        (Assessment::ForeignConsumer(why), _) => format!("{why}{FOREIGN_CONSUMER_OF_DELETED}"),
        (Assessment::Gone, _) => GONE.to_owned(),
        (Assessment::Unwritable, _) => UNWRITABLE.to_owned(),
        (Assessment::StillRouted, Evidence::Listed(Some(pod))) => {
            format!("{of_what}waits until {pod} is gone")
        }
        (Assessment::StillRouted, Evidence::Reported | Evidence::Listed(None)) => {
            let why = services::describe_drain(object, member, *is_former);
            format!("{of_what}{why}")
        }
        (Assessment::Settled | Assessment::Due(_), _) => return None,
    };
    Some(format!("{}: {why}", member.host()))
}

/// Plans a pass over a cluster that no longer holds anything: the other agents delete their children, and the finalizer is removed.
pub(super) fn released(observation: &Observation<'_>) -> Plan {
    let object = observation.object;
    let nothing = Plan {
        watched: Some(BTreeSet::new()),
        nodes: NodesAction::Forget,
        ..Plan::nothing(ClusterId::for_object(object))
    };
    let waiting = remaining_sections(observation);
    if waiting.is_empty() {
        return Plan {
            finalizer: Some(FinalizerAction::Remove),
            ..nothing
        };
    }
    let waiting: Vec<String> = waiting.iter().map(ToString::to_string).collect();
    let why = format!(
        "every host is released; waiting for the deletion of: {}",
        waiting.join(", ")
    );
    let held = status::placement_in_status(object);
    Plan {
        status: Some(Draft::Fixed(OwnStatus {
            findings: status_draft::deleting(&why, false),
            placement: Some(Placement {
                epoch: held.map_or(0, |held| held.epoch),
                revision: held.map_or(0, |held| held.revision),
                generation: object.metadata.generation.unwrap_or_default(),
                members: Vec::new(),
                former_release: None,
                former_since: None,
            }),
            tally: None,
            tenant_nodes: None,
        })),
        requeue: Some(services::AGENT_TIMEOUT + Duration::from_secs(1)),
        ..nothing
    }
}

/// Sections whose agents have answered before and have not reported that their children are removed. An agent that does not
/// answer within a minute after the status no longer has members, or has no rights in the namespace, is not waited for: the garbage collector deletes
/// what the cluster owns.
fn remaining_sections(observation: &Observation<'_>) -> Vec<Section> {
    let Observation {
        object,
        not_installed,
        now,
        state: _,
    } = observation;
    let Ok(cluster) = Cluster::parse(object) else {
        return Vec::new();
    };
    let since = status::released_since(object);
    let waited = since.map_or(Duration::ZERO, |since| services::waited(since, *now));
    if waited > services::AGENT_TIMEOUT {
        return Vec::new();
    }
    let (gating, _) = services::sections(&cluster, not_installed);
    let remains = |section: &Section| {
        find(status::conditions(object), services::condition_type(*section))
            .is_some_and(|condition| condition.reason != REMOVED)
            && !services::lacks_rights(object, *section)
    };
    gating.into_iter().filter(remains).collect()
}
