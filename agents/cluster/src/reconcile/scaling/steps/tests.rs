//! One object that follows the workers of the cluster `tenant/one`, which wants two hosts in use and a spare one.

use std::collections::{BTreeMap, BTreeSet};

use api::MemberState::{self, Bound, Claimed, Releasing};
use proto::placement::v1 as wire;
use serde_json::{Value, json};

use super::{
    super::{
        fixtures::object_id,
        object::{HostLabels, OtherOwner},
    },
    *,
};
use crate::{
    fixtures::{answer, cluster, host, labelled, used},
    reconcile::{advice::advice, fixtures::holding, machine::Machine},
};

/// What is true of a Machine.
type Change<'a> = &'a dyn Fn(Machine) -> Machine;

const TARGET: &str = "MachineDeployment md";

fn spec(replicas: &Value) -> Cluster {
    let mut object = cluster(&json!({}));
    let section = json!({ "replicas": replicas });
    object.spec.cluster_api = Some(serde_json::from_value(section).unwrap());
    Cluster::parse(&object).unwrap()
}

fn object(replicas: u32) -> Object {
    Object {
        id: object_id(),
        replicas,
        cluster: Some("one".to_owned()),
        template: Some("t".to_owned()),
        is_paused: false,
        is_deleting: false,
        other_owner: None,
        set_by: None,
    }
}

fn template(namespace: &str) -> HostLabels {
    let labels = [
        ("sip.airshipit.org/cluster-namespace", namespace),
        ("sip.airshipit.org/cluster-name", "one"),
        ("sip.airshipit.org/node-type", "Worker"),
    ];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    HostLabels(BTreeMap::from(labels))
}

fn found(object: Object) -> Lookup {
    Lookup::Found(Box::new(object), Some(template("tenant")))
}

fn surplus(host: &str) -> wire::Member {
    leaving(host, "surplus")
}

fn leaving(host: &str, reason: &str) -> wire::Member {
    wire::Member {
        release_reason: reason.to_owned(),
        ..answer(host, Releasing)
    }
}

/// What is observed of these members, whose hosts are all in use, and of the Machines on those that leave.
fn observed(members: Vec<wire::Member>, machine: &dyn Fn(Machine) -> Machine, lookup: Lookup) -> Holding {
    let hosts = members.iter().map(|member| {
        let name = &member.host.as_ref().unwrap().name;
        used(labelled(host(name), "one", "Worker"))
    });
    let hosts = hosts.collect();
    let mut holding = holding(members, false, hosts);
    for member in holding
        .placement
        .members()
        .iter()
        .filter(|member| member.is_releasing())
    {
        let name = format!("metal/{}-machine", member.host().key().name);
        let found = MachineLookup::Found(machine(Machine::parse(&name).unwrap()));
        holding.machines.insert(member.host().uid().to_owned(), found);
    }
    let cluster = spec(&json!({"Worker": {"machineDeployment": "md"}}));
    holding.scaled = vec![(cluster.scaled()[0].clone(), lookup)];
    holding
}

fn plan(holding: &Holding, acts: bool) -> (Option<u32>, Reason, String) {
    let cluster = spec(&json!({"Worker": {"machineDeployment": "md"}}));
    let Steps {
        scales,
        finding,
        pause,
    } = steps(&cluster, holding, acts);
    let Finding {
        kind,
        status,
        reason,
        message,
    } = finding.unwrap();
    assert_eq!(kind, conditions::CLUSTER_API_SYNCED);
    assert_eq!(status, Some(reason == Reason::Synced));
    assert!(pause.is_some());
    assert!(scales.len() <= 1);
    (scales.first().map(Scale::replicas), reason, message)
}

fn members(states: &[(&str, MemberState)]) -> Vec<wire::Member> {
    states.iter().map(|(host, state)| answer(host, *state)).collect()
}

#[test]
fn a_cluster_without_the_section_reads_and_writes_nothing() {
    let holding = observed(members(&[("h1", Bound)]), &|machine| machine, Lookup::NoHosts);
    assert_eq!(steps(&spec(&json!({})), &holding, true), Steps::default());
}

#[test]
fn replicas_go_up_with_labelled_hosts_that_the_status_holds() {
    let all = [("h1", Bound), ("h2", Bound), ("h3", Claimed)];
    let holding = observed(members(&all), &|machine| machine, found(object(1)));
    assert_eq!(plan(&holding, true), (Some(2), Reason::Synced, String::new()));
    let (to, reason, _) = plan(&holding, false);
    assert_eq!(
        (to, reason),
        (None, Reason::Waiting),
        "the status does not hold the placement"
    );

    let one = [("h1", Bound), ("h2", Claimed), ("h3", Claimed)];
    let holding = observed(members(&one), &|machine| machine, found(object(1)));
    let waiting = "MachineDeployment metal/md: 1 of 2 hosts have their labels";
    assert_eq!(plan(&holding, true), (None, Reason::Waiting, waiting.to_owned()));
}

