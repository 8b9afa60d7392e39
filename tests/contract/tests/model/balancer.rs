//! A cluster's load balancers: the configuration of each on the API server, and its pod, which reads that whenever it gets to it: of those
//! written meanwhile, the first one before the newest. An
//! edit may drop one of them; its configuration and its pod stay until somebody gets to it. The agent that writes the configurations reads
//! the scheduler's placement, as `agents/load-balancer` does. It remembers nothing from one step to the next, so a process that was restarted
//! is no case of its own; one that goes on with what it has read long ago is in `paused_pass.rs`.

use std::collections::BTreeSet;

use api::Drained;
use kit::placement::Position;
use load_balancer_agent::{has_no_released, open_goal};

use crate::{
    ledger::Held,
    mutations::Mutation,
    protocol::{Action, State},
    world::{CLUSTERS, Cluster, Observed, Status},
};

/// Load balancers of a cluster, of which an edit may drop the last.
pub(crate) const ENTRIES: usize = 2;

/// A configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Config {
    /// Addresses that it names.
    addresses: BTreeSet<u8>,
    /// The placement for which it was rendered: its epoch, and the newest revision of a member.
    position: Position,
}

/// What a pass of the agent has read of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct View {
    /// Whether the spec names the last load balancer.
    names_last: bool,
    /// With the addresses that the status holds, and the scheduler does not take away.
    desired: Config,
    /// What it reports once no pod routes to a host that leaves; `None` while none leaves that the last report does not cover.
    goal: Option<Position>,
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
                position: Position::new(0, 0),
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
}

impl View {
    /// Whether the spec is still as it was read.
    pub(crate) fn is_of_spec(&self, balancers: &Balancers) -> bool {
        self.names_last == balancers.names_last
    }

    /// The configuration that an entry has to have: none if the spec does not name it.
    pub(crate) fn config(&self, entry: u8) -> Option<&Config> {
        let is_named = self.names_last || usize::from(entry) + 1 < ENTRIES;
        is_named.then_some(&self.desired)
    }
}

