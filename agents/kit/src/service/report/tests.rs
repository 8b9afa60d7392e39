use api::{
    Drained, Endpoint, SIPCluster,
    conditions::{LOAD_BALANCER_READY, load_balancer::NO_REACHABLE_BACKEND},
};
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::{
    super::{
        outcome::{Failed, Predecessor, Remark},
        problem::*,
    },
    *,
};
use crate::apply::Manager;

const TEST: &Identity = &Identity {
    manager: Manager("test"),
    condition: LOAD_BALANCER_READY,
    component: "loadbalancer",
    name_prefixes: &["loadbalancer-"],
    sip_prefixes: &[],
    children: &[],
    pod_labels: &[],
    pod_ports: &[],
    reports_drained: true,
    warnings: &[],
};

fn applied(name: &str, problem: Option<Problem>, unserved: bool) -> Outcome {
    Outcome::Applied(Box::new(Instance {
        name: name.to_owned(),
        service: serde_json::from_value(json!({})).unwrap(),
        address: None,
        problems: Vec::new(),
        problem,
        substitutes: Vec::new(),
        remark: unserved.then_some(Remark {
            reason: NO_REACHABLE_BACKEND,
            text: "no member answers".into(),
        }),
        warnings: Vec::new(),
        requeue: None,
        endpoint: Endpoint::default(),
    }))
}

/// What hinders an instance whose image cannot be pulled.
fn image_pull() -> Problem {
    Problem::new(IMAGE_PULL, "no such image")
}

/// A drain that waits long for hosts.
fn waiting() -> Drain {
    Drain {
        problem: Some(Problem::new(PROGRESSING, "hosts are not released")),
        ..Drain::default()
    }
}

fn status_of(outcomes: &[Outcome], drain: &Drain) -> Status {
    status(TEST, |_| "tcp", (1, &Placement::default()), outcomes, drain)
}

fn found(outcomes: &[Outcome]) -> (Option<bool>, &'static str, String) {
    let Finding {
        kind: _,
        status,
        reason,
        message,
    } = status_of(outcomes, &Drain::default()).finding.unwrap();
    (status, reason.as_str(), message)
}

#[test]
fn a_warning_is_stated_beside_any_problem() {
    let mut warned = applied("a", Some(image_pull()), true);
    let Outcome::Applied(instance) = &mut warned else {
        panic!("it is applied")
    };
    instance.warnings.extend(instance.remark.take());
    let message = "a: no such image; a: no member answers".to_owned();
    assert_eq!(found(&[warned]), (Some(false), "ImagePull", message));
}

#[test]
fn refusals_rank_before_failures_and_progress() {
    let waits = || applied("a", Some(Problem::new(PROGRESSING, "0 of 2 pods")), true);
    let pull = |name| applied(name, Some(image_pull()), false);
    let refused = || Outcome::Refused(Problem::new(PORT_CONFLICT, "d: taken"), Vec::new());
    for (outcomes, expected) in [
        (vec![], (Some(true), "Available", "")),
        (
            vec![applied("a", None, true), applied("b", None, false)],
            (Some(true), "NoReachableBackend", "a: no member answers"),
        ),
        (vec![waits()], (Some(false), "Progressing", "a: 0 of 2 pods")),
        (
            vec![waits(), pull("b"), pull("c")],
            (Some(false), "ImagePull", "b: no such image; c: no such image"),
        ),
        (
            vec![waits(), pull("b"), refused()],
            (Some(false), "PortConflict", "d: taken"),
        ),
    ] {
        let (status, reason, message) = expected;
        assert_eq!(found(&outcomes), (status, reason, message.to_owned()));
    }
}

#[test]
fn nothing_is_available_before_it_was_asked() {
    let mut available = status_of(&[applied("a", None, false)], &Drain::default());
    assert!(is_unchecked(true, &mut available));
    // Without a condition before, this one is written.
    let mut first = status_of(&[applied("a", None, false)], &Drain::default());
    assert!(!is_unchecked(false, &mut first));
    assert_eq!(first.finding.unwrap().reason, PROGRESSING);
    let failing = applied("a", Some(image_pull()), false);
    let mut failing = status_of(&[failing], &Drain::default());
    assert!(!is_unchecked(true, &mut failing));
    assert_eq!(failing.finding.unwrap().reason, IMAGE_PULL);
}

#[test]
fn only_a_rollout_disproves_that_instances_work() {
    let condition = |status: bool| {
        let finding = Finding {
            status: Some(status),
            ..Finding::no(LOAD_BALANCER_READY, PROGRESSING, "")
        };
        finding.condition(&[], 1, Timestamp::now())
    };
    let rollout = || applied("a", Some(Problem::new(PROGRESSING, "0 of 1")), false);
    let failed = || {
        Outcome::Failed(Failed {
            problem: Problem::new(PROGRESSING, "b: no answer"),
            applied: Vec::new(),
            endpoints: Vec::new(),
        })
    };
    for (before, outcomes, expected) in [
        (Some(true), vec![rollout()], true),
        (Some(true), vec![applied("a", None, false), rollout()], true),
        (Some(true), vec![applied("a", None, false)], false),
        (Some(true), vec![failed()], false),
        (Some(true), vec![rollout(), failed()], false),
        (Some(false), vec![rollout()], false),
        (None, vec![rollout()], false),
    ] {
        let before = before.map(condition);
        let disproved = is_disproved(before.as_ref(), &outcomes);
        assert_eq!(disproved, expected, "{before:?} {outcomes:?}");
    }
}

