//! Moves: withdrawn, impossible, and of a member that was claimed for another.

use std::collections::BTreeSet;

use placement::{FailReason, MemberState, RefusalKind, ReleaseReason, Requirement, Selector, decide};

use crate::fixtures::*;
use crate::{hosts, marked_to_move, replaced, workers};

#[test]
fn moving_a_claimed_replacement_releases_no_well_member() {
    // h02 is moved to h10 in its rack, which is not bound yet; then h10 is to be moved too.
    let racks = [
        ("h02", "r2"),
        ("h05", "r5"),
        ("h07", "r7"),
        ("h08", "r0"),
        ("h09", "r1"),
        ("h10", "r2"),
        ("h18", "r3"),
    ];
    let site = site(racks.map(|(name, rack)| match name {
        "h02" | "h10" => marked_to_move(host(name).rack(rack)),
        _ => host(name).rack(rack),
    }));
    let well = ["h05", "h07", "h08", "h09"].map(|name| {
        let rack = racks
            .iter()
            .find(|(host, _)| *host == name)
            .map_or("", |(_, rack)| *rack);
        member(name, "Worker", rack)
    });
    let mut members = well.to_vec();
    members.push(member("h02", "Worker", "r2"));
    members.push(
        member("h10", "Worker", "r2")
            .state(MemberState::Claimed)
            .beside("h02"),
    );

    let decision = decide(&site, &workers(5), &members);

    assert_eq!((released(&decision), taken(&decision)), (vec![], vec![]));
    assert_eq!(kept_hosts(&decision).len(), 6);
}

#[test]
fn a_withdrawn_move_gives_the_claimed_host_back() {
    // Without its mark b is well again; z is its replacement, and is not bound.
    for newcomer in ["a", "z"] {
        let site = site(hosts(&["b", "c", newcomer]));
        let members = [
            member("b", "Worker", "b"),
            member("c", "Worker", "c"),
            member(newcomer, "Worker", newcomer)
                .state(MemberState::Claimed)
                .beside("b"),
        ];
        let decision = decide(&site, &workers(2), &members);
        assert_eq!(
            (released(&decision), taken(&decision)),
            (vec![format!("Worker/{newcomer}")], vec![])
        );
    }
}

#[test]
fn a_withdrawn_moves_newcomer_fills_no_place_of_growth() {
    let site = site(hosts(&["b", "c", "a", "d"]));
    let members = [
        member("b", "Worker", "b"),
        member("c", "Worker", "c"),
        member("a", "Worker", "a").state(MemberState::Claimed).beside("b"),
    ];
    let decision = decide(&site, &workers(3), &members);
    assert_eq!(
        (released(&decision), taken(&decision)),
        (vec!["Worker/a".to_owned()], vec!["Worker/d".to_owned()])
    );
}

#[test]
fn a_withdrawn_moves_newcomer_displaces_nobody() {
    // z was claimed for b, which is well again; c is to be moved too, or has failed.
    for c in [
        marked_to_move(host("c").rack("c")),
        host("c").rack("c").marked_failed(),
    ] {
        let site = site([host("b").rack("b"), c, host("z").rack("z")]);
        let members = [
            member("b", "Worker", "b"),
            member("c", "Worker", "c"),
            member("z", "Worker", "z").state(MemberState::Claimed).beside("b"),
        ];
        let decision = decide(&site, &workers(2), &members);
        assert_eq!(released(&decision), ["Worker/z"]);
    }
}

#[test]
fn a_member_stays_while_its_bound_replacement_is_unseen() {
    // a, bound beside b, is paused and gone for less than the grace.
    let site = site([marked_to_move(host("b").rack("b")), host("c").rack("c")]);
    let members = [
        member("b", "Worker", "b"),
        member("c", "Worker", "c"),
        member("a", "Worker", "a").beside("b"),
    ];
    let decision = decide(&site, &workers(2), &members);
    assert_eq!(
        (released(&decision), taken(&decision), kept_hosts(&decision).len()),
        (vec![], vec![], 3)
    );
}

