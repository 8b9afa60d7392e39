//! The decision's rules, one sentence each.

mod fixtures;

use fixtures::*;
use placement::{FailReason, Outcome, Policy, RefusalKind, ReportKind, Selector, decide};

#[test]
fn roles_that_share_hosts_are_placed_where_greedy_refuses() {
    // The flexible host comes first by name; ControlPlane must leave it to Worker.
    let site = site([host("a").rack("r1").label("both", ""), host("b").rack("r2")]);
    let only_a = Selector::all([placement::Requirement::Exists(key("both"))]);
    let wanted = request([
        role("ControlPlane", Selector::default(), 1),
        role("Worker", only_a, 1),
    ]);
    let decision = decide(&site, &wanted, &[]);
    assert_eq!(taken(&decision), ["ControlPlane/b", "Worker/a"]);
    assert_eq!(decision.outcome(), Outcome::Placed);
}

#[test]
fn new_members_of_a_role_never_share_a_domain() {
    let hosts = [
        host("a").rack("r1"),
        host("b").rack("r1"),
        host("c").rack(""),
        host("d"),
        host("e").rack("r2"),
    ];
    let site = site(hosts);
    let decision = decide(&site, &request([role("Worker", Selector::default(), 2)]), &[]);
    assert_eq!(taken(&decision), ["Worker/a", "Worker/e"]);
    let decision = decide(&site, &request([role("Worker", Selector::default(), 3)]), &[]);
    let refusal = decision.refusal.as_ref().expect("two racks");
    let funnel = &refusal.roles[&role_name("Worker")];
    assert_eq!(
        (funnel.matched, funnel.with_topology, funnel.eligible, funnel.free),
        (5, 3, 3, 3)
    );
    assert_eq!((funnel.domains, funnel.placeable, funnel.short), (2, 2, 1));
    assert_eq!(
        refusal.tight.domains,
        [
            (role_name("Worker"), value("r1")),
            (role_name("Worker"), value("r2"))
        ]
    );
    assert_eq!((decision.outcome(), decision.take.len()), (Outcome::Refused, 0));
}

#[test]
fn a_role_without_a_topology_key_may_use_one_rack() {
    let site = site([host("a").rack("r1"), host("b").rack("r1"), host("c")]);
    let decision = decide(
        &site,
        &request([any_rack(role("Worker", Selector::default(), 3))]),
        &[],
    );
    assert_eq!(taken(&decision), ["Worker/a", "Worker/b", "Worker/c"]);
    assert!(decision.take.iter().all(|take| take.domain.is_none()));
}

#[test]
fn a_quota_refuses_growth_but_not_replacement() {
    let quotas = [("tenant".parse().expect("a namespace"), 3)].into();
    let mut site = site_with(
        Policy {
            quotas,
            ..Policy::default()
        },
        ["a", "b", "c", "d"].map(|n| host(n).rack(n)),
    );
    site.hold(&id("a"), held("tenant/other", "Worker"));
    site.hold(&id("b"), held("tenant/other", "Worker"));
    let decision = decide(&site, &request([role("Worker", Selector::default(), 2)]), &[]);
    let kind = decision.refusal.map(|refusal| refusal.kind);
    assert!(
        matches!(
            kind,
            Some(RefusalKind::Quota {
                limit: 3,
                others: 2,
                wanted: 2,
                ..
            })
        ),
        "{kind:?}"
    );
    site.hold(&id("c"), held("tenant/a", "Worker"));
    let failed = [member("c", "Worker", "c").failed(FailReason::MarkedFailed)];
    let decision = decide(&site, &request([role("Worker", Selector::default(), 1)]), &failed);
    assert_eq!(taken(&decision), ["Worker/d"]);
}

