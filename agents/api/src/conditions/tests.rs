use std::collections::BTreeSet;
use std::path::Path;

use super::*;

#[test]
fn docs_conditions_holds_what_the_types_state() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conditions.md");
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == page(),
        "docs/conditions.md differs from the types: run `make generate`"
    );
}

#[test]
fn every_reason_belongs_to_a_type_and_to_each_only_once() {
    let mut used = BTreeSet::new();
    for kind in ConditionType::ALL {
        let reasons: BTreeSet<Reason> = kind.reasons().iter().map(|meaning| meaning.reason).collect();
        assert_eq!(reasons.len(), kind.reasons().len(), "{kind}");
        used.extend(reasons);
    }
    assert_eq!(used, Reason::ALL.iter().copied().collect());
}

#[test]
fn names_are_those_that_users_know() {
    for name in Reason::ALL.iter().map(|reason| reason.as_str()) {
        assert!(name.starts_with(|c: char| c.is_ascii_uppercase()), "{name}");
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric()), "{name}");
    }
    let types: Vec<_> = ConditionType::ALL
        .into_iter()
        .map(ConditionType::as_str)
        .collect();
    let known = [
        "Ready",
        "Scheduled",
        "HostsLabeled",
        "LoadBalancerReady",
        "JumpHostReady",
        "AuthReady",
        "ClusterAPISynced",
        "ServicesSkipped",
        "Stalled",
    ];
    assert_eq!(types, known);
    let sip = [
        "Progressing",
        "Unschedulable",
        "InfraServiceFailure",
        "UnableToApplyLabels",
    ];
    let sip = sip
        .into_iter()
        .chain(["UnableToDecommission", "ReconciliationSucceeded"]);
    assert!(sip.clone().all(|name| READY.reason(name).is_some()));
}

#[test]
fn a_reason_is_read_by_its_type() {
    assert_eq!(HOSTS_LABELED.reason("Refused"), Some(Reason::Refused));
    assert_eq!(HOSTS_LABELED.reason("Placed"), None);
    assert!("Placed".to_owned() == Reason::Placed);
}

#[test]
fn only_a_false_condition_stalls() {
    let all = ConditionType::ALL.into_iter().flat_map(ConditionType::reasons);
    let stalling: Vec<_> = all.filter(|meaning| meaning.stalls).collect();
    assert!(!stalling.is_empty());
    assert!(stalling.iter().all(|meaning| meaning.status == Status::False));
    assert!(SCHEDULED.stalls(Reason::InvalidSpec));
    assert!(!SCHEDULED.stalls(Reason::Unschedulable), "hosts become free");
}
