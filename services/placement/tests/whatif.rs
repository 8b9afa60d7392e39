//! What would be: several clusters, how many more, and the loss of a domain.

#![allow(clippy::expect_used, reason = "a fixture that is not valid is a broken test")]
mod fixtures;

use std::collections::BTreeSet;

use fixtures::random::case;
use fixtures::{
    HostExt, MemberExt, RACK, cluster, domain, held, host, id, member, request, role, role_name, site, taken,
};
use placement::whatif::{Turn, TurnKind, decide_in_order, how_many_fit, lose_domain};
use placement::{FailReason, Outcome, Policy, Request, Role, Selector, decide};
use proptest::prelude::*;

#[test]
fn later_clusters_see_what_earlier_ones_take_and_a_later_one_may_pass() {
    let site = site(["a", "b", "c"].map(|name| host(name).rack(name)));
    let wants = |name: &str, want| {
        let mut request = request([role("Worker", Selector::default(), want)]);
        request.cluster = cluster(name);
        (request, Vec::new())
    };
    let decisions = decide_in_order(
        &site,
        &[wants("t/one", 2), wants("t/two", 2), wants("t/three", 1)],
    );
    let outcomes: Vec<Outcome> = decisions.iter().map(placement::Decision::outcome).collect();
    assert_eq!(outcomes, [Outcome::Placed, Outcome::Refused, Outcome::Placed]);
    assert_eq!(taken(&decisions[2]), ["Worker/c"]);
}

#[test]
fn replacements_come_before_growth_and_new_clusters_and_undated_ones_last() {
    let site = site([host("a").rack("r1")]);
    let wanted = request([role("Worker", Selector::default(), 1)]);
    let failed = [member("a", "Worker", "r1").failed(FailReason::Marked)];
    let turn = |members: &[placement::Member], created| Turn::new(&site, &wanted, members, created);
    let mut turns = [
        turn(&[], None),
        turn(&[], Some(7)),
        turn(&[member("a", "Worker", "r1")], Some(9)),
        turn(&failed, None),
    ];
    turns.sort();
    let kinds = turns.map(|turn| (turn.kind, turn.undated));
    let expected = [
        (TurnKind::Replacement, true),
        (TurnKind::Growth, false),
        (TurnKind::New, false),
        (TurnKind::New, true),
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn the_loss_of_a_rack_names_the_clusters_that_lose_their_majority() {
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

#[test]
fn a_quota_limits_how_many_fit() {
    let quotas = [("tenant".parse().expect("a namespace"), 5)].into();
    let hosts = ["a", "b", "c", "d", "e", "f"].map(|name| host(name).rack(name));
    let site = fixtures::site_with(
        Policy {
            quotas,
            ..Policy::default()
        },
        hosts,
    );
    let pair = request([role("Worker", Selector::default(), 2)]);
    assert_eq!(
        (how_many_fit(&site, &pair, 100), how_many_fit(&site, &pair, 1)),
        (2, 1)
    );
}

/// n copies as one request: each copy's roles are roles of their own.
fn copies(one: &Request, count: u32) -> Request {
    let copy = |n: u32| {
        one.roles.iter().map(move |role| Role {
            name: role_name(&format!("{}-{n}", role.name)),
            ..role.clone()
        })
    };
    Request {
        cluster: one.cluster.clone(),
        roles: (0..count).flat_map(copy).collect(),
        networks: BTreeSet::new(),
    }
}

proptest! {
    #![proptest_config(fixtures::runs::cases(3_000))]

    #[test]
    fn so_many_copies_fit_in_one_decision_and_no_more(case in case()) {
        let mut world = case.world();
        world.members.clear();
        let site = world.site();
        prop_assume!(world.request.roles.iter().any(|role| role.want > 0));
        let fits = how_many_fit(&site, &world.request, 20);
        prop_assert_eq!(decide(&site, &copies(&world.request, fits), &[]).refusal, None);
        prop_assert!(decide(&site, &copies(&world.request, fits + 1), &[]).refusal.is_some());
    }
}
