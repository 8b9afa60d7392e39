//! A cluster's load balancer: its configuration on the API server, and the pod that follows it whenever it gets to it. The
//! agent that writes the configuration reads the scheduler's placement, as `agents/load-balancer` does.

use std::collections::BTreeSet;

use crate::{
    ledger::Held,
    protocol::State,
    world::{Cluster, HostKey},
};

/// What there is of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Balancer {
    /// Hosts that the configuration names.
    config: BTreeSet<HostKey>,
    /// Hosts that the pod routes to.
    running: BTreeSet<HostKey>,
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
}

impl State {
    fn cluster(&self, cluster: u8) -> Option<&Cluster> {
        self.world.now.clusters[usize::from(cluster)].as_ref()
    }

    fn balancer(&self, cluster: u8) -> &Balancer {
        &self.world.balancers[usize::from(cluster)]
    }

    /// The hosts that a configuration would name now: those that the status holds, and the scheduler does not take away.
    fn desired(&self, cluster: u8) -> Option<BTreeSet<HostKey>> {
        let (_, _, members) = self.cluster(cluster)?.status.as_ref()?;
        let record = self.ledger.records.get(&cluster);
        let held: BTreeSet<HostKey> = record
            .into_iter()
            .flat_map(Held::members)
            .filter(|(_, _, releasing)| !releasing)
            .map(|(host, _, _)| host)
            .collect();
        let known = members.iter().map(|(host, _, _)| *host);
        Some(known.filter(|host| held.contains(host)).collect())
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
        let (_, _, members) = there.status.as_ref()?;
        members.iter().find(|(_, _, releasing)| *releasing)?;
        let revision = members.iter().map(|(_, revision, _)| *revision).max()?;
        let Balancer { config, running } = self.balancer(cluster);
        let follows = self.desired(cluster)? == *config && config == running;
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

    /// Whether a pod routes to a machine that its cluster does not hold. Pods know addresses: a host that is made again has that of
    /// the one before.
    pub(crate) fn routes_to_free_hosts(&self) -> bool {
        (0u8..).zip(&self.world.balancers).any(|(cluster, balancer)| {
            let record = self.ledger.records.get(&cluster);
            let held: BTreeSet<u8> = record
                .into_iter()
                .flat_map(Held::members)
                .map(|(host, _, _)| host.index)
                .collect();
            balancer.running.iter().any(|host| !held.contains(&host.index))
        })
    }
}
