//! A cluster's load balancers: the configuration of each on the API server, and its pod, which reads that whenever it gets to it: of those
//! written meanwhile, the first one before the newest. An
//! edit may drop one of them; its configuration and its pod stay until somebody gets to it. The agent that writes the configurations reads
//! the scheduler's placement, as `agents/load-balancer` does.

use std::collections::BTreeSet;

use crate::{
    ledger::Held,
    mutations::Mutation,
    protocol::State,
    world::{Cluster, Observed},
};

/// Load balancers of a cluster, of which an edit may drop the last.
pub(crate) const ENTRIES: usize = 2;

/// A configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Config {
    /// Addresses that it names.
    addresses: BTreeSet<u8>,
    /// The placement for which it was rendered: the newest revision of a member.
    position: u64,
}

/// What there is of one load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Entry {
    /// The configuration, if there is one.
    config: Option<Config>,
    /// The first one that the pod has not read yet, if that is not the newest.
    unread: Option<Config>,
    /// What the pod runs.
    running: Config,
}

/// What there is of a cluster's load balancers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Balancers {
    entries: [Entry; ENTRIES],
    /// Whether the spec names the last one.
    names_last: bool,
}

impl Entry {
    const fn new() -> Self {
        Self {
            config: None,
            unread: None,
            running: Config {
                addresses: BTreeSet::new(),
                position: 0,
            },
        }
    }
}

impl Balancers {
    pub(crate) const fn new() -> Self {
        Self {
            entries: [const { Entry::new() }; ENTRIES],
            names_last: true,
        }
    }

    /// Whether a pod routes anywhere.
    pub(crate) fn route(&self) -> bool {
        self.entries
            .iter()
            .any(|entry| !entry.running.addresses.is_empty())
    }

    /// Whether a pod routes to an address.
    pub(crate) fn route_to(&self, address: u8) -> bool {
        self.entries
            .iter()
            .any(|entry| entry.running.addresses.contains(&address))
    }

    /// Addresses that pods route to.
    fn running(&self) -> impl Iterator<Item = u8> {
        self.entries
            .iter()
            .flat_map(|entry| &entry.running.addresses)
            .copied()
    }

    /// Whether the spec names the last one.
    pub(crate) fn name_last(&self) -> bool {
        self.names_last
    }

    /// A spec that names the last one, or does not.
    pub(crate) fn set_last(&mut self, named: bool) {
        self.names_last = named;
    }

    /// Whether anything is left of one that the spec does not name.
    pub(crate) fn has_leftovers(&self) -> bool {
        let [.., Entry { config, running, .. }] = &self.entries;
        !self.names_last && (config.is_some() || !running.addresses.is_empty())
    }

    fn names(&self, entry: u8) -> bool {
        self.names_last || usize::from(entry) + 1 < ENTRIES
    }
}

impl State {
    fn cluster(&self, cluster: u8) -> Option<&Cluster> {
        self.world.now.clusters[usize::from(cluster)].as_ref()
    }

    fn balancers(&self, cluster: u8) -> &Balancers {
        &self.world.balancers[usize::from(cluster)]
    }

    fn entry(&mut self, cluster: u8, entry: u8) -> &mut Entry {
        &mut self.world.balancers[usize::from(cluster)].entries[usize::from(entry)]
    }

    /// The configuration that would be written now: with the addresses that the status holds, and the scheduler does not take away.
    fn desired(&self, cluster: u8) -> Option<Config> {
        let status = self.cluster(cluster)?.status.as_ref()?;
        let record = self.ledger.records.get(&cluster);
        let keeps_all = self.mutation == Some(Mutation::LeavesRoutedTo);
        let held = record
            .into_iter()
            .flat_map(Held::members)
            .filter(|member| keeps_all || !member.releasing)
            .filter(|member| status.members.iter().any(|known| known.host == member.host));
        Some(Config {
            addresses: held.filter_map(|member| member.address).collect(),
            position: status.newest_revision().unwrap_or_default(),
        })
    }

    /// Whether an entry has the configuration that it would have now: none if the spec does not name it.
    fn is_written(&self, cluster: u8, entry: u8) -> Option<bool> {
        let desired = self.desired(cluster)?;
        let balancers = self.balancers(cluster);
        let desired = Some(desired).filter(|_| balancers.names(entry));
        Some(balancers.entries[usize::from(entry)].config == desired)
    }