#[test]
fn hosts_are_spread_over_rooms_as_evenly_as_their_racks_allow() {
    let hosts = [
        ("a", "r1", "x"),
        ("b", "r2", "x"),
        ("c", "r3", "x"),
        ("d", "r4", "y"),
        ("e", "r5", "z"),
    ];
    let site = site_with(
        rooms(Policy::default()),
        hosts.map(|(name, rack, room)| host(name).rack(rack).label(ROOM, room)),
    );
    let wanted = |want| request([role("Worker", Selector::default(), want)]);
    assert_eq!(
        taken(&decide(&site, &wanted(3), &[])),
        ["Worker/a", "Worker/d", "Worker/e"]
    );
    let members = [member("d", "Worker", "r4")];
    assert_eq!(
        taken(&decide(&site, &wanted(3), &members)),
        ["Worker/a", "Worker/e"]
    );
}

#[test]
fn a_cluster_is_in_one_namespace_where_that_is_possible() {
    let site = site(["one/a", "two/b", "two/c"].map(|name| host(name).rack(&name[4..])));
    let wanted = |want| request([role("Worker", Selector::default(), want)]);
    assert_eq!(taken(&decide(&site, &wanted(1), &[])), ["Worker/a"]);
    assert_eq!(taken(&decide(&site, &wanted(2), &[])), ["Worker/b", "Worker/c"]);
    let spanning = decide(&site, &wanted(3), &[]);
    assert_eq!(spanning.take.len(), 3);
    assert!(
        spanning
            .reports
            .iter()
            .any(|report| matches!(report.kind, ReportKind::SpansNamespaces { .. }))
    );
    let preferred = Policy {
        namespace_preference: vec!["two".parse().expect("valid")],
        ..Policy::default()
    };
    let site = site_with(
        preferred,
        ["one/a", "two/b"].map(|name| host(name).rack(&name[4..])),
    );
    assert_eq!(taken(&decide(&site, &wanted(1), &[])), ["Worker/b"]);
}

#[test]
fn a_refusal_is_a_sentence_that_names_the_counts_and_the_key() {
    let site = site([
        host("a").rack("r1").flavor("w"),
        host("b").rack("r1").flavor("w"),
        host("c").flavor("w"),
    ]);
    let decision = decide(&site, &request([role("Worker", flavor_is("w"), 2)]), &[]);
    let message = decision.refusal.expect("one rack").message();
    assert!(
        message.starts_with(
            "Worker: 2 wanted, 1 can be placed: 3 hosts match, 2 have airshipit.org/rack, 2 are eligible, 2 free, in 1 rack; "
        ),
        "{message}"
    );
}

#[test]
fn a_refusal_after_another_roles_replacement_is_proven() {
    let site = site([host("a").rack("r2"), host("b").rack("r2"), host("c")]);
    let members = [
        member("b", "Storage", "r2").failed(FailReason::MarkedFailed),
        member("c", "ControlPlane", "r9").failed(FailReason::MarkedFailed),
    ];
    let wanted = request([
        any_rack(role("ControlPlane", Selector::default(), 1)),
        role("Storage", Selector::default(), 2),
    ]);
    let decision = decide(&site, &wanted, &members);
    assert_eq!(taken(&decision), ["ControlPlane/a"]);
    let tight = decision.refusal.expect("no host is left for Storage").tight;
    assert_eq!(
        (
            tight.demand,
            tight.deficit,
            tight.hosts.len() + tight.domains.len()
        ),
        (3, 2, 1)
    );
}

#[test]
fn an_absurd_want_is_refused_like_any_other() {
    let hosts = (0..300).map(|n| host(&format!("h{n:03}")).rack(&format!("r{}", n % 7)));
    let site = site_with(rooms(Policy::default()), hosts);
    let wanted = request([
        role("ControlPlane", Selector::default(), u32::MAX),
        any_rack(role("Storage", Selector::default(), u32::MAX)),
        role("Worker", Selector::default(), 3),
    ]);
    let refusal = decide(&site, &wanted, &[]).refusal.expect("there are 300 hosts");
    assert_eq!(refusal.roles[&role_name("ControlPlane")].placeable, 7);
    assert_eq!(refusal.roles[&role_name("Storage")].placeable, 293);
}
