//! What becomes of a cluster's members: who stays, who goes, who is replaced; one sentence each.

mod fixtures;

use fixtures::*;
use placement::{
    FailReason, Ineligible, MemberState, Outcome, RefusalKind, ReleaseReason, Replaces, ReportKind, Request,
    Selector, decide, failure,
};

#[test]
fn present_members_use_up_their_domains_and_releasing_ones_too() {
    let site = site([
        host("a").rack("r1"),
        host("b").rack("r2"),
        host("c").rack("r3"),
        host("d").rack("r1"),
    ]);
    let members = [
        member("a", "Worker", "r1"),
        member("b", "Worker", "r2").state(MemberState::Releasing),
    ];
    let wanted = request([role("Worker", Selector::default(), 2)]);
    let decision = decide(&site, &wanted, &members);
    assert_eq!(taken(&decision), ["Worker/c"]);
    let wanted = request([role("Worker", Selector::default(), 3)]);
    let decision = decide(&site, &wanted, &members);
    assert_eq!(
        (taken(&decision).len(), decision.outcome()),
        (0, Outcome::Refused)
    );
}

#[test]
fn a_consumer_fails_a_claimed_host_but_not_a_bound_one() {
    let site = site([host("a").consumed(), host("b")]);
    let wanted = role("Worker", Selector::default(), 1);
    let of = |name: &str, state| failure(&site, &wanted, &member(name, "Worker", "r1").state(state), None);
    assert_eq!(
        of("a", MemberState::Claimed),
        Some(FailReason::UsedBeforeLabelled)
    );
    assert_eq!(of("a", MemberState::Bound), None);
    assert_eq!(of("b", MemberState::Claimed), None);
}

#[test]
fn a_host_that_cannot_be_written_gives_its_place_away() {
    let mut refused = host("a").rack("r1");
    refused.write_refused = true;
    let site = site([refused, host("b").rack("r2")]);
    let wanted = role("Worker", Selector::default(), 1);
    let of = |name: &str, state| failure(&site, &wanted, &member(name, "Worker", "r1").state(state), None);
    assert_eq!(of("a", MemberState::Claimed), Some(FailReason::WriteRefused));
    assert_eq!(of("a", MemberState::Bound), None);
    assert_eq!(of("b", MemberState::Claimed), None);
    let members = [member("a", "Worker", "r1")
        .state(MemberState::Claimed)
        .failed(FailReason::WriteRefused)];
    let decision = decide(&site, &request([wanted]), &members);
    assert_eq!(taken(&decision), ["Worker/b"]);
    let released = decision.release.iter().map(|release| release.reason);
    assert_eq!(
        released.collect::<Vec<_>>(),
        [placement::ReleaseReason::Failed(FailReason::WriteRefused)]
    );
}

#[test]
fn a_member_that_breaks_a_rule_stays_and_is_reported() {
    let site = site([
        host("a").rack("r1").flavor("old").paused(),
        host("b").rack("r2").flavor("new"),
    ]);
    let wanted = request([role("Worker", flavor_is("new"), 1)]);
    let decision = decide(&site, &wanted, &[member("a", "Worker", "r1")]);
    assert_eq!(
        (kept_hosts(&decision), taken(&decision).len()),
        (vec!["Worker/a".to_owned()], 0)
    );
    assert_eq!(decision.reports.len(), 2, "{:?}", decision.reports);
}

#[test]
fn adopted_members_in_one_domain_both_stay_and_are_reported() {
    let site = site([
        host("a").rack("r1"),
        host("b").rack("r1"),
        host("c").rack("r1"),
        host("d").rack("r2"),
    ]);
    let members = [member("a", "Worker", "r1"), member("b", "Worker", "r1")];
    let decision = decide(
        &site,
        &request([role("Worker", Selector::default(), 3)]),
        &members,
    );
    assert_eq!(
        (kept_hosts(&decision).len(), taken(&decision)),
        (2, vec!["Worker/d".to_owned()])
    );
    let shared = decision
        .reports
        .iter()
        .filter(|r| matches!(r.kind, ReportKind::SharesDomain { .. }));
    assert_eq!(shared.count(), 2);
}

#[test]
fn a_shrink_takes_failed_then_unused_then_crowded_members() {
    let site = site([
        host("a").rack("r1"),
        host("b").rack("r2").consumed(),
        host("c").rack("r3").consumed().marked_failed(),
        host("d").rack("r1"),
        host("e").rack("r4"),
    ]);
    let members = ["a", "b", "c", "d", "e"].map(|name| member(name, "Worker", "r0"));
    let order = ["c", "d", "e", "a", "b"];
    for surplus in 1..=5 {
        let wanted = request([role(
            "Worker",
            Selector::default(),
            5 - u32::try_from(surplus).expect("small"),
        )]);
        let decision = decide(&site, &wanted, &members);
        let mut expected: Vec<String> = order[..surplus]
            .iter()
            .map(|name| format!("Worker/{name}"))
            .collect();
        expected.sort();
        assert_eq!(released(&decision), expected);
        assert!(
            decision
                .release
                .iter()
                .all(|release| release.reason == ReleaseReason::Surplus)
        );
        assert!(decision.take.is_empty());
    }
}

