//! Shrinks: which members go first, and a shrink that is taken back.

use placement::{Holder, MemberState, Policy, RefusalKind, Site, decide};

use crate::fixtures::*;
use crate::{hosts, marked_to_move, workers};

/// Another cluster of the namespace takes these hosts.
fn taken_by_another(site: &mut Site, names: &[&str]) {
    for name in names {
        site.hold(&id(name), held("tenant/b", "Worker"));
    }
}

fn hold(site: &mut Site, members: &[placement::Member]) {
    for member in members {
        let holder = Holder::Cluster {
            cluster: cluster("tenant/a"),
            role: member.role.clone(),
            state: member.state,
        };
        site.hold(&member.host, holder);
    }
}

#[test]
fn a_shrink_that_is_taken_back_respects_the_quota() {
    let quotas = [("tenant".parse().expect("a namespace"), 3)].into();
    let policy = Policy {
        quotas,
        ..Policy::default()
    };
    let all = hosts(&["a", "b", "c", "d"])
        .into_iter()
        .map(|host| match host.id.name.name() {
            "d" => host,
            _ => host.consumed(),
        });
    let mut site = site_with(policy, all);
    let members = [
        member("a", "Worker", "a"),
        member("b", "Worker", "b").requested(),
        member("c", "Worker", "c").requested(),
    ];
    hold(&mut site, &members);
    taken_by_another(&mut site, &["d"]);

    // Three again, with the one of the other cluster, are four.
    let decision = decide(&site, &workers(3), &members);
    assert_eq!(released(&decision), ["Worker/b", "Worker/c"]);
    let kind = decision.refusal.as_ref().map(|refusal| &refusal.kind);
    assert!(matches!(kind, Some(RefusalKind::Quota { .. })), "{kind:?}");

    let decision = decide(&site, &workers(2), &members);
    assert_eq!(
        (
            kept_hosts(&decision).len(),
            decision.release.len(),
            decision.refusal
        ),
        (2, 1, None)
    );
}

#[test]
fn a_withdrawn_move_grows_nothing_past_the_quota() {
    let quotas = [("tenant".parse().expect("a namespace"), 3)].into();
    let policy = Policy {
        quotas,
        ..Policy::default()
    };
    // n was claimed for a, which is well again; n is bound or not, and with the other cluster's host the quota is used up.
    for state in [MemberState::Claimed, MemberState::Bound] {
        let mut site = site_with(policy.clone(), hosts(&["a", "b", "n", "d"]));
        let members = [
            member("a", "Worker", "a"),
            member("b", "Worker", "b"),
            member("n", "Worker", "n").state(state).beside("a"),
        ];
        hold(&mut site, &members);
        taken_by_another(&mut site, &["d"]);
        let decision = decide(&site, &workers(3), &members);
        assert_eq!(released(&decision), ["Worker/n"], "{state:?}");
        let kind = decision.refusal.as_ref().map(|refusal| &refusal.kind);
        assert!(matches!(kind, Some(RefusalKind::Quota { .. })), "{kind:?}");
    }
}

#[test]
fn growth_at_the_quota_waits_for_the_end_of_a_move() {
    let quotas = [("tenant".parse().expect("a namespace"), 3)].into();
    let policy = Policy {
        quotas,
        ..Policy::default()
    };
    let mut all = hosts(&["b", "n", "x"]);
    all.push(marked_to_move(host("a").rack("a")));
    let mut site = site_with(policy, all);
    let mut members = [
        member("a", "Worker", "a"),
        member("b", "Worker", "b"),
        member("n", "Worker", "n").state(MemberState::Claimed).beside("a"),
    ];
    hold(&mut site, &members);
    let decision = decide(&site, &workers(3), &members);
    assert_eq!((decision.keep.len(), taken(&decision)), (3, vec![]));
    assert_eq!(
        decision
            .refusal
            .as_ref()
            .map(placement::Refusal::message)
            .as_deref(),
        Some(
            "the quota of namespace tenant is 3 hosts: other clusters hold 0, this one wants 3 and holds 1 more until its \
             replacement is bound"
        )
    );
    // The move itself needs no room, nor does what the cluster has already.
    assert_eq!(decide(&site, &workers(2), &members).refusal, None);
    members[2].state = MemberState::Bound;
    hold(&mut site, &members);
    let decision = decide(&site, &workers(3), &members);
    assert_eq!(
        (released(&decision), taken(&decision), decision.refusal),
        (vec!["Worker/a".to_owned()], vec!["Worker/x".to_owned()], None)
    );
}

