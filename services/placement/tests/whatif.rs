//! What would be: whose turn it is, and the loss of a domain.

#![allow(clippy::expect_used, reason = "a fixture that is not valid is a broken test")]
mod fixtures;

use fixtures::{HostExt, MemberExt, RACK, domain, held, host, id, member, request, role, site};
use placement::whatif::{Priority, PriorityClass, lose_domain};
use placement::{FailReason, Selector};

#[test]
fn replacement_before_growth_and_undated_clusters_last() {
    let site = site([host("a").rack("r1")]);
    let wanted = request([role("Worker", Selector::default(), 1)]);
    let failed = [member("a", "Worker", "r1").failed(FailReason::MarkedFailed)];
    let priority = |members: &[placement::Member], created| Priority::new(&site, &wanted, members, created);
    let mut turns = [
        priority(&[], None),
        priority(&[], Some(7)),
        priority(&[member("a", "Worker", "r1")], Some(9)),
        priority(&failed, None),
    ];
    turns.sort();
    let kinds = turns.map(|turn| (turn.kind, turn.undated));
    let expected = [
        (PriorityClass::Replacement, true),
        (PriorityClass::Growth, false),
        (PriorityClass::New, false),
        (PriorityClass::New, true),
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn a_lost_rack_names_clusters_that_lose_quorum() {
    let mut site = site([
        host("a").rack("r1"),
        host("b").rack("r2"),
        host("c").rack("r1"),
        host("d").rack("r1"),
    ]);
    for (name, holder) in [
        ("a", held("t/one", "ControlPlane")),
        ("b", held("t/one", "ControlPlane")),
        ("c", held("t/two", "Worker")),
    ] {
        site.hold(&id(name), holder);
    }
    let losses = lose_domain(&site, &domain(RACK, "r1"));
    let shown: Vec<_> = losses
        .iter()
        .map(|l| (l.cluster.to_string(), l.members, l.lost, l.loses_majority()))
        .collect();
    assert_eq!(
        shown,
        [("t/one".to_owned(), 2, 1, true), ("t/two".to_owned(), 1, 1, true)]
    );
    assert!(lose_domain(&site, &domain(RACK, "r9")).is_empty());
}