#[test]
fn no_other_machine_is_said_to_go_with_the_replicas() {
    let own = |machine: Machine| machine.owned_by(TARGET);
    let other = |machine: Machine| machine.owned_by("MachineDeployment other");
    let of_tenant = |_: Machine| Machine::parse("tenant/h4").unwrap().owned_by(TARGET);
    let lookup = || found(object(4));
    let missing = || Lookup::Missing {
        namespace: "metal".to_owned(),
    };
    let unreadable = || Lookup::Unreadable("not now".to_owned());
    let rows: [(Change<'_>, Lookup, bool); 6] = [
        (&own, lookup(), true),
        (&other, lookup(), false),
        (&of_tenant, lookup(), false),
        (&own, unreadable(), true),
        (&other, unreadable(), false),
        (&of_tenant, missing(), false),
    ];
    for (machine, lookup, expected) in rows {
        let holding = observed(vec![surplus("h4")], machine, lookup);
        let advice = advice(&holding, &holding.placement.members()[0]);
        let follows = advice.contains("the cluster agent lowers the replicas of");
        assert_eq!(follows, expected, "{advice}");
    }
}

#[test]
fn replicas_go_down_once_every_machine_is_marked() {
    let own = |machine: Machine| machine.owned_by(TARGET);
    let marked = |machine: Machine| machine.owned_by(TARGET).marked();
    let deleting = |machine: Machine| machine.owned_by(TARGET).leaving();
    let foreign = |machine: Machine| machine.owned_by("MachineDeployment other").marked();
    let of_tenant = |_: Machine| Machine::parse("tenant/h4").unwrap().owned_by(TARGET).marked();
    let stay = members(&[("h1", Bound), ("h2", Bound), ("h3", Bound)]);
    let rows: [(wire::Member, Change<'_>, Option<u32>, Reason, &str); 7] = [
        (
            surplus("h4"),
            &own,
            None,
            Reason::Waiting,
            "waiting for the annotation cluster.x-k8s.io/delete-machine on",
        ),
        (
            surplus("h4"),
            &marked,
            Some(2),
            Reason::Waiting,
            "Cluster API has not deleted Machine metal/h4-machine",
        ),
        (surplus("h4"), &deleting, Some(2), Reason::Synced, ""),
        (
            surplus("h4"),
            &foreign,
            None,
            Reason::Waiting,
            "is not one of MachineDeployment md",
        ),
        (
            surplus("h4"),
            &of_tenant,
            None,
            Reason::Waiting,
            "Machine tenant/h4 on surplus host metal/h4 is not one of MachineDeployment md",
        ),
        (
            leaving("h4", "failed"),
            &marked,
            None,
            Reason::Waiting,
            "Cluster API could delete another Machine",
        ),
        (leaving("h4", "failed"), &deleting, Some(2), Reason::Synced, ""),
    ];
    for (leaves, machine, to, reason, message) in rows {
        let all = stay.iter().cloned().chain([leaves.clone()]).collect();
        let planned = plan(&observed(all, machine, found(object(4))), true);
        assert_eq!((planned.0, planned.1), (to, reason), "{leaves:?} {planned:?}");
        assert!(planned.2.contains(message), "{planned:?}");
    }
    let all = stay.into_iter().chain([surplus("h4")]).collect();
    let mut unreadable = observed(all, &marked, found(object(4)));
    let why = MachineLookup::Unreadable("not now".to_owned());
    unreadable.machines.insert("uid-h4".to_owned(), why);
    let waiting = "MachineDeployment metal/md: not now".to_owned();
    assert_eq!(plan(&unreadable, true), (None, Reason::Waiting, waiting));
    unreadable.machines.clear();
    let (to, reason, message) = plan(&unreadable, true);
    assert_eq!((to, reason), (None, Reason::Waiting), "{message}");
}

/// A host that is gone leaves its Machine behind, which nobody deletes; and not every consumer is one for a Machine.
#[test]
fn machines_count_and_not_hosts_or_consumers() {
    let lookup = |text: &str| MachineLookup::Found(Machine::parse(text).unwrap().owned_by(TARGET));
    let name = |text: &str| text.to_owned();
    for (leaves, is_gone, machine, to) in [
        (surplus("h3"), true, Some(lookup("metal/m")), None),
        (leaving("h3", "failed"), true, Some(lookup("metal/m")), None),
        (surplus("h3"), true, None, Some(2)),
        (
            surplus("h3"),
            true,
            Some(MachineLookup::Collected(name("Metal3Machine metal/m"))),
            Some(2),
        ),
        (
            surplus("h3"),
            false,
            Some(MachineLookup::Claim(name("HostClaim tenant/c"))),
            Some(2),
        ),
        (
            surplus("h3"),
            false,
            Some(MachineLookup::Kept(name("Cluster metal/one"))),
            Some(2),
        ),
        (
            surplus("h3"),
            false,
            Some(MachineLookup::Foreign(name("HostClaim tenant/c"))),
            None,
        ),
        (surplus("h3"), false, None, None),
    ] {
        let all = members(&[("h1", Bound), ("h2", Bound)])
            .into_iter()
            .chain([leaves]);
        let mut holding = observed(all.collect(), &|machine| machine, found(object(3)));
        holding.machines = machine
            .iter()
            .map(|machine| (name("uid-h3"), machine.clone()))
            .collect();
        if is_gone {
            holding.hosts.retain(|host, _| host.name != "h3");
        }
        assert_eq!(plan(&holding, true).0, to, "{is_gone} {machine:?}");
    }
}

fn flux() -> OtherOwner {
    let who = "field manager flux";
    OtherOwner::applying(who, format!("{who} sets it"))
}

#[test]
fn what_is_not_to_be_written_is_not_written() {
    let changed = |change: &dyn Fn(&mut Object)| {
        let mut object = object(1);
        change(&mut object);
        object
    };
    let paused = changed(&|object| object.is_paused = true);
    let deleting = changed(&|object| object.is_deleting = true);
    let owned = changed(&|object| object.other_owner = Some(flux()));
    let synced = changed(&|object| {
        object.other_owner = Some(flux());
        object.replicas = 2;
    });
    let elsewhere = changed(&|object| object.cluster = Some("prod".to_owned()));
    let rows: [(Lookup, Reason, &str); 11] = [
        (found(paused), Reason::Waiting, "is paused"),
        (found(deleting), Reason::Waiting, "is being deleted"),
        (
            found(owned),
            Reason::OwnedByOthers,
            "spec.replicas is 1, must be 2: field manager flux sets it; remove spec.replicas from what field manager flux applies, or remove this object",
        ),
        (found(synced), Reason::Synced, ""),
        (
            found(elsewhere),
            Reason::NotOfCluster,
            "is of the Cluster \"prod\", and this SIPCluster serves one",
        ),
        (
            Lookup::Found(Box::new(object(1)), Some(template("other"))),
            Reason::NotOfCluster,
            "there is no MachineDeployment metal/md",
        ),
        (
            Lookup::Missing {
                namespace: "metal".to_owned(),
            },
            Reason::NotOfCluster,
            "there is no MachineDeployment metal/md",
        ),
        (
            Lookup::Forbidden {
                namespace: "metal".to_owned(),
            },
            Reason::NamespaceNotGranted,
            "deploy/agents/cluster-api",
        ),
        (Lookup::Unreadable("gone".to_owned()), Reason::Refused, "gone"),
        (Lookup::NoHosts, Reason::Waiting, "holds no hosts yet"),
        (
            Lookup::Namespaces(BTreeSet::from(["a".to_owned(), "b".to_owned()])),
            Reason::NotOfCluster,
            "are in several namespaces (a, b)",
        ),
    ];
    let all = members(&[("h1", Bound), ("h2", Bound), ("h3", Bound)]);
    for (lookup, expected, message) in rows {
        let planned = plan(&observed(all.clone(), &|machine| machine, lookup), true);
        assert_eq!((planned.0, planned.1), (None, expected), "{planned:?}");
        assert!(planned.2.contains(message), "{planned:?}");
    }
}

#[test]
fn of_an_object_of_somebody_else_nothing_is_told() {
    let all = members(&[("h1", Bound)]);
    let mut foreign = object(7);
    foreign.is_paused = true;
    foreign.other_owner = Some(flux());
    foreign.cluster = Some("secret".to_owned());
    let there = Lookup::Found(Box::new(foreign), Some(template("other")));
    let missing = Lookup::Missing {
        namespace: "metal".to_owned(),
    };
    let plans = [there, missing].map(|lookup| plan(&observed(all.clone(), &|machine| machine, lookup), true));
    assert_eq!(plans[0], plans[1]);
}
