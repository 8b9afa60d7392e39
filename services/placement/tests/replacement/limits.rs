//! How many replacements are under way, where one that failed still is; and what is withheld since there is no room.

use std::collections::BTreeSet;

use placement::{
    FailReason, Holder, Host, MemberState, Policy, RefusalKind, Requirement, Selector, Withheld, decide,
    decide_without,
};

use crate::fixtures::*;
use crate::{hosts, marked_to_move, replaced, workers};

#[test]
fn a_failed_replacement_still_counts_as_under_way() {
    let site = site(hosts(&["a", "b", "c", "d", "e"]));
    let wanted = request([role("ControlPlane", Selector::default(), 3)]);
    // x was released; b came in its place, is not bound, and has failed; a has failed for a more pressing reason.
    let members = [
        member("a", "ControlPlane", "a").failed(FailReason::Gone),
        member("b", "ControlPlane", "b")
            .state(MemberState::Claimed)
            .alone("x")
            .failed(FailReason::InError),
        member("c", "ControlPlane", "c"),
    ];
    let decision = decide(&site, &wanted, &members);
    assert_eq!(
        (replaced(&decision), released(&decision)),
        (vec![Some(id("b"))], vec!["ControlPlane/b".to_owned()])
    );
}

#[test]
fn failed_replacements_count_against_a_tenth() {
    let names: Vec<String> = (0..30).map(|i| format!("h{i:02}")).collect();
    let site = site(names.iter().map(|name| host(name).rack(name)));
    let mut members: Vec<_> = names[..20]
        .iter()
        .map(|name| member(name, "Worker", name))
        .collect();
    members[0].failed = Some(FailReason::Gone);
    members[1].failed = Some(FailReason::Gone);
    for place in [18, 19] {
        members[place].state = MemberState::Claimed;
        members[place] = members[place].clone().alone("x").failed(FailReason::MarkedFailed);
    }
    let decision = decide(&site, &workers(20), &members);
    let both = [Some(id("h18")), Some(id("h19"))];
    assert_eq!(
        replaced(&decision).iter().cloned().collect::<BTreeSet<_>>(),
        both.into()
    );
}

fn room_for(replacements_above: u32) -> Withheld {
    Withheld {
        replacements_above,
        ..Withheld::NOTHING
    }
}

#[test]
fn room_goes_to_the_most_pressing_of_all_roles() {
    let mut all = hosts(&["b", "c", "d", "e", "f"]);
    all.push(marked_to_move(host("a").rack("a")));
    let site = site(all);
    let roles = ["A", "B", "C"].map(|name| role(name, Selector::default(), 1));
    let wanted = request(roles);
    // B's is gone, C's has an error, and A's is asked to be moved.
    let members = [
        member("a", "A", "a"),
        member("b", "B", "b").failed(FailReason::Gone),
        member("c", "C", "c").failed(FailReason::InError),
    ];
    let in_order = ["b", "c", "a"].map(id);
    for room in 0..5 {
        let decision = decide_without(&site, &wanted, &members, room_for(room));
        let made: BTreeSet<_> = replaced(&decision).into_iter().flatten().collect();
        let expected = in_order.iter().take(room as usize).cloned().collect();
        assert_eq!(made, expected, "room for {room}");
    }
}

#[test]
fn who_cannot_be_replaced_takes_no_room() {
    let site = site([
        host("a").rack("a"),
        host("b").rack("b"),
        host("c").rack("c").flavor("w"),
    ]);
    let wanted = request([role("A", flavor_is("none"), 1), role("B", flavor_is("w"), 1)]);
    let members = [
        member("a", "A", "a").failed(FailReason::Gone),
        member("b", "B", "b").failed(FailReason::InError),
    ];
    let decision = decide_without(&site, &wanted, &members, room_for(1));
    assert_eq!(replaced(&decision), [Some(id("b"))]);
}

#[test]
fn withheld_growth_waits_beside_a_move_and_lowers_no_limit() {
    let names: Vec<String> = (0..40).map(|i| format!("h{i:02}")).collect();
    let all = names.iter().map(|name| host(name).rack(name));
    let site = site(all.map(|host| match host.id.name.name() {
        "h00" => marked_to_move(host),
        _ => host,
    }));
    let mut members: Vec<_> = names[..10]
        .iter()
        .map(|name| member(name, "Worker", name))
        .collect();
    members.push(
        member("h10", "Worker", "h10")
            .state(MemberState::Claimed)
            .beside("h00"),
    );
    for failed in [1, 2] {
        members[failed].failed = Some(FailReason::MarkedFailed);
    }
    // It has ten places and wants thirty: three may be replaced at once, one of which is.
    let decision = decide_without(&site, &workers(30), &members, Withheld::GROWTH);
    assert_eq!(
        replaced(&decision).into_iter().collect::<BTreeSet<_>>(),
        ["h01", "h02"].map(|name| Some(id(name))).into()
    );
    assert_eq!(decide(&site, &workers(30), &members).take.len(), 22);
}