#[test]
fn a_move_waits_until_its_host_is_reported() {
    // b is paused and gone for less than the grace: it has not failed, and its mark cannot be seen.
    let site = site(hosts(&["a", "c"]));
    let members = [
        member("b", "Worker", "b"),
        member("c", "Worker", "c"),
        member("a", "Worker", "a").state(MemberState::Claimed).beside("b"),
    ];
    let decision = decide(&site, &workers(2), &members);
    assert_eq!(
        (released(&decision), taken(&decision), kept_hosts(&decision).len()),
        (vec![], vec![], 3)
    );
}

#[test]
fn a_replacement_that_fails_beside_the_old_one_is_released() {
    let site = site([
        marked_to_move(host("a").rack("a")),
        host("b").rack("b").marked_failed(),
        host("c").rack("c"),
        host("d").rack("d"),
    ]);
    let members = [
        member("a", "Worker", "a"),
        member("b", "Worker", "b").state(MemberState::Claimed).beside("a"),
        member("c", "Worker", "c"),
    ];
    let decision = decide(&site, &workers(2), &members);
    assert_eq!(released(&decision), ["Worker/b"]);
    assert_eq!(
        decision.release[0].reason,
        ReleaseReason::Failed(FailReason::MarkedFailed)
    );
    assert_eq!(replaced(&decision), [Some(id("a"))]);
    assert_eq!(kept_hosts(&decision), ["Worker/a", "Worker/c"]);
}

#[test]
fn a_move_that_cannot_be_made_blocks_no_other() {
    // a needs a control-plane host, and there is none; c and d are workers in racks, one of which has room.
    let cp = |name: &str| host(name).rack(name).flavor("cp");
    let worker = |name: &str, rack: &str| host(name).rack(rack).flavor("w");
    let site = site([
        marked_to_move(cp("a")),
        marked_to_move(worker("c", "r1")),
        marked_to_move(worker("d", "r2")),
        worker("e", "r2"),
    ]);
    let wanted = request([
        role("ControlPlane", flavor_is("cp"), 1),
        role("Worker", flavor_is("w"), 2),
    ]);
    let members = [
        member("a", "ControlPlane", "a"),
        member("c", "Worker", "r1"),
        member("d", "Worker", "r2"),
    ];
    let decision = decide(&site, &wanted, &members);
    assert_eq!(
        (taken(&decision), replaced(&decision)),
        (vec!["Worker/e".to_owned()], vec![Some(id("d"))])
    );
    assert_eq!((decision.release.len(), decision.keep.len()), (0, 3));
}

#[test]
fn a_move_to_another_namespace_waits_for_one_within_it() {
    // a comes first by its role, but its one host is in another namespace.
    let site = site([
        marked_to_move(host("a").rack("a").flavor("cp")),
        marked_to_move(host("b").rack("b").flavor("w")),
        host("lab/x").rack("x").flavor("cp"),
        host("y").rack("y").flavor("w"),
    ]);
    let wanted = request([
        role("ControlPlane", flavor_is("cp"), 1),
        role("Worker", flavor_is("w"), 1),
    ]);
    let members = [member("a", "ControlPlane", "a"), member("b", "Worker", "b")];
    let decision = decide(&site, &wanted, &members);
    assert_eq!(
        (taken(&decision), replaced(&decision)),
        (vec!["Worker/y".to_owned()], vec![Some(id("b"))])
    );
}

#[test]
fn a_move_that_cannot_be_made_is_reported_as_such() {
    let site = site([
        marked_to_move(host("a").rack("a")),
        marked_to_move(host("b").rack("b")),
    ]);
    let members = ["a", "b"].map(|name| member(name, "Worker", name));
    let decision = decide(&site, &workers(2), &members);
    let kinds: BTreeSet<&str> = decision.reports.iter().map(|report| report.kind.kind()).collect();
    assert_eq!(kinds, ["no-replacement"].into());
    assert_eq!(
        decision.refusal.map(|refusal| refusal.kind),
        Some(RefusalKind::NoFit)
    );
}