#[test]
fn shrink_commits_though_another_role_cannot_grow() {
    let site = site([host("a").rack("r1"), host("b").rack("r2")]);
    let members = [member("a", "Worker", "r1"), member("b", "Worker", "r2")];
    let wanted = request([
        role("ControlPlane", Selector::default(), 1),
        role("Worker", Selector::default(), 1),
    ]);
    let decision = decide(&site, &wanted, &members);
    assert_eq!(
        (released(&decision), taken(&decision).len()),
        (vec!["Worker/b".to_owned()], 0)
    );
    assert_eq!(decision.outcome(), Outcome::Partial);
}

#[test]
fn a_role_gone_from_the_spec_releases_all_its_members() {
    let site = site([host("a").rack("r1")]);
    let members = [
        member("a", "Worker", "r1"),
        member("x", "Worker", "r1").state(MemberState::Releasing),
    ];
    let decision = decide(&site, &request([]), &members);
    assert_eq!(
        (released(&decision), decision.outcome()),
        (vec!["Worker/a".to_owned()], Outcome::Placed)
    );
}

#[test]
fn a_failed_member_yields_its_domain_to_its_replacement() {
    let site = site([
        host("a").rack("r1").marked_failed(),
        host("b").rack("r1"),
        host("c").rack("r2"),
    ]);
    let members = [
        member("a", "ControlPlane", "r1"),
        member("c", "ControlPlane", "r2"),
    ];
    let decision = decide(
        &site,
        &request([role("ControlPlane", Selector::default(), 2)]),
        &members,
    );
    assert_eq!(taken(&decision), ["ControlPlane/b"]);
    assert_eq!(decision.take[0].replaces, Some(Replaces::Alone(id("a"))));
    assert_eq!(
        decision.release[0].reason,
        ReleaseReason::Failed(FailReason::MarkedFailed)
    );
    assert_eq!(decision.outcome(), Outcome::Placed);
}

#[test]
fn replacements_are_limited_and_the_rest_waits() {
    let hosts = ["a", "b", "c", "d", "e"].map(|name| host(name).rack(name));
    let site = site(hosts);
    let failed = |name: &str| member(name, "ControlPlane", name).failed(FailReason::MarkedFailed);
    let members = [failed("a"), failed("b"), member("c", "ControlPlane", "c")];
    let wanted = request([role("ControlPlane", Selector::default(), 3)]);
    let decision = decide(&site, &wanted, &members);
    assert_eq!(
        (released(&decision), taken(&decision)),
        (
            vec!["ControlPlane/a".to_owned()],
            vec!["ControlPlane/d".to_owned()]
        )
    );
    assert_eq!(decision.outcome(), Outcome::Partial);
    assert_eq!(
        decision.refusal.as_ref().map(|r| r.kind.clone()),
        Some(RefusalKind::ReplacementLimit)
    );
    // The first replacement is not bound yet, so the second failed member waits.
    let claimed = apply(&decision, &wanted, &members, false);
    let second = decide(&site, &wanted, &claimed);
    assert_eq!(
        (released(&second).len(), taken(&second).len(), second.outcome()),
        (0, 0, Outcome::Partial)
    );
    let bound = apply(&decision, &wanted, &members, true);
    let third = decide(&site, &wanted, &bound);
    assert_eq!(
        (released(&third), taken(&third)),
        (
            vec!["ControlPlane/b".to_owned()],
            vec!["ControlPlane/e".to_owned()]
        )
    );
}

#[test]
fn a_tenth_of_the_workers_may_be_replaced_at_a_time() {
    let names: Vec<String> = (0..40).map(|i| format!("h{i:02}")).collect();
    let site = site(names.iter().map(|name| host(name).rack(name)));
    let members: Vec<_> = names[..20]
        .iter()
        .map(|name| member(name, "Worker", name).failed(FailReason::Gone))
        .collect();
    let decision = decide(
        &site,
        &request([role("Worker", Selector::default(), 20)]),
        &members,
    );
    assert_eq!(
        (decision.take.len(), decision.release.len(), decision.keep.len()),
        (2, 2, 18)
    );
}

