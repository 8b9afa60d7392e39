//! From what is observed to what is done. Pure: the same observation gives the same plan.

use api::{
    SIPCluster, TenantNodes,
    conditions::{self, Reason},
};
use kit::{
    conditions::{Finding, find},
    events::EventReason,
    placement::ClusterId,
    scheduler_client,
};

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
        State::Invalid(why) => Plan {
            events: vec![Event::new(EventReason::InvalidSpec, &**why)],
            ..not_declared(observation, Reason::InvalidSpec, why)
        },
        State::SiteFull(status) => {
            let before = refused_before(observation.object);
            let why = before.map_or_else(|| scheduler_client::reason(status), str::to_owned);
            not_declared(observation, Reason::SiteFull, &why)
        }
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

/// A spec that cannot be acted on, or that the scheduler does not take: the condition gives the reason. What runs stays as it is.
fn not_declared(observation: &Observation<'_>, reason: Reason, why: &str) -> Plan {
    let unchanged = [
        conditions::HOSTS_LABELED,
        conditions::CLUSTER_API_SYNCED,
        conditions::SERVICES_SKIPPED,
    ];
    Plan {
        status: Some(Draft::Fixed(OwnStatus {
            findings: vec![
                Finding::no(conditions::SCHEDULED, reason, why),
                Finding::no(conditions::READY, conditions::ready::UNSCHEDULABLE, why),
            ]
            .into_iter()
            .chain(findings::unchanged(observation.object, &unchanged))
            .collect(),
            tenant_nodes: known_nodes(observation.object),
            ..OwnStatus::default()
        })),
        ..Plan::nothing(ClusterId::for_object(observation.object))
    }
}

/// What is known of the tenant's Nodes: load balancers use it.
fn known_nodes(object: &SIPCluster) -> Option<TenantNodes> {
    object.status.as_ref()?.tenant_nodes.clone()
}

/// The message in the status, if a full site has refused this generation before. The message of each new refusal has counts that change with
/// every cluster of the site, so taking it would write the status again and again.
fn refused_before(object: &SIPCluster) -> Option<&str> {
    let scheduled = find(&object.status.as_ref()?.conditions, conditions::SCHEDULED)?;
    let is_same = scheduled.reason == Reason::SiteFull.as_str()
        && scheduled.observed_generation == object.metadata.generation;
    is_same.then_some(&*scheduled.message)
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