#[test]
fn only_applied_instances_are_reported_as_applied() {
    let refused = Outcome::Refused(Problem::new(PORT_CONFLICT, "b: taken"), Vec::new());
    let status = status_of(
        &[applied("loadbalancer-a", None, false), refused],
        &Drain::default(),
    );
    let names: Vec<_> = status.applied.iter().map(|applied| &applied.service).collect();
    assert_eq!(names, ["loadbalancer-a"]);
}

#[test]
fn an_instance_that_failed_stays_as_it_was_reported() {
    let before = Applied {
        service: "loadbalancer-b".to_owned(),
        epoch: 1,
        revision: 3,
        generation: 1,
    };
    let failed = Outcome::Failed(Failed {
        problem: Problem::new(PROGRESSING, "loadbalancer-b: no answer"),
        applied: vec![before.clone()],
        endpoints: Vec::new(),
    });
    let status = status_of(
        &[applied("loadbalancer-a", None, false), failed],
        &Drain::default(),
    );
    assert_eq!(status.applied.len(), 2);
    assert_eq!(status.applied[1], before);
    let finding = status.finding.unwrap();
    assert_eq!(
        (finding.reason, &*finding.message),
        (PROGRESSING, "loadbalancer-b: no answer")
    );
}

#[test]
fn what_cannot_be_deleted_is_reported_before_what_waits() {
    let drain = waiting();
    let refused = [Problem::new(REFUSED, "a: kept")];
    let reason = |refused| withdrawn(TEST, refused, &drain).finding.unwrap().reason;
    assert_eq!(reason(&refused[..]), REFUSED);
    assert_eq!(reason(&[]), PROGRESSING);
    assert!(withdrawn(TEST, &[], &Drain::default()).finding.is_none());
}

#[test]
fn removed_waits_until_no_pod_may_route() {
    let reason = |is_deleted: bool, drain: &Drain| {
        let status = deleting(TEST, (&[], is_deleted), drain);
        status.finding.unwrap().reason
    };
    let mut drain = Drain::default();
    assert_eq!(reason(true, &drain), REMOVED);
    assert_eq!(reason(false, &drain), PROGRESSING, "an object is left");
    drain.requeue = Some(std::time::Duration::from_secs(1));
    assert_eq!(reason(true, &drain), PROGRESSING, "a pod still ends");
}

#[test]
fn a_refused_deployment_stays_applied() {
    let refused = applied("loadbalancer-a", Some(Problem::new(REFUSED, "quota")), false);
    let drained = Some(Drained {
        epoch: 1,
        revision: 5,
    });
    let status = status_of(&[refused], &Drain::unchanged(drained));
    assert_eq!(status.applied.len(), 1);
    assert_eq!(status.drained, drained);
    let finding = status.finding.unwrap();
    assert_eq!(
        (finding.reason, &*finding.message),
        (REFUSED, "loadbalancer-a: quota")
    );
}

#[test]
fn hosts_that_wait_long_are_reported_last() {
    let drain = waiting();
    let finding = status_of(&[applied("a", None, true)], &drain).finding.unwrap();
    assert_eq!(
        (finding.status, &*finding.message),
        (Some(false), "hosts are not released")
    );
    let failing = applied("a", Some(image_pull()), false);
    assert_eq!(status_of(&[failing], &drain).finding.unwrap().reason, IMAGE_PULL);
}

#[test]
fn what_stays_is_named_also_without_a_placement() {
    let stays = Outcome::Predecessor(Predecessor {
        name: "a".to_owned(),
        endpoints: Vec::new(),
    });
    let refused = Outcome::Refused(Problem::new(REFUSED, "quota"), Vec::new());
    let message = |outcomes: &[Outcome]| status_of(outcomes, &Drain::default()).finding.unwrap().message;
    let named = "until pods of the new entries of its list are available, this stays: a";
    assert_eq!(message(&[applied("b", None, false), stays.clone()]), named);
    assert_eq!(message(&[refused, stays]), format!("quota; {named}"));

    let object: SIPCluster =
        serde_json::from_value(json!({"metadata": {"name": "shop"}, "spec": {}})).unwrap();
    let observed = Observed::among(&object, TEST, Vec::new(), &[]);
    let waits = "the cluster has no placement yet";
    for (staying, expected) in [(&["a"][..], format!("{waits}; {named}")), (&[], waits.to_owned())] {
        let status = waits_for_placement(TEST, &observed, staying);
        assert_eq!(status.finding.unwrap().message, expected);
    }
}