/// A position as the API server holds it.
fn reported(at: Position) -> Drained {
    Drained {
        epoch: at.epoch(),
        revision: at.revision(),
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

    /// The configuration of an entry on the API server.
    pub(crate) fn config(&self, cluster: u8, entry: u8) -> Option<&Config> {
        self.balancers(cluster).entries[usize::from(entry)]
            .config
            .as_ref()
    }

    /// Whether a status shows a later epoch than the ledger has reached: somebody has forged it.
    pub(crate) fn is_beyond(&self, status: &Status) -> bool {
        status.epoch > self.ledger.history.epoch()
    }

    /// What a pass that begins now reads. The scheduler refuses it a placement as new as a status that is beyond the ledger.
    pub(crate) fn view(&self, cluster: u8) -> Option<View> {
        let object = self.cluster(cluster)?;
        let status = object.status.as_ref();
        let status = status.filter(|status| !status.is_forged && !self.is_beyond(status))?;
        let record = self.ledger.records.get(&cluster);
        let keeps_all = self.mutation == Some(Mutation::LeavesRoutedTo);
        let members = record
            .into_iter()
            .flat_map(Held::members)
            .filter(|member| keeps_all || !member.releasing)
            .filter(|member| status.members.iter().any(|known| known.host == member.host));
        let held = status.held();
        let position = Position::new(held.epoch, kit::service::revision(&held));
        Some(View {
            names_last: self.balancers(cluster).names_last,
            desired: Config {
                addresses: members.filter_map(|member| member.address).collect(),
                position,
            },
            goal: self.goal(held, object.drained),
        })
    }

    /// What is to be reported of the pods of a cluster with this status, of which this is reported.
    fn goal(&self, mut held: api::Placement, known: Option<Position>) -> Option<Position> {
        if self.mutation == Some(Mutation::FormerReleaseForgotten) {
            held.former_release = None;
        }
        let known = known.filter(|_| self.mutation != Some(Mutation::ReportGoesBack));
        let Drained { epoch, revision } = open_goal(&held, known.map(reported))?;
        Some(Position::new(epoch, revision))
    }

    /// What the agent and the pods may do next.
    pub(crate) fn routing(&self, actions: &mut Vec<Action>) {
        for cluster in (0u8..).take(CLUSTERS) {
            let view = self.view(cluster);
            let view = view.as_ref();
            for entry in (0u8..).take(ENTRIES) {
                if view.is_some_and(|view| self.config(cluster, entry) != view.config(entry)) {
                    actions.push(Action::Render(cluster, entry));
                }
                if self.lags(cluster, entry) {
                    actions.push(Action::Follow(cluster, entry));
                }
            }
            if view.is_some_and(|view| self.drained(cluster, view).is_some()) {
                actions.push(Action::Drain(cluster));
            }
        }
    }

    /// The agent writes an entry's configuration, or deletes what there is of one that the spec does not name.
    pub(crate) fn render(&mut self, cluster: u8, entry: u8) {
        if let Some(view) = self.view(cluster) {
            self.put_config(cluster, entry, view.config(entry).cloned());
        }
    }

    /// An entry's configuration is written, or deleted with its pod.
    pub(crate) fn put_config(&mut self, cluster: u8, entry: u8, config: Option<Config>) {
        let entry = self.entry(cluster, entry);
        let unread = entry.config.take().filter(|written| *written != entry.running);
        entry.unread = entry.unread.take().or(unread).filter(|_| config.is_some());
        entry.config = config;
    }

    /// Whether an entry's pod is behind: without a configuration, or a `SIPCluster`, it ends.
    fn lags(&self, cluster: u8, entry: u8) -> bool {
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
    fn is_current(&self, cluster: u8, entry: u8, view: &View, goal: Position) -> bool {
        let Entry {
            config,
            unread,
            running,
        } = &self.balancers(cluster).entries[usize::from(entry)];
        let pods_count = self.mutation != Some(Mutation::PodsNotAsked);
        let Some(desired) = view.config(entry) else {
            if self.mutation == Some(Mutation::OnlyNamedAsked) {
                return true;
            }
            let all_are_current = self.mutation == Some(Mutation::EarlierConfigurationsCount);
            let goal = reported(goal);
            let rendered_for = |config: &Config| (config.position.epoch(), config.position.revision());
            let has_pod = pods_count && (unread.is_some() || !running.addresses.is_empty());
            return !has_pod
                && config
                    .as_ref()
                    .is_none_or(|config| all_are_current || has_no_released(rendered_for(config), goal));
        };
        let follows = match self.mutation {
            Some(Mutation::TextsCompared) => running.addresses == desired.addresses,
            Some(_) | None => running == desired,
        };
        (follows || !pods_count) && config.as_ref() == Some(desired)
    }

    /// What the agent would report by what it has read: up to which release of the status no pod routes to a host that leaves.
    pub(crate) fn drained(&self, cluster: u8, view: &View) -> Option<Position> {
        let goal = view.goal?;
        let mut entries = (0u8..).take(ENTRIES);
        let drained = entries.all(|entry| self.is_current(cluster, entry, view, goal));
        drained.then_some(goal)
    }

    /// The agent reports that no pod routes to a host that leaves.
    pub(crate) fn drain(&mut self, cluster: u8) {
        let view = self.view(cluster);
        if let Some(drained) = view.and_then(|view| self.drained(cluster, &view)) {
            self.report_drained(cluster, drained);
        }
    }

    /// A report is written to the status.
    pub(crate) fn report_drained(&mut self, cluster: u8, drained: Position) {
        let Some(there) = &mut self.world.now.clusters[usize::from(cluster)] else {
            return;
        };
        let before = there.drained.replace(drained);
        if before.is_some_and(|before| before.epoch() == drained.epoch() && drained < before) {
            self.report_went_back = Some(cluster);
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
