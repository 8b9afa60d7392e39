//! What happens seldom: hosts that vanish and return, a report on pods that is of an earlier epoch, and a load-balancer agent that goes on after
//! another has taken its place. There are many more orders with these, so only a search that is one step less deep, and some of the random orders
//! have them.

use kit::placement::Position;

use crate::{
    balancer::ENTRIES,
    protocol::{Action, MOST, State},
    world::CLUSTERS,
};

/// What happens seldom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rare {
    /// A host is deleted.
    Vanish(u8),
    /// A host of that name is there again, with another uid and this address.
    Return(u8, u8),
    /// Somebody writes to a status that no pod routes to any host that leaves, in the epoch before the present one.
    ForgeDrained(u8),
    /// A load-balancer agent begins a pass over a cluster, reads, and is paused.
    Pause(u8),
    /// The paused pass writes the configuration of a load balancer.
    RenderLate(u8),
    /// The paused pass reports that no pod routes to hosts that leave.
    DrainLate,
}

impl State {
    /// What may happen seldom next.
    pub(crate) fn rare(&self, actions: &mut Vec<Action>) {
        let mut push = |rare: Rare| actions.push(Action::Rare(rare));
        for (index, host) in (0u8..).zip(&self.world.now.hosts) {
            if host.is_none() {
                for address in self.world.unused() {
                    push(Rare::Return(index, address));
                }
            } else if self.spent.vanished < MOST.vanished {
                push(Rare::Vanish(index));
            }
        }
        for (cluster, there) in (0u8..).zip(&self.world.now.clusters) {
            if self.spent.forged < MOST.forged && there.is_some() {
                push(Rare::ForgeDrained(cluster));
            }
        }
        for cluster in (0u8..).take(CLUSTERS) {
            if self.spent.paused < MOST.paused && self.view(cluster).is_some() {
                push(Rare::Pause(cluster));
            }
        }
        for entry in (0u8..).take(ENTRIES) {
            if self.writes_late(entry) {
                push(Rare::RenderLate(entry));
            }
        }
        if self.reports_late() {
            push(Rare::DrainLate);
        }
    }

    /// Something happens that seldom does.
    pub(crate) fn happen(&mut self, rare: Rare) {
        match rare {
            Rare::Vanish(index) => {
                self.spent.vanished += 1;
                self.world.vanish(index);
            }
            Rare::Return(index, address) => {
                self.world.remake(index, Some(address));
                self.seen.insert(9);
            }
            Rare::ForgeDrained(cluster) => {
                self.spent.forged += 1;
                let earlier = self.ledger.history.epoch() - 1;
                self.report_drained(cluster, Position::new(earlier, u64::MAX));
            }
            Rare::Pause(cluster) => {
                self.spent.paused += 1;
                self.pause(cluster);
            }
            Rare::RenderLate(entry) => self.render_late(entry),
            Rare::DrainLate => self.drain_late(),
        }
    }
}