#[test]
fn withheld_growth_brings_no_member_back_beyond_the_quota() {
    let policy = Policy {
        quotas: [("tenant".parse().expect("a namespace"), 3)].into(),
        ..Policy::default()
    };
    let used = hosts(&["a", "b", "c", "d"]).into_iter().map(HostExt::consumed);
    let mut site = site_with(policy, used);
    let members = [member("a", "Worker", "a"), member("b", "Worker", "b").requested()];
    for member in &members {
        let holder = Holder::Cluster {
            cluster: cluster("tenant/a"),
            role: member.role.clone(),
            state: member.state,
        };
        site.hold(&member.host, holder);
    }
    // Another cluster has one of the three: with the four that are wanted it would be five.
    site.hold(&id("d"), held("tenant/b", "Worker"));
    let decision = decide_without(&site, &workers(4), &members, Withheld::GROWTH);
    assert_eq!(released(&decision), ["Worker/b"]);
    let kind = decision.refusal.as_ref().map(|refusal| &refusal.kind);
    assert!(matches!(kind, Some(RefusalKind::Quota { .. })), "{kind:?}");
}

#[test]
fn the_more_pressing_is_replaced_though_the_other_has_a_host() {
    // The first host by name is in the rack of b, which is in error; a is gone, and any host but that can replace it.
    let site = site([
        host("b").rack("b"),
        host("c").rack("c"),
        host("d").rack("b"),
        host("e").rack("e"),
    ]);
    let wanted = request([role("ControlPlane", Selector::default(), 3)]);
    let members = [
        member("a", "ControlPlane", "a").failed(FailReason::Gone),
        member("b", "ControlPlane", "b").failed(FailReason::InError),
        member("c", "ControlPlane", "c"),
    ];
    let decision = decide(&site, &wanted, &members);
    assert_eq!(
        (taken(&decision), replaced(&decision)),
        (vec!["ControlPlane/e".to_owned()], vec![Some(id("a"))])
    );
    // A host that is needed for more is not taken for that.
    let mut grows = wanted.clone();
    grows.roles[0].want = 4;
    let decision = decide(&site, &grows, &members);
    assert_eq!(taken(&decision), ["ControlPlane/d", "ControlPlane/e"]);
}

#[test]
fn the_more_pressing_is_replaced_beside_a_refused_growth() {
    // The control plane cannot grow to 5, and would come nearer to it with x if a were replaced from another namespace.
    let site = site([
        host("b").rack("b"),
        host("c").rack("f"),
        host("d").rack("b"),
        host("x").rack("a"),
        host("y").rack("b"),
        host("lab/z").rack("f"),
    ]);
    let wanted = request([
        role("ControlPlane", Selector::default(), 5),
        role("Worker", Selector::default(), 2),
    ]);
    let members = [
        member("a", "Worker", "a").failed(FailReason::Gone),
        member("b", "Worker", "b").failed(FailReason::InError),
        member("c", "ControlPlane", "f"),
    ];
    let decision = decide(&site, &wanted, &members);
    assert_eq!(
        (taken(&decision), replaced(&decision)),
        (vec!["Worker/x".to_owned()], vec![Some(id("a"))])
    );
}

#[test]
fn no_host_of_another_namespace_is_taken_for_the_order() {
    // a is gone, and only y, in another namespace, could replace it; x could replace b, which is less pressing.
    let site = site([
        host("b").rack("b").marked_failed(),
        host("c").rack("c"),
        host("x").rack("b"),
        host("lab/y").rack("y"),
    ]);
    let members = [
        member("a", "Worker", "a").failed(FailReason::Gone),
        member("b", "Worker", "b"),
        member("c", "Worker", "c"),
    ];
    let decision = decide(&site, &workers(3), &members);
    assert_eq!(
        (taken(&decision), replaced(&decision)),
        (vec!["Worker/x".to_owned()], vec![Some(id("b"))])
    );
}

