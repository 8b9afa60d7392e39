//! The plan for a cluster that stays: its status gets what it holds, then its hosts are written.

use std::{collections::BTreeMap, time::Duration};

use api::{Cluster, Placement, conditions::Reason};
use kit::{
    conditions::{Finding, find},
    events::EventReason,
};

use super::{
    advice::is_surplus,
    event::Event,
    findings,
    machine::Machine,
    members,
    node_drain::{self, Draining},
    observation::{Holding, MachineLookup, Observation},
    placement_events,
    plan::{MachineAction, NodesAction, Plan},
    scaling, services,
    status::{self, OwnStatus},
    status_draft::Draft,
    summary::Tally,
};

/// Pause after which a Machine that could not be read is read again.
const UNREADABLE_RETRY_DELAY: Duration = Duration::from_secs(30);

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
    } = node_drain::plan(object, cluster, (holding, &mut members), *now);
    let is_held = status::has_placement(object, placement);
    let (gating, skipped) = services::sections(cluster, not_installed);
    let wanted = cluster
        .roles()
        .iter()
        .map(|role| (role.name().as_str().to_owned(), role.wanted()));
    let scaling = scaling::steps(cluster, holding, is_held);
    let named = named_machines(object);
    let mut written = status::placement(placement);
    let asked = asked_machines(holding);
    name_machines(&mut written, (holding, &asked), &named);
    let tenant_nodes = node_drain::tenant_nodes(object, nodes.as_ref(), &holding.nodes.report);
    let unreadable: Vec<Event> = holding
        .machines
        .values()
        .filter_map(|machine| match machine {
            MachineLookup::Unreadable(why) => Some(Event::new(EventReason::MachineNotAnnotated, why)),
            MachineLookup::Found(_)
            | MachineLookup::Claim(_)
            | MachineLookup::Foreign(_)
            | MachineLookup::Kept(_)
            | MachineLookup::Collected(_) => None,
        })
        .collect();
    Plan {
        cluster_api: holding.cluster_api.clone(),
        watched: Some(members::hosts(&members)),
        nodes: nodes.map_or(NodesAction::Forget, |wanted| NodesAction::Want(Box::new(wanted))),
        machines: machine_actions((holding, &asked), &named),
        hosts: is_held.then(|| members::host_actions(holding, &members)),
        scales: scaling.scales,
        follows_machines: scaling.finding.is_some(),
        status_follows: is_held && members::writes_hosts(&members),
        status: Some(Draft::Declared(OwnStatus {
            findings: findings::evaluate(object, (holding, &members), &gating, &skipped, *now)
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
        requeue: findings::answers_due(object, placement, &gating, *now)
            .into_iter()
            .chain((!unreadable.is_empty()).then_some(UNREADABLE_RETRY_DELAY))
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
    let members = status::placement_in_status(object)
        .into_iter()
        .flat_map(|held| &held.members);
    members
        .filter_map(|member| Some((member.uid.clone(), Machine::parse(member.machine.as_deref()?)?)))
        .collect()
}

/// The Machines on surplus hosts, by the uid of the host: the agent marks them so that Cluster API deletes them first. In the place of a Machine on a
/// host that has failed its owner is to make another one.
fn asked_machines(holding: &Holding) -> BTreeMap<&str, &Machine> {
    let members = holding.placement.members().iter();
    let surplus = members.filter(|member| is_surplus(member));
    surplus
        .filter_map(|member| {
            let (uid, lookup) = holding.machines.get_key_value(member.host().uid())?;
            Some((&**uid, found_machine(lookup)?))
        })
        .collect()
}

/// Writes into the placement which Machines are marked for deletion. One that cannot be read stays named.
fn name_machines(
    placement: &mut Placement,
    (holding, asked): (&Holding, &BTreeMap<&str, &Machine>),
    named: &BTreeMap<String, Machine>,
) {
    for member in &mut placement.members {
        let before = || {
            named
                .get(&member.uid)
                .filter(|_| is_unreadable(holding, &member.uid))
        };
        let machine = asked.get(&*member.uid).copied().or_else(before);
        member.machine = machine.map(ToString::to_string);
    }
}

/// Marks that are no longer due are removed first: once the status does not name their Machines, these are forgotten. Machines that are to
/// be deleted are marked when the status names them.
fn machine_actions(
    (holding, asked): (&Holding, &BTreeMap<&str, &Machine>),
    named: &BTreeMap<String, Machine>,
) -> Vec<MachineAction> {
    let mut actions = Vec::new();
    for (host, machine) in named {
        if let Some(found) = asked.values().find(|found| found.is_same(machine)) {
            actions.push(MachineAction::Prioritize((*found).clone()));
        } else if !is_unreadable(holding, host) {
            // As the host leads to it, if it does: that shows which SIPCluster an earlier version set its annotation for.
            let reached = holding.machines.get(host).and_then(found_machine);
            let reached = reached.filter(|found| found.is_same(machine)).unwrap_or(machine);
            actions.push(MachineAction::Restore {
                host: host.clone(),
                machine: reached.clone(),
            });
        }
    }
    actions
}

fn found_machine(lookup: &MachineLookup) -> Option<&Machine> {
    match lookup {
        MachineLookup::Found(machine) => Some(machine),
        MachineLookup::Claim(_)
        | MachineLookup::Foreign(_)
        | MachineLookup::Kept(_)
        | MachineLookup::Collected(_)
        | MachineLookup::Unreadable(_) => None,
    }
}

/// Whether the Machine on a host cannot be read, by the uid of the host.
fn is_unreadable(holding: &Holding, host: &str) -> bool {
    matches!(holding.machines.get(host), Some(MachineLookup::Unreadable(_)))
}
