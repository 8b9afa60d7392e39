//! From what is observed to what is done. Pure: the same observation gives the same plan.

use api::conditions::{self, Reason};
use kit::{conditions::Finding, events::EventReason, placement::ClusterId};

use super::{
    cluster_deletion, declared,
    event::Event,
    findings,
    label_or_release::Assessment,
    members,
    observation::{Holding, Observation, State},
    plan::{FinalizerAction, NodesAction, Plan},
    status::OwnStatus,
    status_draft::Draft,
};

/// Plans one pass over a `SIPCluster`.
pub(super) fn plan(observation: &Observation<'_>) -> Plan {
    match &observation.state {
        State::Invalid(why) => invalid(observation, why),
        // The watch shows the finalizer, and the next pass declares the cluster.
        State::WithoutFinalizer => Plan {
            finalizer: Some(FinalizerAction::Add),
            ..Plan::nothing(ClusterId::for_object(observation.object))
        },
        State::Declared(cluster, holding) => declared::plan(observation, cluster, holding),
        State::Releasing(holding, evidence) => cluster_deletion::releasing(observation, holding, evidence),
        State::Released => cluster_deletion::released(observation),
    }
}

/// A spec that cannot be acted on: the condition and an Event give the reason. What runs stays as it is.
fn invalid(observation: &Observation<'_>, why: &str) -> Plan {
    let unchanged = [
        conditions::HOSTS_LABELED,
        conditions::CLUSTER_API_SYNCED,
        conditions::SERVICES_SKIPPED,
    ];
    Plan {
        status: Some(Draft::Fixed(OwnStatus {
            findings: vec![
                Finding::no(conditions::SCHEDULED, Reason::InvalidSpec, why),
                Finding::no(conditions::READY, conditions::ready::UNSCHEDULABLE, why),
            ]
            .into_iter()
            .chain(findings::unchanged(observation.object, &unchanged))
            .collect(),
            ..OwnStatus::default()
        })),
        events: vec![Event::new(EventReason::InvalidSpec, why)],
        ..Plan::nothing(ClusterId::for_object(observation.object))
    }
}

/// Plans one pass over a cluster without `SIPCluster`: only what is releasing is acted on, and there is no status. `drained`:
/// no pod routes to its hosts. Returns whether a host waits for that.
pub(super) fn plan_orphan(holding: &Holding, drained: bool) -> (Plan, bool) {
    let mut members = members::assess_all(holding, |_| drained);
    members.retain(|member| member.member.is_releasing());
    let drains = members
        .iter()
        .any(|member| member.assessment == Assessment::StillRouted);
    let plan = Plan {
        cluster_api: holding.cluster_api.clone(),
        nodes: NodesAction::Forget,
        watched: Some(members::hosts(&members)),
        hosts: Some(members::host_actions(holding, &members)),
        ..Plan::nothing(holding.placement.cluster().clone())
    };
    (plan, drains)
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
