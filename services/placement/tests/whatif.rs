//! What would be: whose turn it is, and the loss of a domain.

#![allow(clippy::expect_used, reason = "a fixture that is not valid is a broken test")]
mod fixtures;

use fixtures::{HostExt, MemberExt, RACK, cluster, domain, host, member, request, role, site};
use placement::whatif::{Priority, PriorityClass, lose_domain};
use placement::{FailReason, Member, MemberState, Selector, Site};

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

/// What the cluster `t/one` loses with the rack `r1`: of how many members, failed already, lost, and whether the majority goes.
fn lost(hosts: &[(&str, &str)], members: &[Member]) -> Option<(u32, u32, u32, bool)> {
    let site = site(hosts.iter().map(|(name, rack)| host(name).rack(rack)));
    lost_of(&site, members)
}

fn lost_of(site: &Site, members: &[Member]) -> Option<(u32, u32, u32, bool)> {
    let one = cluster("t/one");
    let losses = lose_domain(site, [(&one, members)], &domain(RACK, "r1"));
    assert!(losses.len() < 2, "{losses:?}");
    let loss = losses.first()?;
    Some((loss.members, loss.failed, loss.lost, loss.loses_majority()))
}

const THREE: [(&str, &str); 3] = [("a", "r1"), ("b", "r2"), ("c", "r3")];

fn controller(name: &str) -> Member {
    member(name, "ControlPlane", "any")
}

#[test]
fn a_lost_rack_names_clusters_that_lose_quorum() {
    let site = site([
        host("a").rack("r1"),
        host("b").rack("r2"),
        host("c").rack("r1"),
        host("d").rack("r1"),
    ]);
    let (one, two) = (cluster("t/one"), cluster("t/two"));
    let of_one = [controller("a"), controller("b")];
    let of_two = [member("c", "Worker", "r1")];
    let clusters = || [(&two, of_two.as_slice()), (&one, &of_one)];
    let losses = lose_domain(&site, clusters(), &domain(RACK, "r1"));
    let shown: Vec<_> = losses
        .iter()
        .map(|l| (l.cluster.to_string(), l.members, l.lost, l.loses_majority()))
        .collect();
    assert_eq!(
        shown,
        [("t/one".to_owned(), 2, 1, true), ("t/two".to_owned(), 1, 1, true)]
    );
    assert!(lose_domain(&site, clusters(), &domain(RACK, "r9")).is_empty());
}

#[test]
fn members_that_have_failed_do_not_survive() {
    let all = || ["a", "b", "c"].map(controller);
    assert_eq!(lost(&THREE, &all()), Some((3, 0, 1, false)));
    assert_eq!(lost(&THREE[..2], &all()), Some((3, 1, 1, true)), "c is gone");
    assert_eq!(
        lost(&THREE[1..], &all()),
        None,
        "what is lost already is lost with nothing"
    );
    let mut members = all();
    members[1].failed = Some(FailReason::InError);
    assert_eq!(lost(&THREE, &members), Some((3, 1, 1, true)));
    members[1].failed = Some(FailReason::MoveRequested);
    assert_eq!(lost(&THREE, &members), Some((3, 0, 1, false)));
    let marked = site([
        host("a").rack("r1"),
        host("b").rack("r2").marked_failed(),
        host("c").rack("r3"),
    ]);
    assert_eq!(lost_of(&marked, &all()), Some((3, 1, 1, true)));
}

#[test]
fn only_what_runs_is_a_member() {
    let claimed = controller("c").state(MemberState::Claimed);
    let members = [controller("a"), controller("b"), claimed];
    assert_eq!(lost(&THREE, &members), Some((2, 0, 1, true)));
    let requested = [controller("a"), controller("b"), controller("c").requested()];
    assert_eq!(lost(&THREE, &requested), Some((3, 0, 1, false)));
    let releasing = controller("c").state(MemberState::Releasing);
    let members = [controller("a"), controller("b"), releasing];
    assert_eq!(lost(&THREE, &members), Some((2, 0, 1, true)));
}

#[test]
fn of_a_pair_only_the_one_that_serves_counts() {
    let hosts = [("a", "r1"), ("b", "r2"), ("c", "r3"), ("n", "r1")];
    let pair = |old: Option<FailReason>, new: Option<FailReason>, state| {
        let mut members = ["a", "b", "c", "n"].map(controller);
        members[0].failed = old;
        members[3] = controller("n").beside("a").state(state);
        members[3].failed = new;
        lost(&hosts, &members)
    };
    let (moves, failed) = (Some(FailReason::MoveRequested), Some(FailReason::InError));
    let (claimed, bound) = (MemberState::Claimed, MemberState::Bound);
    for (old, new, state, expected) in [
        (moves, None, claimed, (3, 0, 1, false)),
        (moves, None, bound, (3, 0, 1, false)),
        (moves, failed, bound, (3, 0, 1, false)),
        (failed, None, bound, (3, 0, 1, false)),
        // The request was withdrawn: both stay, and both are in the rack.
        (None, None, bound, (4, 0, 2, true)),
        (None, failed, bound, (4, 1, 1, true)),
    ] {
        assert_eq!(pair(old, new, state), Some(expected), "{old:?} {new:?} {state:?}");
    }
    assert_eq!(pair(failed, None, claimed), None, "a is lost already");
    assert_eq!(pair(failed, failed, bound), None);
}
