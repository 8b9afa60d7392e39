//! What can happen next.

use std::collections::BTreeSet;

use scheduler::ledger::position::MAX_REPORTED;
use stateright::{Model, Property};

use crate::{
    agent::{Agent, Deed},
    fair,
    ledger::{Held, Ledger, Staged},
    messages::{Answer, Ask, Request},
    mutations::Mutation,
    paused_pass::Pass,
    properties,
    rare::Rare,
    scheduler::Scheduler,
    world::{CLUSTERS, HOSTS, HostKey, Member, World},
};

/// Messages of a kind that may be under way at once; beyond it one must be lost first.
pub(crate) const UNDER_WAY: usize = 3;

/// What must happen somewhere, or nothing is shown.
pub(crate) const SEEN: [&str; 10] = [
    "a host moves from one cluster to another",
    "an older agent is refused",
    "a crash loses what was not durable",
    "a call arrives twice",
    "a cluster that was made again has the hosts of the one before",
    "a pod stops routing to hosts that leave",
    "a host with a forged mark is released",
    "the position is raised",
    "a former address of a host that is there is released",
    "a host that has vanished is there again with another uid",
];

/// Numbers that a hostile reporter shows, besides the one after the last that was issued.
pub(crate) const FORGED: [u64; 3] = [MAX_REPORTED, MAX_REPORTED + 1, u64::MAX];

/// How often the bad things may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Spent {
    pub(crate) crashes: u8,
    pub(crate) cuts: u8,
    pub(crate) wishes: u8,
    pub(crate) remade: u8,
    pub(crate) forged: u8,
    pub(crate) vanished: u8,
    pub(crate) paused: u8,
}

pub(crate) const MOST: Spent = Spent {
    crashes: 2,
    cuts: 2,
    wishes: 4,
    remade: 3,
    forged: 2,
    vanished: 1,
    paused: 2,
};

