//! The plan for a cluster that stays: its status gets what it holds, then its hosts are written.

use std::{collections::BTreeMap, time::Duration};

use api::{Cluster, Placement, conditions::Reason};
use kit::{
    conditions::{Finding, find},
    events::EventReason,
};

use super::{
    advice::is_surplus,
    draining::{self, Draining},
    event::Event,
    findings,
    machine::Machine,
    members,
    observation::{Holding, MachineLookup, Observation},
    placement_events,
    plan::{MachineAction, NodesAction, Plan},
    scaling, services,
    status::{self, OwnStatus},
    status_draft::Draft,
    summary::Tally,
};

/// Pause after which a Machine that could not be read is read again.
const UNREADABLE: Duration = Duration::from_secs(30);

/// Plans a pass over a cluster that the scheduler has answered.
pub(super) fn plan(observation: &Observation<'_>, cluster: &Cluster, holding: &Holding) -> Plan {
    let Observation {
        object,
        not_installed,
        now,
        state: _,
    } = observation;
    let placement = &holding.placement;
    let epoch = placement.position().epoch();
    let mut members = members::assess_all(holding, |member| {
        services::served(cluster, not_installed, object, epoch, member)
    });
    let Draining {
        wanted: nodes,
        requeue: node_waits,
        left: nodes_left,
    } = draining::plan(object, cluster, (holding, &mut members), *now);
    let is_held = status::holds(object, placement);
    let (gating, skipped) = services::sections(cluster, not_installed);
    let wanted = cluster
        .roles()
        .iter()
        .map(|role| (role.name().as_str().to_owned(), role.wanted()));
    let scaling = scaling::steps(cluster, holding, is_held);
    let named = named_machines(object);
    let mut written = status::placement(placement);
    let surplus = surplus_machines(holding);
    name_machines(&mut written, &surplus, &named);
    let tenant_nodes = draining::tenant_nodes(object, nodes.as_ref(), &holding.nodes.report);
    let unreadable: Vec<Event> = holding
        .machines
        .values()
        .filter_map(|machine| match machine {
            MachineLookup::Unreadable(why) => Some(Event::new(EventReason::MachineNotAsked, why)),
            MachineLookup::Found(_)
            | MachineLookup::Claim(_)
            | MachineLookup::Kept(_)
            | MachineLookup::Collected(_) => None,
        })
        .collect();
    Plan {
        cluster_api: holding.cluster_api.clone(),
        watched: Some(members::hosts(&members)),
        nodes: nodes.map_or(NodesAction::Forget, |wanted| NodesAction::Want(Box::new(wanted))),
        machines: machine_actions(&surplus, &named),
        hosts: is_held.then(|| members::host_actions(holding, &members)),
        scales: scaling.scales,
        follows_machines: scaling.finding.is_some(),
        status_follows: is_held && members::writes_hosts(&members),
        status: Some(Draft::Declared(OwnStatus {
            findings: findings::all(object, (holding, &members), &gating, &skipped, *now)
                .into_iter()
                .chain(scaling.finding.clone())
                .collect(),
            placement: Some(written),
            tally: Some(Tally::new(placement, wanted)),
            tenant_nodes,
        })),
        events: placement_events::planned(object, holding)
            .into_iter()
            .chain(scaling.finding.and_then(|finding| not_followed(object, &finding)))
            .collect(),
        requeue: findings::answers_due(object, &gating, *now)
            .into_iter()
            .chain((!unreadable.is_empty()).then_some(UNREADABLE))
            .chain(node_waits)
            .chain(scaling.pause)
            .min(),
        notices: unreadable,
        nodes_left,
        ..Plan::nothing(placement.cluster().clone())
    }
}

/// Where an object of Cluster API does not follow the cluster for a reason that a person should know, and the status does not have it.
fn not_followed(object: &api::SIPCluster, finding: &Finding) -> Option<Event> {
    let known = find(status::conditions(object), finding.kind);
    let is_known = known.is_some_and(|condition| condition.reason == finding.reason);
    let is_news = finding.status == Some(false) && finding.reason != Reason::Waiting && !is_known;
    is_news.then(|| Event::new(EventReason::ReplicasNotSet, &finding.message))
}

/// The Machines that the status names, by the uid of their host.
fn named_machines(object: &api::SIPCluster) -> BTreeMap<String, Machine> {
    let members = status::held(object).into_iter().flat_map(|held| &held.members);
    members
        .filter_map(|member| Some((member.uid.clone(), Machine::parse(member.machine.as_deref()?)?)))
        .collect()
}

/// What is known of the Machines on surplus hosts, by the uid of the host: Cluster API is asked to delete these first. In the place of a
/// Machine on a host that has failed its owner is to make another one.
fn surplus_machines(holding: &Holding) -> BTreeMap<&str, &MachineLookup> {
    let surplus = holding
        .placement
        .members()
        .iter()
        .filter(|member| is_surplus(member));
    surplus
        .filter_map(|member| {
            let (uid, machine) = holding.machines.get_key_value(member.host().uid())?;
            Some((&**uid, machine))
        })
        .collect()
}

/// Writes into the placement which Machines are asked to go. One that cannot be read stays named.
fn name_machines(
    placement: &mut Placement,
    surplus: &BTreeMap<&str, &MachineLookup>,
    named: &BTreeMap<String, Machine>,
) {
    for member in &mut placement.members {
        let machine = match surplus.get(&*member.uid) {
            Some(MachineLookup::Found(machine)) => Some(machine),
            Some(MachineLookup::Unreadable(_)) => named.get(&member.uid),
            Some(MachineLookup::Claim(_) | MachineLookup::Kept(_) | MachineLookup::Collected(_)) | None => {
                None
            }
        };
        member.machine = machine.map(ToString::to_string);
    }
}

/// Machines that are not to go any more are restored first: once the status does not name them, they are forgotten. Those that are to
/// go are asked when the status names them.
fn machine_actions(
    surplus: &BTreeMap<&str, &MachineLookup>,
    named: &BTreeMap<String, Machine>,
) -> Vec<MachineAction> {
    let found: Vec<&Machine> = surplus
        .values()
        .filter_map(|machine| match machine {
            MachineLookup::Found(machine) => Some(machine),
            MachineLookup::Unreadable(_)
            | MachineLookup::Claim(_)
            | MachineLookup::Kept(_)
            | MachineLookup::Collected(_) => None,
        })
        .collect();
    let mut actions = Vec::new();
    for (host, machine) in named {
        if let Some(found) = found.iter().find(|found| found.is(machine)) {
            actions.push(MachineAction::Prioritize((*found).clone()));
        } else if !surplus.contains_key(&**host) {
            actions.push(MachineAction::Restore {
                host: host.clone(),
                machine: machine.clone(),
            });
        }
    }
    actions
}