#[test]
fn a_move_that_begins_with_growth_needs_no_room_either() {
    let quotas = [("tenant".parse().expect("a namespace"), 3)].into();
    let policy = Policy {
        quotas,
        ..Policy::default()
    };
    let mut all = hosts(&["b", "x", "y"]);
    all.push(marked_to_move(host("a").rack("a")));
    let mut site = site_with(policy, all);
    let members = [member("a", "Worker", "a"), member("b", "Worker", "b")];
    hold(&mut site, &members);
    let decision = decide(&site, &workers(3), &members);
    assert_eq!(
        (taken(&decision), released(&decision), decision.refusal),
        (vec!["Worker/x".to_owned(), "Worker/y".to_owned()], vec![], None)
    );
}

#[test]
fn a_moved_member_outlasts_one_that_no_quota_counts() {
    let quotas = [("tenant".parse().expect("a namespace"), 3)].into();
    let policy = Policy {
        quotas,
        ..Policy::default()
    };
    let mut all = hosts(&["n"]);
    all.extend(["b", "c"].map(|name| host(name).rack(name).consumed()));
    all.push(marked_to_move(host("a").rack("a")));
    let mut site = site_with(policy, all);
    // Of two wanted members a is moved to n; c was one too many, and is wanted again.
    let members = [
        member("a", "Worker", "a"),
        member("b", "Worker", "b"),
        member("c", "Worker", "c").requested(),
        member("n", "Worker", "n").state(MemberState::Claimed).beside("a"),
    ];
    hold(&mut site, &members);
    let decision = decide(&site, &workers(3), &members);
    assert_eq!(
        (kept_hosts(&decision).len(), released(&decision)),
        (3, vec!["Worker/c".to_owned()])
    );
}

#[test]
fn a_shrink_takes_failed_members_before_those_to_be_moved() {
    let site = site([
        marked_to_move(host("a").rack("a")),
        host("b").rack("b").consumed().marked_failed(),
        host("c").rack("c"),
    ]);
    let members = ["a", "b", "c"].map(|name| member(name, "Worker", name));
    for (want, expected) in [(2, vec!["Worker/b"]), (1, vec!["Worker/a", "Worker/b"])] {
        assert_eq!(released(&decide(&site, &workers(want), &members)), expected);
    }
}

#[test]
fn a_requested_release_does_not_pass_to_another_member() {
    let site = site([
        host("a").rack("a").consumed(),
        host("b").rack("b").consumed(),
        host("c").rack("b").consumed(),
    ]);
    let members = [
        member("a", "Worker", "a").requested(),
        member("b", "Worker", "b"),
        member("c", "Worker", "b"),
    ];
    assert_eq!(released(&decide(&site, &workers(2), &members)), ["Worker/a"]);
    assert_eq!(
        released(&decide(&site, &workers(1), &members)),
        ["Worker/a", "Worker/c"]
    );
}

#[test]
fn a_shrink_takes_claimed_members_before_bound_ones() {
    let site = site(hosts(&["a", "b", "c"]));
    let members = [
        member("a", "Worker", "a").state(MemberState::Claimed),
        member("b", "Worker", "b"),
        member("c", "Worker", "c"),
    ];
    assert_eq!(released(&decide(&site, &workers(2), &members)), ["Worker/a"]);
}

#[test]
fn a_shrink_keeps_a_used_host_whose_old_one_is_unseen() {
    // b is paused and gone for less than the grace; a, claimed beside it, is bound and used. Nobody uses c.
    let site = site([host("a").rack("a").consumed(), host("c").rack("c")]);
    let members = [
        member("a", "Worker", "a").beside("b"),
        member("b", "Worker", "b"),
        member("c", "Worker", "c"),
    ];
    assert_eq!(released(&decide(&site, &workers(1), &members)), ["Worker/c"]);
}
