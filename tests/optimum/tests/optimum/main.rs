//! The decision against the optimum of a linear program, on sites too large to try everything: whether a request of
//! several roles fits, and how far the placement is from the best one. The objectives come one after the other, as in
//! the decision's score: spread over rooms, hosts left to roles that match them, inspected, powered and healthy.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, its helpers too"
)]

mod program;
mod sites;

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher as _, RandomState};

use placement::{Decision, RefusalKind, Replaces, RoleName, decide};
use program::{Program, Values, optimum};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use sites::{Rooms, World, world, world_with_members};

/// Random worlds, so many times more as `SOAK` says; how many and from which seed is printed.
fn runner(cases: u32) -> TestRunner {
    let given = ProptestConfig::default();
    let seed = match given.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => RandomState::new().hash_one(cases),
    };
    let times: u32 = std::env::var("SOAK")
        .ok()
        .and_then(|times| times.parse().ok())
        .unwrap_or(1);
    let cases = cases.saturating_mul(times);
    println!("{cases} sites, PROPTEST_RNG_SEED={seed}");
    TestRunner::new(ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..given
    })
}

/// What the decision's placement is worth.
fn values(world: &World, decision: &Decision) -> Values {
    let program = Program::new(world);
    program.values(|role, host| {
        let (role, host) = (&world.request.roles[role].name, &world.hosts[host].id);
        decision
            .take
            .iter()
            .any(|take| take.role == *role && take.host == *host)
    })
}

/// The role of each member that the decision moves.
fn moved(decision: &Decision) -> Vec<&RoleName> {
    let takes = decision.take.iter();
    let beside = takes.filter(|take| matches!(take.replaces, Some(Replaces::Beside(_))));
    beside.map(|take| &take.role).collect()
}

#[test]
fn decisions_of_several_roles_equal_the_solvers_optimum() {
    let placed = Cell::new(0_u32);
    let refused = Cell::new(0_u32);
    let mut runner = runner(300);
    let result = runner.run(&world(Rooms::Whole), |world| {
        let decision = decide(&world.site(), &world.request, &[]);
        let best = optimum(&world);
        prop_assert_eq!(
            decision.refusal.is_none(),
            best.is_some(),
            "{:?}",
            decision.refusal
        );
        let counted = if best.is_some() { &placed } else { &refused };
        counted.set(counted.get() + 1);
        if let Some(best) = best {
            prop_assert_eq!(values(&world, &decision), best.values);
        }
        Ok(())
    });
    result.unwrap();
    // The strategy is worth nothing if it draws only one kind: about one site in four is too small.
    let (placed, refused) = (placed.get(), refused.get());
    println!("{placed} placed, {refused} refused");
    assert!(
        placed >= 60 && refused >= 15,
        "{placed} placed, {refused} refused"
    );
}

#[test]
fn decisions_beside_members_equal_the_solvers_optimum() {
    let (equal, near) = (Cell::new(0_u32), Cell::new((0_u32, 0_u32)));
    let (placed, moves) = (Cell::new(0_u32), Cell::new(0_u32));
    let refused = Cell::new(0_u32);
    let mut runner = runner(300);
    let result = runner.run(&world_with_members(), |world| {
        let decision = decide(&world.site(), &world.request, &world.members());
        let best = optimum(&world);
        // Lost members and moves that wait for a replacement under way are not for lack of hosts.
        let kind = decision.refusal.as_ref().map(|refusal| &refusal.kind);
        let fits = matches!(kind, None | Some(RefusalKind::ReplacementLimit));
        prop_assert_eq!(fits, best.is_some(), "{:?}", decision.refusal);
        let counted = if best.is_some() { &placed } else { &refused };
        counted.set(counted.get() + 1);
        if let Some(best) = best {
            let role = best.moves.map(|role| &world.request.roles[role].name);
            prop_assert_eq!(
                moved(&decision),
                role.into_iter().collect::<Vec<_>>(),
                "{:?}",
                decision
            );
            moves.set(moves.get() + u32::from(role.is_some()));
            let (found, best_values) = (values(&world, &decision), best.values);
            if best.grows_beside_replaced {
                prop_assert!(found.spread >= best_values.spread);
                near.set((near.get().0 + found.spread, near.get().1 + best_values.spread));
            } else {
                prop_assert_eq!(found, best_values, "{:?}", decision);
                equal.set(equal.get() + 1);
            }
        }
        Ok(())
    });
    result.unwrap();
    let (placed, refused, equal, near) = (placed.get(), refused.get(), equal.get(), near.get());
    let moves = moves.get();
    println!(
        "{placed} placed, {equal} of them exactly, {moves} with a move; spread of the others {near:?}; {refused} refused"
    );
    assert!(
        placed >= 100 && equal >= 60 && moves >= 20 && refused >= 5,
        "{placed} placed, {equal} of them exactly, {moves} with a move, {refused} refused"
    );
    assert!(
        f64::from(near.0) <= f64::from(near.1) * 1.08,
        "the spread is {}, at best {}",
        near.0,
        near.1
    );
}

#[test]
fn with_racks_in_two_rooms_the_spread_is_near_optimal() {
    let mut runner = runner(100);
    let sums = RefCell::new((0.0, 0.0, 0_u32, 0_u32));
    let result = runner.run(&world(Rooms::Crossed), |world| {
        let decision = decide(&world.site(), &world.request, &[]);
        let best = optimum(&world);
        prop_assert_eq!(
            decision.refusal.is_none(),
            best.is_some(),
            "{:?}",
            decision.refusal
        );
        if let Some(best) = best {
            let found = values(&world, &decision);
            let best = best.values;
            prop_assert!(found.spread >= best.spread);
            let mut sums = sums.borrow_mut();
            sums.0 += f64::from(found.spread);
            sums.1 += f64::from(best.spread);
            sums.2 += u32::from(found.spread == best.spread);
            sums.3 += 1;
        }
        Ok(())
    });
    result.unwrap();
    let (found, best, optimal, all) = sums.into_inner();
    println!(
        "spread: {optimal} of {all} at the optimum, in all {:.2} % above it",
        (found / best - 1.0) * 100.0
    );
    assert!(found <= best * 1.08, "the spread is {found}, at best {best}");
}
