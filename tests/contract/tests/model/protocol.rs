//! What can happen next, and what must always hold.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use stateright::{Model, Property};

use crate::{
    agent::{Agent, Deed},
    fair,
    ledger::{Held, Ledger, Staged},
    messages::{Answer, Ask, Request},
    scheduler::Scheduler,
    world::{CLUSTERS, HOSTS, HostKey, World},
};

/// Messages of a kind that may be under way at once; beyond it one must be lost first.
const UNDER_WAY: usize = 3;

/// What must happen somewhere, or nothing is shown.
pub(crate) const SEEN: [&str; 5] = [
    "a host moves from one cluster to another",
    "an older agent is refused",
    "a crash loses what was not durable",
    "a call arrives twice",
    "a cluster that was made again has the hosts of the one before",
];

/// How often the bad things may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Spent {
    pub(crate) crashes: u8,
    pub(crate) cuts: u8,
    pub(crate) wishes: u8,
    pub(crate) remade: u8,
}

const MOST: Spent = Spent {
    crashes: 2,
    cuts: 2,
    wishes: 4,
    remade: 2,
};

/// Everything.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) struct State {
    pub(crate) world: World,
    /// The later one has won a later election; the earlier one does not know.
    pub(crate) agents: [Agent; 2],
    pub(crate) requests: BTreeSet<Request>,
    pub(crate) answers: BTreeSet<Answer>,
    pub(crate) scheduler: Scheduler,
    pub(crate) ledger: Ledger,
    pub(crate) spent: Spent,
    /// Cluster and host of every answer that was given, until the host was given back.
    pub(crate) promised: BTreeSet<(u8, HostKey)>,
    /// A host that was freed too early.
    freed_early: Option<HostKey>,
    /// Indices into [`SEEN`].
    seen: BTreeSet<u8>,
    /// The cluster that held each host last.
    last: [Option<(HostKey, u8)>; HOSTS],
}

/// What can happen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// An agent's watches bring the newest state.
    Look(u8),
    /// An agent declares or releases a cluster as it sees it.
    Declare(u8, u8),
    /// A call arrives; it may arrive again.
    Serve(Request, Again),
    Lose(Request),
    Hear(Answer, Again),
    LoseAnswer(Answer),
    Open(u8),
    Report(u8),
    /// The scheduler takes the next message of an agent's stream.
    Take(u8),
    /// A stream breaks; the scheduler has not noticed.
    Cut(u8),
    /// The scheduler notices.
    Notice,
    Act(u8, u8, HostKey, Deed),
    /// An agent reads the placement of a cluster that it does not see.
    Find(u8, u8),
    /// The next change is on disk.
    Commit,
    Crash,
    Retry(u8),
    Scale(u8, u32),
    Delete(u8),
    Make(u8),
    Remake(u8),
}

/// Whether a message stays under way though it has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    No,
    Yes,
}

/// The model.
#[derive(Clone, Debug)]
pub(crate) struct Protocol {
    /// That everything settles when nothing bad happens any more is tried from one state of so many.
    pub(crate) settle_every: u64,
}

impl State {
    pub(crate) fn new(wants: [u32; CLUSTERS]) -> Self {
        let ledger = Ledger::default();
        Self {
            world: World::new(wants),
            agents: [Agent::new(), Agent::new()],
            requests: BTreeSet::new(),
            answers: BTreeSet::new(),
            scheduler: Scheduler::start(&ledger),
            ledger,
            spent: Spent::default(),
            promised: BTreeSet::new(),
            freed_early: None,
            seen: BTreeSet::new(),
            last: [None; HOSTS],
        }
    }

