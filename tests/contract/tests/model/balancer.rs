//! A cluster's load balancer: its configuration on the API server, and the pod that follows it whenever it gets to it. The
//! agent that writes the configuration reads the scheduler's placement, as `agents/load-balancer` does.

use std::collections::BTreeSet;

use crate::{
    ledger::Held,
    mutations::Mutation,
    protocol::State,
    world::{Cluster, Observed},
};

/// What there is of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Balancer {
    /// Addresses that the configuration names.
    config: BTreeSet<u8>,
    /// Addresses that the pod routes to.
    running: BTreeSet<u8>,
}

impl Balancer {
    pub(crate) const fn new() -> Self {
        Self {
            config: BTreeSet::new(),
            running: BTreeSet::new(),
        }
    }

    /// Whether a pod routes anywhere.
    pub(crate) fn routes(&self) -> bool {
        !self.running.is_empty()
    }

    /// Whether a pod routes to an address.
    pub(crate) fn routes_to(&self, address: u8) -> bool {
        self.running.contains(&address)
    }
}

impl State {
    fn cluster(&self, cluster: u8) -> Option<&Cluster> {
        self.world.now.clusters[usize::from(cluster)].as_ref()
    }

    fn balancer(&self, cluster: u8) -> &Balancer {
        &self.world.balancers[usize::from(cluster)]
    }

    /// The addresses that a configuration would name now: of those that the status holds, and the scheduler does not take away.
    fn desired(&self, cluster: u8) -> Option<BTreeSet<u8>> {
        let status = self.cluster(cluster)?.status.as_ref()?;
        let record = self.ledger.records.get(&cluster);
        let keeps_all = self.mutation == Some(Mutation::LeavesRoutedTo);
        let held = record
            .into_iter()
            .flat_map(Held::members)
            .filter(|member| keeps_all || !member.releasing)
            .filter(|member| status.members.iter().any(|known| known.host == member.host));
        Some(held.filter_map(|member| member.address).collect())
    }

    /// Whether the agent would write another configuration.
    pub(crate) fn renders(&self, cluster: u8) -> bool {
        let desired = self.desired(cluster);
        desired.is_some_and(|desired| desired != self.balancer(cluster).config)
    }

    /// The agent writes the configuration.
    pub(crate) fn render(&mut self, cluster: u8) {
        if let Some(desired) = self.desired(cluster) {
            self.world.balancers[usize::from(cluster)].config = desired;
        }
    }

    /// Whether the pod is behind: of a `SIPCluster` that is gone it ends.
    pub(crate) fn lags(&self, cluster: u8) -> bool {
        let Balancer { config, running } = self.balancer(cluster);
        match self.cluster(cluster) {
            Some(_) => config != running,
            None => !running.is_empty(),
        }
    }

    /// The pod follows its configuration, or ends.
    pub(crate) fn follow(&mut self, cluster: u8) {
        let gone = self.cluster(cluster).is_none();
        let balancer = &mut self.world.balancers[usize::from(cluster)];
        if gone {
            *balancer = Balancer::new();
        } else {
            balancer.running.clone_from(&balancer.config);
        }
    }

    /// What the agent would say: up to which release of the status the pod routes to no host that leaves.
    fn drained(&self, cluster: u8) -> Option<u64> {
        let there = self.cluster(cluster)?;
        let status = there.status.as_ref()?;
        let leaves = status.former_release.is_some() || status.members.iter().any(|member| member.releasing);
        let claims = status.members.iter().map(|member| member.revision);
        let revision = claims.chain(status.former_release).max().filter(|_| leaves)?;
        let Balancer { config, running } = self.balancer(cluster);
        let follows = config == running || self.mutation == Some(Mutation::PodsNotAsked);
        let follows = follows && self.desired(cluster)? == *config;
        (follows && there.drained != Some(revision)).then_some(revision)
    }

    /// Whether the agent has something to say.
    pub(crate) fn drains(&self, cluster: u8) -> bool {
        self.drained(cluster).is_some()
    }

    /// The agent says that the pod routes to no host that leaves.
    pub(crate) fn drain(&mut self, cluster: u8) {
        let drained = self.drained(cluster);
        if let (Some(revision), Some(there)) = (drained, &mut self.world.now.clusters[usize::from(cluster)]) {
            there.drained = Some(revision);
        }
    }

    /// Whether a pod routes to an address that its cluster does not hold any more: whichever host has it now is not its own.
    pub(crate) fn routes_to_free_hosts(&self) -> bool {
        (0u8..).zip(&self.world.balancers).any(|(cluster, balancer)| {
            let record = self.ledger.records.get(&cluster);
            let members = record.into_iter().flat_map(Held::members);
            let held: BTreeSet<u8> = members.filter_map(|member| member.address).collect();
            !balancer.running.is_subset(&held)
        })
    }

    /// Whether a pod of another cluster routes to an address that a host shows.
    pub(crate) fn others_route_to(&self, cluster: u8, shown: &Observed, index: u8) -> bool {
        let host = shown.hosts[usize::from(index)];
        let address = host.and_then(|host| host.address);
        let mut balancers = (0u8..).zip(&self.world.balancers);
        address.is_some_and(|address| {
            balancers.any(|(other, balancer)| other != cluster && balancer.routes_to(address))
        })
    }
}
