//! Plans of single cases.

use std::collections::BTreeSet;

use api::{Cluster, MemberState};
use k8s_openapi::jiff::Timestamp;
use proto::placement::v1 as placed;
use serde_json::{Value, json};

use super::*;
use crate::{
    fixtures::{answer, cluster, host, labelled, used},
    reconcile::{
        fixtures::holding,
        machine::Machine,
        observation::{Evidence, MachineLookup},
        outcomes::Outcomes,
        plan::MachineAction,
        status,
    },
};

const NOW: i64 = 1_800_000_000;

#[test]
fn an_invalid_spec_changes_conditions_only() {
    let object = cluster(&json!({
        "placement": { "epoch": 1, "revision": 5, "generation": 2 },
        "conditions": [{
            "type": "HostsLabeled", "status": "True", "reason": "Labeled", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    }));
    let plan = plan(&Observation {
        object: &object,
        not_installed: &BTreeSet::new(),
        now: Timestamp::from_second(NOW).unwrap(),
        state: State::Invalid("spec.nodes: must be set".to_owned()),
    });
    assert!(plan.hosts.is_none() && plan.watched.is_none() && plan.finalizer.is_none());
    let own = plan.status.unwrap().finish(&Outcomes::default());
    assert_eq!((own.placement, own.tally), (None, None), "they stay");
    let conditions: Vec<_> = own
        .findings
        .iter()
        .map(|finding| (finding.kind.as_str(), finding.reason.as_str()))
        .collect();
    assert_eq!(
        conditions,
        [
            ("Scheduled", "InvalidSpec"),
            ("Ready", "Unschedulable"),
            ("HostsLabeled", "Labeled")
        ]
    );
}

#[test]
fn a_full_site_changes_conditions_only_and_names_the_limit() {
    let object = cluster(&json!({
        "placement": { "epoch": 1, "revision": 5, "generation": 2 },
        "conditions": [{
            "type": "HostsLabeled", "status": "True", "reason": "Labeled", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    }));
    let full = tonic::Status::resource_exhausted("site a: it has 20000 clusters (limit `records`)");
    let plan = plan(&Observation {
        object: &object,
        not_installed: &BTreeSet::new(),
        now: Timestamp::from_second(NOW).unwrap(),
        state: State::SiteFull(Box::new(full)),
    });
    assert!(plan.hosts.is_none() && plan.watched.is_none() && plan.finalizer.is_none());
    assert!(plan.scales.is_empty() && plan.machines.is_empty() && plan.events.is_empty());
    let own = plan.status.unwrap().finish(&Outcomes::default());
    assert_eq!((own.placement, own.tally), (None, None), "they stay");
    let conditions: Vec<_> = own
        .findings
        .iter()
        .map(|finding| (finding.kind.as_str(), finding.status, finding.reason.as_str()))
        .collect();
    assert_eq!(
        conditions,
        [
            ("Scheduled", Some(false), "SiteFull"),
            ("Ready", Some(false), "Unschedulable"),
            ("HostsLabeled", Some(true), "Labeled")
        ]
    );
    assert_eq!(
        own.findings[0].message,
        "site a: it has 20000 clusters (limit `records`)"
    );
}

#[test]
fn a_full_site_is_reported_once_and_keeps_what_nodes_are() {
    let status = |generation: i64| {
        cluster(&json!({
            "placement": { "epoch": 1, "revision": 5, "generation": 2 },
            "tenantNodes": { "problem": "the API server does not answer" },
            "conditions": [{
                "type": "Scheduled", "status": "False", "reason": "SiteFull", "message": "this would be 20001",
                "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        }))
    };
    let present = status(0).metadata.generation.unwrap_or_default();
    for (generation, expected) in [
        (present, "this would be 20001"),
        (present - 1, "this would be 20002"),
    ] {
        let object = status(generation);
        let full = tonic::Status::resource_exhausted("this would be 20002");
        let plan = plan(&Observation {
            object: &object,
            not_installed: &BTreeSet::new(),
            now: Timestamp::from_second(NOW).unwrap(),
            state: State::SiteFull(Box::new(full)),
        });
        let own = plan.status.unwrap().finish(&Outcomes::default());
        assert_eq!(own.findings[0].message, expected, "of generation {generation}");
        assert_eq!(own.tenant_nodes, object.status.unwrap().tenant_nodes);
    }
}

#[test]
fn silence_counts_from_the_pass_that_places_a_cluster() {
    let ready = |was_placed: &str| {
        let object = cluster(&json!({
            "observedGeneration": 3, "observedSince": "2026-01-01T00:00:00Z",
            "conditions": [{
                "type": "Scheduled", "status": was_placed, "reason": "SiteFull", "message": "",
                "observedGeneration": 3, "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        }));
        let holding = holding(
            vec![answer("h1", MemberState::Bound)],
            false,
            vec![labelled(host("h1"), "one", "Worker")],
        );
        let declared = Cluster::parse(&object).unwrap();
        let plan = plan(&Observation {
            object: &object,
            not_installed: &BTreeSet::new(),
            now: Timestamp::from_second(NOW).unwrap(),
            state: State::Declared(Box::new(declared), holding),
        });
        let own = plan.status.unwrap().finish(&Outcomes::default());
        let mut findings = own.findings.into_iter();
        let ready = findings
            .find(|finding| finding.kind == conditions::READY)
            .unwrap();
        (ready.reason, ready.message.contains("NoAgent"))
    };
    assert_eq!(ready("True"), (Reason::InfraServiceFailure, true));
    assert_eq!(
        ready("False"),
        (Reason::Progressing, false),
        "nobody could answer before"
    );
}

#[test]
fn the_finalizer_is_added_first_and_removed_last() {
    let observe = |state, status: &Value| {
        let mut object = cluster(status);
        object.metadata.deletion_timestamp = matches!(state, State::Released).then(|| {
            k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::from_second(NOW).unwrap())
        });
        plan(&Observation {
            object: &object,
            not_installed: &BTreeSet::new(),
            now: Timestamp::from_second(NOW).unwrap(),
            state,
        })
    };
    let first = observe(State::WithoutFinalizer, &json!({}));
    assert_eq!(first.finalizer, Some(FinalizerAction::Add));
    assert!(first.hosts.is_none() && first.status.is_none());
    let answered = json!({ "conditions": [{
        "type": "LoadBalancerReady", "status": "True", "reason": "Available", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]});
    let waits = observe(State::Released, &answered);
    assert_eq!(waits.finalizer, None, "the load-balancer agent has objects still");
    assert!(waits.status.is_some() && waits.requeue.is_some());
    let last = observe(State::Released, &json!({}));
    assert_eq!(last.finalizer, Some(FinalizerAction::Remove));
}

#[test]
fn agents_have_a_minute_from_when_they_have_something_to_do() {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    let time = |seconds: i64| Timestamp::from_second(NOW + seconds).unwrap();
    let member = json!({
        "namespace": "metal", "name": "h1", "uid": "uid-h1", "role": "Worker", "state": "Releasing", "revision": 5,
    });
    let mut object = cluster(&json!({
        "observedGeneration": 3, "observedSince": time(0),
        "placement": { "epoch": 1, "revision": 5, "generation": 3, "members": [member] },
        "conditions": [{
            "type": "LoadBalancerReady", "status": "True", "reason": "Available", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    }));
    object.metadata.deletion_timestamp = Some(Time(time(0)));
    let released = |object: &api::SIPCluster, seconds| {
        plan(&Observation {
            object,
            not_installed: &BTreeSet::new(),
            now: time(seconds),
            state: State::Released,
        })
    };
    // A consumer stays for 90 s, and the agents may delete nothing before it has gone.
    let first = released(&object, 90);
    assert_eq!(first.finalizer, None, "the agents have had no time");
    let own = first.status.unwrap().finish(&Outcomes::default());
    object.status = status::change(&object, own, time(90)).map(|mut next| {
        next.conditions.extend(object.status.clone().unwrap().conditions);
        next
    });
    for (seconds, expected) in [(91, None), (150, None), (151, Some(FinalizerAction::Remove))] {
        let plan = released(&object, seconds);
        assert_eq!(plan.finalizer, expected, "after {seconds} s");
    }
}

#[test]
fn a_foreign_consumer_has_advice_by_whether_the_cluster_goes() {
    let mut used_by_two = used(labelled(host("h1"), "one", "Worker"));
    used_by_two["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] = json!("two");
    let object = cluster(&json!({}));
    let message = |state: State| {
        let plan = plan(&Observation {
            object: &object,
            not_installed: &BTreeSet::new(),
            now: Timestamp::from_second(NOW).unwrap(),
            state,
        });
        let own = plan.status.unwrap().finish(&Outcomes::default());
        let labeled = own
            .findings
            .into_iter()
            .find(|finding| finding.kind == conditions::HOSTS_LABELED);
        labeled.unwrap().message
    };
    let releasing = || {
        holding(
            vec![answer("h1", MemberState::Releasing)],
            false,
            vec![used_by_two.clone()],
        )
    };
    let fact = "metal/h1: it is used by Metal3Machine tenant/m-0 of the Cluster API cluster two, and this SIPCluster serves one: ";
    let declared = State::Declared(Box::new(Cluster::parse(&object).unwrap()), releasing());
    assert_eq!(
        message(declared),
        format!(
            "{fact}delete the Machine that uses it, or name its Cluster in annotation \
             sip.airshipit.org/cluster-api-cluster of the SIPCluster"
        )
    );
    assert_eq!(
        message(State::Releasing(releasing(), Evidence::Reported)),
        format!(
            "one host is being released; {fact}it is released once nothing uses it; delete the Cluster of that consumer if it \
             is to be deleted too, or else its Machine only; where the consumer no longer exists, remove spec.consumerRef and label \
             cluster.x-k8s.io/cluster-name of the host"
        )
    );
}

#[test]
fn a_surplus_machine_is_recorded_before_it_is_marked() {
    let machine = |name: &str| Machine::parse(&format!("tenant/{name}")).unwrap();
    let restore = MachineAction::Restore {
        host: "uid-h0".to_owned(),
        machine: machine("m-0"),
    };
    let found = MachineLookup::Found(machine("m-0"));
    let unreadable = MachineLookup::Unreadable("not now".to_owned());
    for (reason, named, on_host, actions, written) in [
        ("surplus", None, Some(found.clone()), vec![], Some("tenant/m-0")),
        ("failed", None, Some(found.clone()), vec![], None),
        (
            "failed",
            Some("tenant/m-0"),
            Some(found.clone()),
            vec![restore.clone()],
            None,
        ),
        (
            "surplus",
            Some("tenant/m-0"),
            Some(found),
            vec![MachineAction::Prioritize(machine("m-0"))],
            Some("tenant/m-0"),
        ),
        (
            "surplus",
            Some("tenant/m-0"),
            Some(unreadable.clone()),
            vec![],
            Some("tenant/m-0"),
        ),
        ("surplus", None, Some(unreadable), vec![], None),
        (
            "surplus",
            Some("tenant/m-0"),
            Some(MachineLookup::Foreign("HostClaim tenant/c-0".to_owned())),
            vec![restore.clone()],
            None,
        ),
        ("surplus", Some("tenant/m-0"), None, vec![restore], None),
    ] {
        let mut object = cluster(
            &json!({ "placement": { "epoch": 1, "revision": 4, "generation": 3, "members": [{
                "namespace": "metal", "name": "h0", "uid": "uid-h0", "role": "Worker", "state": "Releasing", "revision": 4,
            }]}}),
        );
        let held = object.status.as_mut().unwrap().placement.as_mut().unwrap();
        held.members[0].machine = named.map(str::to_owned);
        let host = used(labelled(host("h0"), "one", "Worker"));
        let member = placed::Member {
            release_reason: reason.to_owned(),
            ..answer("h0", MemberState::Releasing)
        };
        let mut holding = holding(vec![member], false, vec![host]);
        holding.machines = on_host
            .map(|machine| ("uid-h0".to_owned(), machine))
            .into_iter()
            .collect();
        let parsed = Box::new(Cluster::parse(&object).unwrap());
        let plan = plan(&Observation {
            object: &object,
            not_installed: &BTreeSet::new(),
            now: Timestamp::from_second(NOW).unwrap(),
            state: State::Declared(parsed, holding),
        });
        assert_eq!(plan.machines, actions);
        let own = plan.status.unwrap().finish(&Outcomes::default());
        assert_eq!(own.placement.unwrap().members[0].machine.as_deref(), written);
    }
}