    /// Takes a step; what it does not change, it leaves as it is.
    pub(crate) fn step(&mut self, action: Action) {
        match action {
            Action::Look(agent) => self.agents[usize::from(agent)].look(&self.world.now),
            Action::Declare(agent, cluster) => {
                let declared = self.agents[usize::from(agent)].declare(agent, cluster);
                self.requests.extend(declared);
            }
            Action::Serve(request, again) => {
                self.scheduler.serve(&request);
                match again {
                    Again::No => _ = self.requests.remove(&request),
                    Again::Yes => _ = self.seen.insert(3),
                }
            }
            Action::Lose(request) => _ = self.requests.remove(&request),
            Action::LoseAnswer(answer) => _ = self.answers.remove(&answer),
            Action::Hear(answer, again) => {
                if again == Again::No {
                    self.answers.remove(&answer);
                }
                let agent = &mut self.agents[usize::from(answer.request.agent)];
                agent.hear(answer, &mut self.world);
            }
            Action::Open(agent) => self.agents[usize::from(agent)].open(),
            Action::Report(agent) => self.agents[usize::from(agent)].report(),
            Action::Take(agent) => self.take(agent),
            Action::Cut(agent) => {
                self.spent.cuts += 1;
                self.agents[usize::from(agent)].stream = None;
            }
            Action::Notice => self.scheduler.close(),
            Action::Act(agent, cluster, host, deed) => {
                let actor = &self.agents[usize::from(agent)];
                let confirmed = actor.act(agent, cluster, host, deed, &mut self.world);
                self.requests.extend(confirmed);
            }
            Action::Find(agent, cluster) => {
                if let Some(held) = self.ledger.records.get(&cluster) {
                    let (uid, placement) = held.placement();
                    self.agents[usize::from(agent)].find(cluster, uid, placement);
                }
            }
            Action::Commit => self.commit(),
            Action::Crash => {
                self.spent.crashes += 1;
                if !self.scheduler.staged.is_empty() {
                    self.seen.insert(2);
                }
                self.scheduler = Scheduler::start(&self.ledger);
                for agent in &mut self.agents {
                    agent.stream = None;
                }
            }
            Action::Retry(cluster) => self.scheduler.retry(cluster),
            Action::Scale(cluster, want) => {
                self.spent.wishes += 1;
                if let Some(cluster) = &mut self.world.now.clusters[usize::from(cluster)] {
                    cluster.generation += 1;
                    cluster.want = want;
                }
            }
            Action::Delete(cluster) => {
                self.spent.wishes += 1;
                if let Some(cluster) = &mut self.world.now.clusters[usize::from(cluster)] {
                    cluster.deleting = true;
                }
            }
            Action::Make(cluster) => {
                self.spent.wishes += 1;
                self.world.make_cluster(cluster, 1);
            }
            Action::Remake(host) => {
                self.spent.remade += 1;
                self.world.remake(host);
            }
        }
        let answers = self.scheduler.answers(&self.ledger);
        for answer in &answers {
            let members = answer.told.iter().flat_map(|told| &told.members);
            let kept = members.filter(|(_, _, releasing)| !releasing);
            self.promised
                .extend(kept.map(|(host, _, _)| (answer.request.cluster, *host)));
        }
        self.answers.extend(answers);
    }

    fn take(&mut self, agent: u8) {
        let Some(stream) = &mut self.agents[usize::from(agent)].stream else {
            return;
        };
        let Some(piece) = stream.queue.pop_front() else {
            return;
        };
        if !self.scheduler.hear(agent, stream.number, &piece) {
            self.seen.insert(1);
            self.agents[usize::from(agent)].stream = None;
        }
    }

    fn commit(&mut self) {
        if self.scheduler.staged.is_empty() {
            return;
        }
        let change = self.scheduler.staged.remove(0);
        if let Staged::Record { cluster, record, .. } = &change {
            let before = self.ledger.records.get(cluster);
            let after: BTreeSet<HostKey> = record.iter().flat_map(Held::members).map(|m| m.0).collect();
            for (host, revision, _) in before.into_iter().flat_map(Held::members) {
                if after.contains(&host) {
                    continue;
                }
                self.promised.remove(&(*cluster, host));
                let given_back = |host: crate::world::Host| host.label.is_none() && host.mark >= revision;
                if !self.world.host(host).is_none_or(given_back) {
                    self.freed_early = Some(host);
                }
            }
            for host in &after {
                let last = &mut self.last[usize::from(host.index)];
                if last.is_some_and(|(before, by)| before == *host && by != *cluster) {
                    self.seen.insert(0);
                }
                *last = Some((*host, *cluster));
            }
            let taken_over = before.zip(record.as_ref()).is_some_and(|(before, after)| {
                before.0.uid != after.0.uid
                    && before
                        .members()
                        .any(|(host, _, _)| after.members().any(|m| m.0 == host))
            });
            if taken_over {
                self.seen.insert(4);
            }
        }
        self.ledger.commit(change);
    }

    fn wishes(&self, actions: &mut Vec<Action>) {
        if self.spent.wishes >= MOST.wishes {
            return;
        }
        for (cluster, there) in (0u8..).zip(&self.world.now.clusters) {
            actions.push(Action::Make(cluster));
            let Some(there) = there.as_ref().filter(|there| !there.deleting) else {
                continue;
            };
            actions.push(Action::Delete(cluster));
            let wants = (0..=2).filter(|want| *want != there.want);
            actions.extend(wants.map(|want| Action::Scale(cluster, want)));
        }
    }

