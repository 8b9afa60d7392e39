//! Every order of events up to a depth. What is kept of a state is its hash and how far it was followed, so that millions of states fit into
//! memory.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use stateright::{Expectation, Model as _, Property};

use crate::{
    fair,
    protocol::{Action, Protocol, State},
};

const THREADS: usize = 2;
const SHARDS: usize = 64;

/// How much was tried.
#[derive(Debug)]
pub(crate) struct Counts {
    /// Steps that were taken.
    pub(crate) steps: usize,
    /// Different states.
    pub(crate) states: usize,
}

/// What is known of states: their hashes, and how many steps were tried from each.
struct Known([Mutex<HashMap<u64, usize>>; SHARDS]);

impl Known {
    /// Notes that so many steps are tried from a state. Returns whether it is new, and whether that was not done yet.
    fn note(&self, state: &State, left: usize) -> (bool, bool) {
        let mut hash = DefaultHasher::new();
        state.hash(&mut hash);
        let hash = hash.finish();
        let shard = usize::try_from(hash % (SHARDS as u64)).unwrap();
        let mut known = self.0[shard].lock().unwrap();
        match known.insert(hash, left) {
            None => (true, true),
            Some(tried) if tried < left => (false, true),
            Some(tried) => {
                known.insert(hash, tried);
                (false, false)
            }
        }
    }
}

struct Explorer<'a> {
    model: &'a Protocol,
    properties: Vec<Property<Protocol>>,
    known: &'a Known,
    steps: usize,
    way: Vec<Action>,
}

impl Explorer<'_> {
    /// Tries every order of so many steps from a state.
    fn follow(&mut self, state: &State, left: usize) {
        let (is_new, is_due) = self.known.note(state, left);
        if is_new {
            self.check(state);
        }
        if !is_due || left == 0 {
            return;
        }
        let mut actions = Vec::new();
        self.model.actions(state, &mut actions);
        for action in actions {
            let Some(next) = self.model.next_state(state, action.clone()) else {
                continue;
            };
            self.steps += 1;
            self.way.push(action);
            self.follow(&next, left - 1);
            self.way.pop();
        }
    }

    /// Fails with the way to a state in which a promise is broken.
    fn check(&self, state: &State) {
        for property in &self.properties {
            let what = property.name;
            let holds = match property.expectation {
                Expectation::Sometimes => true,
                Expectation::Always | Expectation::Eventually => (property.condition)(self.model, state),
            };
            assert!(
                holds,
                "it is not so that {what}\n{:#?}\n\n{state:?}\n\n{:?}",
                self.way,
                fair::settle(state)
            );
        }
    }
}

/// Tries every order of events: the beginnings are one step of the depth.
pub(crate) fn explore(model: &Protocol, depth: usize) -> Counts {
    let known = Known(std::array::from_fn(|_| Mutex::default()));
    let mut work: Vec<(State, Option<Action>)> = Vec::new();
    let left = depth.saturating_sub(2);
    for beginning in model.init_states() {
        let mut actions = Vec::new();
        model.actions(&beginning, &mut actions);
        let next = actions.into_iter().filter_map(|action| {
            let next = model.next_state(&beginning, action.clone())?;
            Some((next, Some(action)))
        });
        work.extend(next.collect::<Vec<_>>());
        work.push((beginning, None));
    }
    let next = AtomicUsize::new(0);
    let steps = AtomicUsize::new(0);
    let worker = || {
        let mut explorer = Explorer {
            model,
            properties: model.properties(),
            known: &known,
            steps: 0,
            way: Vec::new(),
        };
        while let Some((state, action)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
            explorer.way = action.iter().cloned().collect();
            explorer.follow(state, if action.is_some() { left } else { 0 });
        }
        steps.fetch_add(explorer.steps, Ordering::Relaxed);
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(worker);
        }
    });
    let states = known.0.iter().map(|shard| shard.lock().unwrap().len()).sum();
    Counts {
        steps: steps.into_inner(),
        states,
    }
}