#[test]
fn a_move_uses_no_rack_of_a_failed_member() {
    // c and d share a rack since somebody relabelled it: c has failed, and nothing can replace it there; d is to be moved.
    let names: Vec<String> = (0..18).map(|number| format!("w{number:02}")).collect();
    let mut all: Vec<_> = names.iter().map(|name| host(name).rack(name)).collect();
    all.extend([
        host("c").rack("r").marked_failed(),
        marked_to_move(host("d").rack("r")),
        host("e").rack("r"),
    ]);
    let site = site(all);
    let mut members: Vec<_> = names.iter().map(|name| member(name, "Worker", name)).collect();
    members.extend(["c", "d"].map(|name| member(name, "Worker", "r")));
    let decision = decide(&site, &workers(20), &members);
    assert_eq!(taken(&decision), Vec::<String>::new());
}

#[test]
fn a_bound_host_that_fails_stays_once_its_move_is_withdrawn() {
    // Before the next decision b, claimed beside a, is bound, fails and is used; a is not to be moved any more, and one more is wanted.
    let site = site([
        host("a").rack("a"),
        host("b").rack("b").consumed().marked_failed(),
    ]);
    let members = [member("a", "Worker", "a"), member("b", "Worker", "b").beside("a")];
    let decision = decide(&site, &workers(2), &members);
    assert_eq!(
        (released(&decision), kept_hosts(&decision).len()),
        (vec![], 2),
        "no host can replace b"
    );
}

#[test]
fn a_withdrawn_moves_newcomer_shares_no_rack() {
    // b was claimed in a's rack to take its place; a stays now, and another one is wanted besides.
    let members = [
        member("a", "Worker", "r1"),
        member("b", "Worker", "r1")
            .state(MemberState::Claimed)
            .beside("a"),
    ];
    let shared = [host("a").rack("r1"), host("b").rack("r1")];
    let decision = decide(&site(shared.clone()), &workers(2), &members);
    assert_eq!(
        (released(&decision), taken(&decision), kept_hosts(&decision)),
        (vec!["Worker/b".to_owned()], vec![], vec!["Worker/a".to_owned()])
    );
    let larger = site(shared.into_iter().chain([host("c").rack("r2")]));
    assert_eq!(taken(&decide(&larger, &workers(2), &members)), ["Worker/c"]);
}

#[test]
fn of_a_failed_pair_the_bound_replacement_stays() {
    // a is gone, and b, which has been bound beside it since the last decision, is in error.
    let members = [
        member("a", "Worker", "a").failed(FailReason::Gone),
        member("b", "Worker", "b").beside("a").failed(FailReason::InError),
    ];
    let decision = decide(&site([host("b").rack("b")]), &workers(1), &members);
    assert_eq!(
        (released(&decision), kept_hosts(&decision)),
        (vec!["Worker/a".to_owned()], vec!["Worker/b".to_owned()])
    );
    let decision = decide(&site(hosts(&["b", "c"])), &workers(1), &members);
    assert_eq!(
        (released(&decision), replaced(&decision)),
        (
            vec!["Worker/a".to_owned(), "Worker/b".to_owned()],
            vec![Some(id("b"))]
        )
    );
}

#[test]
fn that_member_moves_whose_move_leaves_all_complete() {
    // If a moved to h, B could not grow: its other host, e, is in the rack of b, which is to be moved too.
    let host_of = |name: &str, rack: &str, labels: &[&str]| {
        let mut host = host(name).rack(rack);
        host.labels
            .extend(labels.iter().map(|label| (key(label), value(""))));
        host
    };
    let site = site([
        marked_to_move(host_of("a", "ra", &["cp"])),
        marked_to_move(host_of("b", "rb", &["w"])),
        host_of("e", "rb", &["w"]),
        host_of("h", "rh", &["cp", "w"]),
    ]);
    let has = |label: &str| Selector::all([Requirement::Exists(key(label))]);
    let wanted = request([role("A", has("cp"), 1), role("B", has("w"), 2)]);
    let members = [member("a", "A", "ra"), member("b", "B", "rb")];
    let decision = decide(&site, &wanted, &members);
    assert_eq!(taken(&decision), ["B/e", "B/h"]);
}