#[test]
fn a_member_to_be_moved_is_kept_until_its_replacement_is_bound() {
    let site = site([host("a").rack("r1"), host("b").rack("r2"), host("c").rack("r3")]);
    let members = [
        member("a", "Worker", "r1").failed(FailReason::MoveRequested),
        member("c", "Worker", "r3"),
    ];
    let wanted = request([role("Worker", Selector::default(), 2)]);
    let first = decide(&site, &wanted, &members);
    assert_eq!(
        (taken(&first), released(&first).len(), kept_hosts(&first).len()),
        (vec!["Worker/b".to_owned()], 0, 2)
    );
    assert_eq!(first.outcome(), Outcome::Placed);
    let claimed = apply(&first, &wanted, &members, false);
    let second = decide(&site, &wanted, &claimed);
    assert_eq!(
        (second.take.len(), second.release.len(), second.keep.len()),
        (0, 0, 3)
    );
    let bound = apply(&first, &wanted, &members, true);
    let third = decide(&site, &wanted, &bound);
    assert_eq!(
        (released(&third), third.take.len()),
        (vec!["Worker/a".to_owned()], 0)
    );
    assert_eq!(third.release[0].reason, ReleaseReason::Moved);
    // A shrink in between releases one place: that of the pair, which is to be moved.
    let smaller = request([role("Worker", Selector::default(), 1)]);
    let shrunk = decide(&site, &smaller, &claimed);
    assert_eq!(
        (released(&shrunk), kept_hosts(&shrunk)),
        (
            vec!["Worker/a".to_owned(), "Worker/b".to_owned()],
            vec!["Worker/c".to_owned()]
        )
    );
    let left = apply(&shrunk, &smaller, &claimed, false);
    let repeated = decide(&site, &smaller, &left);
    assert_eq!(
        (repeated.take.len(), repeated.release.len(), repeated.keep.len()),
        (0, 0, 1)
    );
}

#[test]
fn a_host_that_came_back_with_another_uid_is_another_host() {
    let mut site = site([host("a").rack("r1")]);
    site.hold(&id("a"), held("tenant/b", "Worker"));
    let mut again = host("a").rack("r1");
    again.id.uid = "another".parse().expect("valid");
    assert!(
        decide(&site, &request([role("Worker", Selector::default(), 1)]), &[])
            .take
            .is_empty()
    );
    site.upsert(again.clone());
    let decision = decide(&site, &request([role("Worker", Selector::default(), 1)]), &[]);
    assert_eq!(decision.take[0].host, again.id);
    assert!(
        site.holder(&id("a")).is_some(),
        "the claim on the old one is still known"
    );
    let own = [member("a", "Worker", "r1").state(MemberState::Releasing)];
    assert!(
        decide(&site, &request([role("Worker", Selector::default(), 1)]), &own)
            .take
            .is_empty()
    );
    let gone = [member("a", "Worker", "r1").failed(FailReason::Gone)];
    let decision = decide(&site, &request([role("Worker", Selector::default(), 1)]), &gone);
    assert_eq!(
        (decision.take[0].host.clone(), decision.take[0].replaces.clone()),
        (again.id, Some(Replaces::Alone(id("a")))),
        "it can take the place of the one that is gone"
    );
}

#[test]
fn a_gone_members_machine_is_for_its_own_cluster_only() {
    let mut site = site([host("a").rack("r1")]);
    site.set_former(&id("a").name, [cluster("tenant/b")].into());
    let wanted = request([role("Worker", Selector::default(), 1)]);
    let refusal = decide(&site, &wanted, &[]).refusal.expect("it is not for others");
    let funnel = &refusal.roles[&role_name("Worker")];
    assert_eq!((funnel.matched, funnel.eligible, funnel.free), (1, 0, 0));
    let message = refusal
        .helps
        .iter()
        .map(|help| refusal.help_message(help))
        .collect::<Vec<_>>()
        .join("; ");
    assert!(
        message.contains("an address or the BMC address of a member of another cluster"),
        "the tenant of the refused cluster reads it: {message}"
    );
    assert!(!message.contains("tenant/b"), "{message}");
    let explained = |request| placement::explain(&site, request, &wanted.roles[0], &id("a").name);
    assert_eq!(
        explained(&wanted),
        [Ineligible::FormerMember(cluster("tenant/b"))]
    );

    let own = Request {
        cluster: cluster("tenant/b"),
        ..wanted.clone()
    };
    assert_eq!(explained(&own), []);
    assert_eq!(taken(&decide(&site, &own, &[])), ["Worker/a"]);
    site.set_former(&id("a").name, [cluster("tenant/a"), cluster("tenant/b")].into());
    assert_eq!(decide(&site, &own, &[]).outcome(), Outcome::Refused);
    site.set_former(&id("a").name, [].into());
    assert_eq!(taken(&decide(&site, &wanted, &[])), ["Worker/a"]);
}
