//! What an agent may do next, and what numbers a hostile one forges.

use scheduler::ledger::position::MAX_REPORTED;

use crate::{
    protocol::{Action, FORGED, MOST, State, UNDER_WAY},
    world::{CLUSTERS, HostKey},
};

impl State {
    pub(crate) fn agent(&self, number: u8, actions: &mut Vec<Action>) {
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
            let deeds = agent.deeds(self.mutation).into_iter();
            actions.extend(deeds.map(|(cluster, host, deed)| Action::Act(number, cluster, host, deed)));
        }
        match &agent.stream {
            None if agent.listed => {
                actions.push(Action::Open(number, None));
                if self.spent.forged < MOST.forged {
                    let boasts = self.forgeries().map(|number| Some((number, number)));
                    actions.extend(boasts.map(|seen| Action::Open(number, seen)));
                }
            }
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

    pub(crate) fn open(&mut self, agent: u8, seen: Option<(u64, u64)>) {
        self.spent.forged += u8::from(seen.is_some());
        self.agents[usize::from(agent)].open(seen);
    }

    pub(crate) fn forge_mark(&mut self, index: u8, mark: u64) {
        self.spent.forged += 1;
        self.world.forge(index, mark);
        if let Some(host) = self.world.now.hosts[usize::from(index)] {
            self.forged.push((HostKey::new(index, host.uid), mark));
        }
    }

    pub(crate) fn forge_status(&mut self, cluster: u8, (epoch, revision): (u64, u64)) {
        self.spent.forged += 1;
        let cluster = &mut self.world.now.clusters[usize::from(cluster)];
        if let Some(status) = cluster.as_mut().and_then(|cluster| cluster.status.as_mut()) {
            (status.epoch, status.revision) = (epoch, revision);
            status.is_forged = epoch.max(revision) > MAX_REPORTED;
        }
    }

    /// Numbers that a hostile reporter shows.
    pub(crate) fn forgeries(&self) -> impl Iterator<Item = u64> + use<> {
        FORGED.into_iter().chain([self.scheduler.issued() + 1])
    }

    pub(crate) fn forge(&self, actions: &mut Vec<Action>) {
        if self.spent.forged >= MOST.forged {
            return;
        }
        for (index, host) in (0u8..).zip(&self.world.now.hosts) {
            // A lower mark lets agents label that were paused: no scheduler can see to that.
            let higher = |mark: &u64| host.is_some_and(|host| *mark > host.mark);
            let marks = self.forgeries().filter(higher);
            actions.extend(marks.map(|mark| Action::Forge(index, mark)));
        }
        for (cluster, there) in (0u8..).zip(&self.world.now.clusters) {
            if there.as_ref().is_some_and(|there| there.status.is_some()) {
                let positions = self.forgeries().map(|number| (number, number));
                actions.extend(positions.map(|at| Action::ForgeStatus(cluster, at)));
            }
        }
    }
}
