//! What a pass does to the objects that a spec names, and what it reports of them. Pure.

use std::time::Duration;

use api::{
    Cluster, MemberState, Scaled,
    conditions::{self, Reason},
};
use kit::{conditions::Finding, placement::Member};

use super::{
    consent::{self, Denied, Requester},
    lookup::Lookup,
    machine_owner::has_name_of_owner,
    object::Object,
    rule::{self, Hosts, State},
    scale::Scale,
};
use crate::reconcile::{
    advice::is_surplus,
    findings::first_few,
    observation::{Holding, MachineLookup},
    served_cluster::{ServedCluster, User},
};

/// Pause after which objects are read again. The agent does not watch them: that would need the right to list those of every tenant.
const RESYNC_PERIOD: Duration = Duration::from_mins(1);
/// The same while an object does not follow its role. Most changes that it waits for show on a host, which triggers a pass.
const PENDING_RESYNC_PERIOD: Duration = Duration::from_secs(10);

/// What a pass does to the objects that a spec names, and what it reports of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::reconcile) struct Steps {
    pub(in crate::reconcile) scales: Vec<Scale>,
    /// The finding once these changes are executed; `None` where the spec names no object.
    pub(in crate::reconcile) finding: Option<Finding>,
    /// When the objects are read again.
    pub(in crate::reconcile) pause: Option<Duration>,
}

/// The reasons that can be reported, the most urgent first.
const REASONS_BY_URGENCY: [Reason; 7] = [
    Reason::NotOfCluster,
    Reason::NamespaceNotGranted,
    Reason::Refused,
    Reason::OwnedByOthers,
    Reason::EvenControlPlane,
    Reason::Waiting,
    Reason::Synced,
];

/// Plans a pass over the objects that the spec names. `acts`: whether the status holds the placement; no replicas are set before it does.
pub(in crate::reconcile) fn steps(cluster: &Cluster, holding: &Holding, acts: bool) -> Steps {
    if cluster.scaled().is_empty() {
        return Steps::default();
    }
    let mut scales = Vec::new();
    let mut reported = Vec::new();
    for (scaled, lookup) in &holding.scaled {
        let (scale, report) = step(scaled, lookup, holding, acts);
        scales.extend(scale);
        reported.push(report);
    }
    let rank = |reason: &Reason| REASONS_BY_URGENCY.iter().position(|one| one == reason);
    reported.sort_by_key(|(reason, _)| rank(reason));
    let reason = reported.first().map_or(Reason::Synced, |(reason, _)| *reason);
    let messages: Vec<String> = reported
        .into_iter()
        .filter(|(reason, _)| *reason != Reason::Synced)
        .map(|(_, message)| message)
        .collect();
    let finding = if reason == Reason::Synced {
        Finding::yes
    } else {
        Finding::no
    };
    Steps {
        scales,
        finding: Some(finding(
            conditions::CLUSTER_API_SYNCED,
            reason,
            first_few(&messages),
        )),
        pause: Some(if reason == Reason::Synced {
            RESYNC_PERIOD
        } else {
            PENDING_RESYNC_PERIOD
        }),
    }
}

/// What is done to one object, and what is reported of it.
fn step(
    scaled: &Scaled,
    lookup: &Lookup,
    holding: &Holding,
    acts: bool,
) -> (Option<Scale>, (Reason, String)) {
    let cluster = holding.placement.cluster();
    let served = holding.served();
    let role = scaled.role().as_str();
    let asking = Requester {
        cluster,
        served: &served,
        role,
    };
    let (kind, name) = (scaled.kind(), scaled.name());
    let report = match lookup {
        Lookup::NoHosts if scaled.active() == 0 => (Reason::Synced, String::new()),
        Lookup::NoHosts => (
            Reason::Waiting,
            format!("{kind} {name}: the cluster holds no hosts yet"),
        ),
        Lookup::Namespaces(all) => {
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            let why = format!(
                "{kind} {name}: the hosts of role {role} are in several namespaces ({}), but a {kind} has its Machines in one namespace: select hosts of one namespace",
                all.join(", ")
            );
            (Reason::NotOfCluster, why)
        }
        Lookup::Missing { namespace } => {
            let key = kit::placement::ObjectKey {
                namespace: namespace.clone(),
                name: name.to_owned(),
            };
            let why = consent::describe(asking, (kind, &key), &Denied::Foreign);
            (Reason::NotOfCluster, why)
        }
        Lookup::Forbidden { namespace } => {
            let why = format!(
                "{kind} {name}: the cluster agent has no rights on it in namespace {namespace}: apply the component \
                 deploy/agents/cluster-api there"
            );
            (Reason::NamespaceNotGranted, why)
        }
        Lookup::Unreadable(why) => (Reason::Refused, why.clone()),
        Lookup::Found(object, template) => {
            if let Err(denied) = consent::check(asking, object, template.as_ref()) {
                let why = consent::describe(asking, (kind, &object.id.key), &denied);
                (Reason::NotOfCluster, why)
            } else {
                return scale(scaled, object, holding, acts);
            }
        }
    };
    (None, report)
}

