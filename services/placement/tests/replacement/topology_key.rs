//! A role gets another topology key while it has members.

use placement::{ReportKind, decide};

use crate::fixtures::*;
use crate::workers;

#[test]
fn a_new_topology_key_makes_no_report_of_the_old_ones_value() {
    let site = site([host("a").rack("r1").label(ROOM, "m1")]);
    let mut wanted = workers(1);
    wanted.roles[0].topology_key = Some(key(ROOM));
    let decision = decide(&site, &wanted, &[member("a", "Worker", "r1")]);
    let changed = decision
        .reports
        .iter()
        .filter(|report| matches!(report.kind, ReportKind::DomainChanged { .. }));
    assert_eq!(changed.count(), 0, "{:?}", decision.reports);
}

#[test]
fn a_new_topology_key_closes_no_domain_by_the_old_ones_value() {
    // a is not in the inventory, and was in rack 1; b is the only host, in room 1.
    let site = site([host("b").rack("9").label(ROOM, "1")]);
    let mut wanted = workers(2);
    wanted.roles[0].topology_key = Some(key(ROOM));
    let decision = decide(&site, &wanted, &[member("a", "Worker", "1")]);
    assert_eq!(
        (taken(&decision), decision.refusal),
        (vec!["Worker/b".to_owned()], None)
    );
}