    fn agent(&self, number: u8, actions: &mut Vec<Action>) {
        let agent = &self.agents[usize::from(number)];
        if agent.seen != self.world.now {
            actions.push(Action::Look(number));
        }
        if self.requests.len() < UNDER_WAY {
            let declared = (0u8..).take(CLUSTERS).filter(|cluster| {
                let request = agent.declare(number, *cluster);
                request.is_some_and(|request| !self.requests.contains(&request))
            });
            actions.extend(declared.map(|cluster| Action::Declare(number, cluster)));
            let missed = self.ledger.releasing().filter(|cluster| agent.misses(*cluster));
            actions.extend(missed.map(|cluster| Action::Find(number, cluster)));
            let deeds = agent.deeds().into_iter();
            actions.extend(deeds.map(|(cluster, host, deed)| Action::Act(number, cluster, host, deed)));
        }
        match &agent.stream {
            None if agent.listed => actions.push(Action::Open(number)),
            None => {}
            Some(stream) => {
                let next = stream.queue.front();
                if next.is_some_and(|next| self.scheduler.hears(number, stream.number, next, &self.ledger)) {
                    actions.push(Action::Take(number));
                }
                if agent.reports() {
                    actions.push(Action::Report(number));
                }
                if self.spent.cuts < MOST.cuts {
                    actions.push(Action::Cut(number));
                }
            }
        }
    }

    /// Whether the scheduler's session has no stream any more.
    pub(crate) fn session_is_dead(&self) -> bool {
        self.scheduler.session.is_some_and(|session| {
            let stream = &self.agents[usize::from(session.agent)].stream;
            stream
                .as_ref()
                .is_none_or(|stream| stream.number != session.stream)
        })
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        fair::beginnings()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for agent in 0..2 {
            state.agent(agent, actions);
        }
        for request in &state.requests {
            actions.push(Action::Serve(request.clone(), Again::No));
            // A confirmation that comes twice is what a doubled call is at its worst, and so is a declaration.
            if !matches!(request.ask, Ask::Confirm { .. }) || state.scheduler.staged.is_empty() {
                actions.push(Action::Serve(request.clone(), Again::Yes));
            }
        }
        for answer in &state.answers {
            actions.push(Action::Hear(answer.clone(), Again::No));
            actions.push(Action::Hear(answer.clone(), Again::Yes));
        }
        if state.requests.len() >= UNDER_WAY {
            actions.extend(state.requests.iter().cloned().map(Action::Lose));
        }
        if state.answers.len() >= UNDER_WAY {
            actions.extend(state.answers.iter().cloned().map(Action::LoseAnswer));
        }
        if state.session_is_dead() {
            actions.push(Action::Notice);
        }
        if !state.scheduler.staged.is_empty() {
            actions.push(Action::Commit);
        }
        if state.spent.crashes < MOST.crashes {
            actions.push(Action::Crash);
        }
        actions.extend(state.scheduler.waits().into_iter().map(Action::Retry));
        state.wishes(actions);
        if state.spent.remade < MOST.remade {
            actions.extend((0..2).map(Action::Remake));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        next.step(action);
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no host is held twice", |_, state: &State| !state.held_twice()),
            Property::always(
                "a host with a cluster's labels is held by that cluster",
                |_, state: &State| state.labels_are_claims(),
            ),
            Property::always(
                "a host that becomes free has no labels, or is gone",
                |_, state: &State| state.freed_early.is_none(),
            ),
            Property::always(
                "what was answered is held until it is given back",
                |_, state: &State| state.promises_are_kept(),
            ),
            Property::always(
                "a cluster is released only when it is deleted",
                |_, state: &State| !state.released_unasked(),
            ),
            Property::always(
                "when nothing bad happens any more, all releases end",
                |model, state: &State| {
                    let mut hash = DefaultHasher::new();
                    state.hash(&mut hash);
                    !hash.finish().is_multiple_of(model.settle_every) || fair::settle(state).is_ok()
                },
            ),
            Property::sometimes(SEEN[0], |_, state: &State| state.seen.contains(&0)),
            Property::sometimes(SEEN[1], |_, state: &State| state.seen.contains(&1)),
            Property::sometimes(SEEN[2], |_, state: &State| state.seen.contains(&2)),
            Property::sometimes(SEEN[3], |_, state: &State| state.seen.contains(&3)),
            Property::sometimes(SEEN[4], |_, state: &State| state.seen.contains(&4)),
        ]
    }
}