/// What is done to an object of this `SIPCluster`.
fn scale(
    scaled: &Scaled,
    object: &Object,
    holding: &Holding,
    acts: bool,
) -> (Option<Scale>, (Reason, String)) {
    let Object {
        id,
        replicas,
        cluster: _,
        template: _,
        is_paused,
        is_deleting,
        other_owner,
        set_by: _,
    } = object;
    let kind = id.kind;
    let hosts = hosts((scaled, &id.key.namespace), holding);
    let due = rule::due(kind, *replicas, &hosts);
    let held_up = match (due, other_owner) {
        _ if *is_deleting => Some((Reason::Waiting, "is being deleted".to_owned())),
        (Some(_), _) if *is_paused => Some((Reason::Waiting, "is paused".to_owned())),
        (Some(to), Some(owner)) => Some((
            Reason::OwnedByOthers,
            format!(
                "spec.replicas is {replicas}, must be {to}: {}; {}, or remove this object from spec.clusterAPI.replicas of the SIPCluster",
                owner.cause, owner.remedy
            ),
        )),
        _ => None,
    };
    if let Some((reason, why)) = held_up {
        return (None, (reason, format!("{id}: {why}")));
    }
    let written = due.filter(|_| acts);
    let report = match rule::state(kind, written.unwrap_or(*replicas), &hosts) {
        State::Synced => (Reason::Synced, String::new()),
        State::Waiting(why) => (Reason::Waiting, format!("{id}: {why}")),
        State::Even(why) => (Reason::EvenControlPlane, format!("{id}: {why}")),
    };
    let role = scaled.role().as_str();
    let scale = written.map(|to| Scale::new(id.clone(), (*replicas, to), role));
    (scale, report)
}

/// The hosts of the role that an object of this namespace follows.
fn hosts((scaled, namespace): (&Scaled, &str), holding: &Holding) -> Hosts {
    let mut hosts = Hosts {
        active: scaled.active(),
        wanted: scaled.wanted(),
        ..Hosts::default()
    };
    let members = holding.placement.members().iter();
    for member in members.filter(|member| member.role() == scaled.role().as_str()) {
        if member.is_releasing() {
            leaving((scaled, namespace), member, holding, &mut hosts);
        } else {
            let is = |one: bool| u32::from(one);
            hosts.staying += 1;
            hosts.labelled += is(member.state() == MemberState::Bound);
            hosts.used += is(user(member, holding) != Some(User::Nobody));
        }
    }
    hosts
}

/// Who uses the host of a member; `None` without a host.
fn user(member: &Member, holding: &Holding) -> Option<User> {
    let host = holding.hosts.get(member.host().key());
    let host = host.filter(|host| host.id().uid() == member.host().uid())?;
    let served = ServedCluster::new(holding.placement.cluster(), holding.cluster_api.as_ref());
    Some(served.user(host))
}

/// Adds a host that leaves to the lists, if a Machine may be on it, or be left by it, that is not being deleted.
fn leaving((scaled, namespace): (&Scaled, &str), member: &Member, holding: &Holding, hosts: &mut Hosts) {
    let user = user(member, holding);
    // A consumer of another Cluster is not among the Machines that these replicas count.
    if let Some(User::Nobody | User::Foreign) = user {
        return;
    }
    let host = member.host();
    let surplus = is_surplus(member);
    let list = if surplus {
        &mut hosts.unmarked
    } else {
        &mut hosts.others
    };
    let machine = match holding.machines.get(host.uid()) {
        Some(MachineLookup::Found(machine)) => machine,
        Some(MachineLookup::Claim(_) | MachineLookup::Kept(_) | MachineLookup::Collected(_)) => return,
        Some(MachineLookup::Unreadable(why)) => {
            list.push(why.clone());
            return;
        }
        Some(MachineLookup::Foreign(consumer)) => {
            list.push(format!(
                "{host} is to be released, and {consumer} is for a Machine of another Cluster"
            ));
            return;
        }
        None => {
            let why = format!("{host} is to be released and is in use, and no Machine is known on it");
            list.extend(user.map(|_| why));
            return;
        }
    };
    if machine.leaves() {
        return;
    }
    if !surplus {
        let reason = member.release_reason().unwrap_or("released");
        hosts.others.push(format!(
            "replicas are not lowered: {host} leaves ({reason}) and Machine {machine} is still on it, so Cluster API could delete another Machine; delete {machine}"
        ));
    } else if !has_name_of_owner(scaled, machine) || machine.namespace() != namespace {
        hosts.unmarked.push(format!(
            "Machine {machine} on surplus host {host} is not one of {} {}: delete it yourself",
            scaled.kind(),
            scaled.name()
        ));
    } else if machine.is_marked() {
        hosts.marked.push(format!(
            "Cluster API has not deleted Machine {machine} on surplus host {host} yet; if the replicas are lowered already and the Machine remains, delete it yourself"
        ));
    } else {
        hosts.unmarked.push(format!(
            "waiting for the annotation cluster.x-k8s.io/delete-machine on Machine {machine} of surplus host {host}"
        ));
    }
}

#[cfg(test)]
mod tests;