    /// Whether the agent would write or delete an entry's configuration.
    pub(crate) fn renders(&self, cluster: u8, entry: u8) -> bool {
        self.is_written(cluster, entry) == Some(false)
    }

    /// The agent writes an entry's configuration, or deletes what there is of one that the spec does not name.
    pub(crate) fn render(&mut self, cluster: u8, entry: u8) {
        if let Some(desired) = self.desired(cluster) {
            let is_named = self.balancers(cluster).names(entry);
            let entry = self.entry(cluster, entry);
            let unread = entry.config.take().filter(|written| *written != entry.running);
            entry.unread = entry.unread.take().or(unread).filter(|_| is_named);
            entry.config = Some(desired).filter(|_| is_named);
        }
    }

    /// Whether an entry's pod is behind: without a configuration, or a `SIPCluster`, it ends.
    pub(crate) fn lags(&self, cluster: u8, entry: u8) -> bool {
        let Entry {
            config,
            unread,
            running,
        } = &self.balancers(cluster).entries[usize::from(entry)];
        match config.as_ref().filter(|_| self.cluster(cluster).is_some()) {
            Some(config) => unread.is_some() || config != running,
            None => !running.addresses.is_empty(),
        }
    }

    /// The pod follows its configuration, or ends.
    pub(crate) fn follow(&mut self, cluster: u8, entry: u8) {
        let gone = self.cluster(cluster).is_none();
        let entry = self.entry(cluster, entry);
        if gone {
            *entry = Entry::new();
        } else {
            let next = entry.unread.take().or_else(|| entry.config.clone());
            entry.running = next.unwrap_or_default();
        }
    }

    /// Whether no pod of an entry routes to hosts that leave, and none starts with a configuration that has them.
    fn is_current(&self, cluster: u8, entry: u8) -> Option<bool> {
        let Entry { config, running, .. } = &self.balancers(cluster).entries[usize::from(entry)];
        if !self.balancers(cluster).names(entry) && self.mutation == Some(Mutation::OnlyNamedAsked) {
            return Some(true);
        }
        let followed = match config {
            Some(config) if self.mutation == Some(Mutation::TextsCompared) => {
                config.addresses == running.addresses
            }
            Some(config) => config == running,
            None => running.addresses.is_empty(),
        };
        let followed = followed || self.mutation == Some(Mutation::PodsNotAsked);
        Some(followed && self.is_written(cluster, entry)?)
    }

    /// What the agent would say: up to which release of the status no pod routes to a host that leaves.
    fn drained(&self, cluster: u8) -> Option<u64> {
        let there = self.cluster(cluster)?;
        let status = there.status.as_ref()?;
        let leaves = status.former_release.is_some() || status.members.iter().any(|member| member.releasing);
        let revision = status.newest_revision().filter(|_| leaves)?;
        for entry in (0u8..).take(ENTRIES) {
            if !self.is_current(cluster, entry)? {
                return None;
            }
        }
        (there.drained != Some(revision)).then_some(revision)
    }

    /// Whether the agent has something to say.
    pub(crate) fn drains(&self, cluster: u8) -> bool {
        self.drained(cluster).is_some()
    }

    /// The agent says that no pod routes to a host that leaves.
    pub(crate) fn drain(&mut self, cluster: u8) {
        let drained = self.drained(cluster);
        if let (Some(revision), Some(there)) = (drained, &mut self.world.now.clusters[usize::from(cluster)]) {
            there.drained = Some(revision);
        }
    }

    /// Whether a pod routes to an address that its cluster does not hold any more: whichever host has it now is not its own.
    pub(crate) fn routes_to_free_hosts(&self) -> bool {
        (0u8..).zip(&self.world.balancers).any(|(cluster, balancers)| {
            let record = self.ledger.records.get(&cluster);
            let members = record.into_iter().flat_map(Held::members);
            let held: BTreeSet<u8> = members.filter_map(|member| member.address).collect();
            balancers.running().any(|address| !held.contains(&address))
        })
    }

    /// Whether a pod of another cluster routes to an address that a host shows.
    pub(crate) fn others_route_to(&self, cluster: u8, shown: &Observed, index: u8) -> bool {
        let host = shown.hosts[usize::from(index)];
        let address = host.and_then(|host| host.address);
        let mut balancers = (0u8..).zip(&self.world.balancers);
        address.is_some_and(|address| {
            balancers.any(|(other, balancers)| other != cluster && balancers.route_to(address))
        })
    }
}