/// Everything.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) struct State {
    pub(crate) world: World,
    /// The rule that somebody has got wrong: the model must find that.
    pub(crate) mutation: Option<Mutation>,
    /// The later one has won a later election; the earlier one does not know.
    pub(crate) agents: [Agent; 2],
    pub(crate) requests: BTreeSet<Request>,
    pub(crate) answers: BTreeSet<Answer>,
    pub(crate) scheduler: Scheduler,
    pub(crate) ledger: Ledger,
    pub(crate) spent: Spent,
    /// Cluster and host of every answer that was given, until the host was released.
    pub(crate) promised: BTreeSet<(u8, HostKey)>,
    /// Marks that somebody has forged, in this order.
    pub(crate) forged: Vec<(HostKey, u64)>,
    /// A host that was freed too early.
    pub(crate) freed_early: Option<HostKey>,
    /// A host that was claimed while a pod of another cluster routed to the address that it had shown.
    pub(crate) claimed_early: Option<HostKey>,
    /// A cluster of which an agent has replaced the placement in the status by an older one.
    pub(crate) went_back: Option<u8>,
    /// A cluster of which a report on pods is lower than the one before, in the same epoch.
    pub(crate) report_went_back: Option<u8>,
    /// The last pass of a load-balancer agent that was paused.
    pub(crate) paused: Option<Pass>,
    /// Indices into [`SEEN`].
    pub(crate) seen: BTreeSet<u8>,
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
    /// An agent opens a stream, and says that it has seen a position.
    Open(u8, Option<(u64, u64)>),
    /// Somebody writes a release mark on a host.
    Forge(u8, u64),
    /// Somebody writes another position into a status.
    ForgeStatus(u8, (u64, u64)),
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
    /// The load-balancer agent writes the configuration of one of a cluster's load balancers, or deletes it.
    Render(u8, u8),
    /// The pod of one of them follows its configuration, or ends.
    Follow(u8, u8),
    /// The load-balancer agent says that no pod routes to hosts that leave.
    Drain(u8),
    /// The next change is on disk.
    Commit,
    Crash,
    Retry(u8),
    /// The scheduler compares the next of the records with what was reported.
    Settle,
    Scale(u8, u32),
    /// An edit of a spec drops the last load balancer, or names it again.
    Name(u8, bool),
    Delete(u8),
    /// Somebody takes the finalizers off a cluster that is being deleted.
    Strip(u8),
    Make(u8),
    /// A host is made again, on a machine of this address or without one.
    Remake(u8, Option<u8>),
    /// A host shows another address, which another one may show too: two of these are an exchange.
    Readdress(u8, u8),
    /// A host does not show its address any more.
    Silence(u8),
    Rare(Rare),
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
    /// The rule that is got wrong.
    pub(crate) mutation: Option<Mutation>,
    /// Whether what is rare happens too.
    pub(crate) has_rare: bool,
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
            forged: Vec::new(),
            freed_early: None,
            claimed_early: None,
            went_back: None,
            report_went_back: None,
            paused: None,
            mutation: None,
            seen: BTreeSet::new(),
            last: [None; HOSTS],
        }
    }

    /// Takes a step; what it does not change, it leaves as it is.
    pub(crate) fn step(&mut self, action: Action) {
        let claimed = self.scheduler.claims();
        match action {
            Action::Look(agent) => self.agents[usize::from(agent)].observe(&self.world.now),
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
                let cluster = answer.request.cluster;
                let agent = &mut self.agents[usize::from(answer.request.agent)];
                if agent.hear(answer, &mut self.world, self.mutation) {
                    self.went_back = Some(cluster);
                }
            }
            Action::Open(agent, seen) => self.open(agent, seen),
            Action::Forge(index, mark) => self.forge_mark(index, mark),
            Action::ForgeStatus(cluster, at) => self.forge_status(cluster, at),
            Action::Report(agent) => self.agents[usize::from(agent)].report(),
            Action::Take(agent) => self.take(agent),
            Action::Cut(agent) => {
                self.spent.cuts += 1;
                self.agents[usize::from(agent)].stream = None;
            }
            Action::Notice => self.scheduler.close(),
            Action::Act(agent, cluster, host, deed) => {
                let actor = &self.agents[usize::from(agent)];
                let confirmed = actor.act(agent, cluster, (host, deed), &mut self.world, self.mutation);
                self.requests.extend(confirmed);
            }
            Action::Find(agent, cluster) => {
                if let Some(held) = self.ledger.records.get(&cluster) {
                    let (uid, placement) = held.placement(self.ledger.history.epoch());
                    let podless = !self.world.balancers[usize::from(cluster)].route()
                        || self.mutation == Some(Mutation::PodsOfGoneClusters);
                    self.agents[usize::from(agent)].find(cluster, uid, placement, podless);
                }
            }
            Action::Render(cluster, entry) => self.render(cluster, entry),
            Action::Follow(cluster, entry) => {
                let routed = self.world.balancers[usize::from(cluster)].route();
                self.follow(cluster, entry);
                if routed && !self.world.balancers[usize::from(cluster)].route() {
                    self.seen.insert(5);
                }
            }
            Action::Drain(cluster) => self.drain(cluster),
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
            Action::Settle => self.scheduler.settle(),
            action @ (Action::Scale(..)
            | Action::Name(..)
            | Action::Delete(_)
            | Action::Strip(_)
            | Action::Make(_)
            | Action::Remake(..)
            | Action::Readdress(..)
            | Action::Silence(_)) => self.come_about(&action),
            Action::Rare(rare) => self.happen(rare),
        }
        self.find_early_claims(&claimed);
        let hasty = self.mutation == Some(Mutation::AnswersBeforeDisk);
        let answers = self.scheduler.answers(&self.ledger, hasty);
        for answer in &answers {
            let members = answer.placement.iter().flat_map(|placement| &placement.members);
            let kept = members.filter(|member| !member.releasing);
            self.promised
                .extend(kept.map(|member| (answer.request.cluster, member.host)));
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
        if matches!(change, Staged::Raise { .. }) {
            self.seen.insert(7);
        }
        if let Staged::Record { cluster, record, .. } = &change {
            let before = self.ledger.records.get(cluster);
            let members = record.iter().flat_map(Held::members);
            let after: BTreeSet<HostKey> = members.map(|member| member.host).collect();
            for Member { host, revision, .. } in before.into_iter().flat_map(Held::members) {
                if after.contains(&host) {
                    continue;
                }
                if host.former != 0 {
                    self.seen.insert(8);
                }
                self.promised.remove(&(*cluster, host));
                if self.shows_forged(host) {
                    self.seen.insert(6);
                }
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
                        .any(|member| after.members().any(|other| other.host == member.host))
            });
            if taken_over {
                self.seen.insert(4);
            }
        }
        self.ledger.commit(change);
    }

    /// Notes a host that the scheduler has just claimed, and at whose address a pod of another cluster may route.
    fn find_early_claims(&mut self, before: &BTreeSet<(u8, HostKey)>) {
        let mut claimed = self.scheduler.claims();
        claimed.retain(|claim| !before.contains(claim));
        let shown = self.scheduler.observed();
        let early = claimed
            .iter()
            .find(|(cluster, host)| self.others_route_to(*cluster, shown, host.index));
        if let Some((_, host)) = early {
            self.claimed_early = Some(*host);
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
        let mut beginnings = fair::beginnings();
        for state in &mut beginnings {
            state.mutation = self.mutation;
        }
        beginnings
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
        state.routing(actions);
        actions.extend(state.scheduler.waits().into_iter().map(Action::Retry));
        if !state.scheduler.unsettled.is_empty() {
            actions.push(Action::Settle);
        }
        state.wishes(actions);
        state.forge(actions);
        state.moves(actions);
        if self.has_rare {
            state.rare(actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        next.step(action);
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
