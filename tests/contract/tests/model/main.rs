//! The protocol of claims in every order of events: a scheduler that crashes, two processes of the cluster agent of which
//! one is paused anywhere, messages that are lost, doubled and late, clusters and hosts that are made again, hosts that get other
//! addresses or show none, clusters that are taken away, and load balancers that follow whenever they get to it.
//!
//! The scheduler's steps are those of the real `scheduler::site::Site`, the agents' those of their real rules for hosts, for answers and
//! for hosts that leave; the model adds only the world around them. Every order is tried up to a depth, from several beginnings, and random
//! orders go far beyond it. What happens seldom (`rare.rs`) makes many more orders, and is tried less deep and in some of the random orders.
//!
//! `properties.rs` has what must hold in every state: among other things, that no agent replaces a placement in a status by an older one, and
//! that no pod routes to a free host, also where an earlier load-balancer agent goes on late, and whatever a report of an earlier epoch says.
//!
//! `SOAK_DEPTH` is the depth (without it a small one), `SOAK_WALKS` the number of random orders, `SOAK_SEED` the seed of the first.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, its fixtures too"
)]

mod agent;
mod agent_steps;
mod balancer;
mod every_order;
mod fair;
mod invariants;
mod ledger;
mod messages;
mod mutations;
mod paused_pass;
mod properties;
mod protocol;
mod rare;
mod scheduler;
mod wishes;
mod world;

use std::{collections::BTreeSet, time::Instant};

use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use stateright::{Expectation, Model as _};

use every_order::Counts;
use protocol::{Protocol, State};

/// The value of an environment variable that sets how much a test does.
fn soak_setting(name: &str, default: usize) -> usize {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

#[test]
fn in_every_order_of_events_up_to_a_depth_no_promise_is_broken() {
    let depth = soak_setting("SOAK_DEPTH", 4);
    let since = Instant::now();
    let model = Protocol {
        // It takes much longer than a step.
        settle_every: if depth > 4 { 1009 } else { 67 },
        mutation: None,
        has_rare: false,
    };
    let rare = Protocol {
        has_rare: true,
        ..model.clone()
    };
    for (what, model, depth) in [
        ("", model, depth),
        (" with what is rare", rare, depth.saturating_sub(1)),
    ] {
        let Counts { steps, states } = every_order::explore(&model, depth);
        println!(
            "every order of {depth} steps{what}: {steps} steps, {states} different states in {:.1} s",
            since.elapsed().as_secs_f64()
        );
    }
}

/// Steps of a random order.
const STEPS: usize = 200;

/// Of so many random orders one has what is rare. It depends on the seed, so that a seed repeats its order.
const RARE_EVERY: usize = 6;

#[test]
fn random_orders_of_events_break_no_promise() {
    let walks = soak_setting("SOAK_WALKS", 50);
    let first = soak_setting("SOAK_SEED", 1);
    let since = Instant::now();
    let model = Protocol {
        settle_every: 50,
        mutation: None,
        has_rare: false,
    };
    let rare = Protocol {
        has_rare: true,
        ..model.clone()
    };
    let beginnings = model.init_states();
    let mut seen = BTreeSet::new();
    let end = first + walks + walks.div_ceil(RARE_EVERY - 1);
    for seed in first..end {
        let model = if seed.is_multiple_of(RARE_EVERY) {
            &rare
        } else {
            &model
        };
        if let Err(Broken { what, steps, state }) =
            walk(model, &beginnings, u64::try_from(seed).unwrap(), &mut seen)
        {
            panic!(
                "seed {seed}: it is not so that {what}\n{}\n\n{state:?}\n\n{:?}",
                steps.join("\n"),
                fair::settle(&state)
            );
        }
    }
    println!(
        "random orders, seeds {first}..{end}: {STEPS} steps each in {:.1} s",
        since.elapsed().as_secs_f64()
    );
    let unseen: Vec<_> = protocol::SEEN
        .iter()
        .filter(|what| !seen.contains(*what))
        .collect();
    assert!(
        unseen.is_empty(),
        "never seen, so nothing is shown of it: {unseen:?}"
    );
}

/// A promise that a random order breaks.
struct Broken {
    what: String,
    steps: Vec<String>,
    state: Box<State>,
}

/// Takes the steps of one random order, as long as every promise is kept.
fn walk(
    model: &Protocol,
    beginnings: &[State],
    seed: u64,
    seen: &mut BTreeSet<&'static str>,
) -> Result<(), Broken> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut steps = Vec::new();
    let mut state = beginnings.choose(&mut rng).unwrap().clone();
    for step in 0..STEPS {
        for property in model.properties() {
            let holds = (property.condition)(model, &state);
            match property.expectation {
                Expectation::Sometimes if holds => _ = seen.insert(property.name),
                Expectation::Always | Expectation::Eventually if !holds => {
                    return Err(Broken {
                        what: property.name.to_owned(),
                        steps,
                        state: Box::new(state),
                    });
                }
                Expectation::Sometimes | Expectation::Always | Expectation::Eventually => {}
            }
        }
        let mut actions = Vec::new();
        model.actions(&state, &mut actions);
        if let Some(mutation) = model.mutation.filter(|_| rng.random_bool(0.95)) {
            let (likely, others): (Vec<_>, Vec<_>) = actions
                .into_iter()
                .partition(|action| mutation.favours(action, &state));
            actions = if likely.is_empty() { others } else { likely };
        }
        let Some(action) = actions.choose(&mut rng) else {
            break;
        };
        steps.push(format!("{step}: {action:?}"));
        state.step(action.clone());
    }
    match fair::settle(&state) {
        Ok(()) => Ok(()),
        Err(_) => Err(Broken {
            what: properties::ENDS.to_owned(),
            steps,
            state: Box::new(state),
        }),
    }
}