#[test]
fn who_cannot_be_replaced_lets_no_less_pressing_go_first() {
    // Nothing can replace a, which is gone; b and c, of whom b is more pressing, each have a host in their own rack.
    let site = site([
        host("b").rack("b").marked_failed(),
        host("c").rack("c"),
        host("x").rack("b"),
        host("y").rack("c"),
    ]);
    let members = [
        member("a", "Worker", "a").failed(FailReason::Gone),
        member("b", "Worker", "b"),
        member("c", "Worker", "c").failed(FailReason::InError),
    ];
    let decision = decide(&site, &workers(3), &members);
    assert_eq!(replaced(&decision), [Some(id("b"))]);
}

#[test]
fn the_last_host_replaces_the_more_pressing_of_two_roles() {
    let site = site(hosts(&["a", "h"]));
    let wanted = request(["Cache", "ControlPlane"].map(|name| role(name, Selector::default(), 1)));
    let members = [
        member("a", "Cache", "a").failed(FailReason::InError),
        member("b", "ControlPlane", "b").failed(FailReason::Gone),
    ];
    let decision = decide(&site, &wanted, &members);
    assert_eq!(released(&decision), ["ControlPlane/b"]);
    // A lost replacement comes first.
    let mut members = members;
    members[0] = members[0].clone().state(MemberState::Claimed).alone("x");
    assert_eq!(released(&decide(&site, &wanted, &members)), ["Cache/a"]);
}

#[test]
fn room_goes_to_the_most_pressing_that_can_be_replaced() {
    // Nothing can replace a1, which is gone; x can replace a2, and y b, which is more pressing than a2.
    let site = site([
        host("a2").rack("a2").label("x", ""),
        host("x").rack("a2").label("x", ""),
        host("b").rack("b").label("y", "").marked_failed(),
        host("y").rack("y").label("y", ""),
    ]);
    let has = |label: &str| Selector::all([Requirement::Exists(key(label))]);
    let wanted = request([role("A", has("x"), 2), role("B", has("y"), 1)]);
    let members = [
        member("a1", "A", "a1").failed(FailReason::Gone),
        member("a2", "A", "a2").failed(FailReason::InError),
        member("b", "B", "b").failed(FailReason::MarkedFailed),
    ];
    let decision = decide_without(&site, &wanted, &members, room_for(1));
    assert_eq!(released(&decision), ["B/b"]);
}

fn labelled(name: &str, rack: &str, labels: &[&str]) -> Host {
    let mut host = host(name).rack(rack);
    host.labels
        .extend(labels.iter().map(|label| (key(label), value(""))));
    host
}

#[test]
fn a_member_without_a_host_gives_no_other_its_turn() {
    // Nothing can replace a1. The one host could replace a2, in whose rack it is, or b, which is more pressing.
    let site = site([labelled("a2", "a2", &["x"]), labelled("h", "a2", &["x", "y"])]);
    let has = |label: &str| Selector::all([Requirement::Exists(key(label))]);
    let wanted = request([role("A", has("x"), 2), role("B", has("y"), 1)]);
    let members = [
        member("a1", "A", "a1").failed(FailReason::Gone),
        member("a2", "A", "a2").failed(FailReason::InError),
        member("b", "B", "b").failed(FailReason::MarkedFailed),
    ];
    assert_eq!(released(&decide(&site, &wanted, &members)), ["B/b"]);
}

#[test]
fn the_most_pressing_of_two_in_a_role_keeps_its_turn() {
    // Of twenty members of A two may be replaced: m2, which is in error, by x in its rack, and m1, which is gone, by h. Only h could
    // replace b, which is less pressing than m1.
    let names: Vec<String> = (0..18).map(|number| format!("w{number:02}")).collect();
    let mut all: Vec<Host> = names.iter().map(|name| labelled(name, name, &["a"])).collect();
    all.extend([labelled("m2", "m2", &["a"]), labelled("x", "m2", &["a"])]);
    all.push(labelled("h", "h", &["a", "b"]));
    let mut members: Vec<_> = names.iter().map(|name| member(name, "A", name)).collect();
    members.extend([
        member("m1", "A", "m1").failed(FailReason::Gone),
        member("m2", "A", "m2").failed(FailReason::InError),
        member("b", "B", "b").failed(FailReason::MarkedFailed),
    ]);
    let has = |label: &str| Selector::all([Requirement::Exists(key(label))]);
    let wanted = request([role("A", has("a"), 20), role("B", has("b"), 1)]);
    assert_eq!(released(&decide(&site(all), &wanted, &members)), ["A/m1", "A/m2"]);
}
