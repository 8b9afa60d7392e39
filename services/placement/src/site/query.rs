//! What the decision asks a site.

use std::collections::BTreeSet;

use fixedbitset::FixedBitSet;
use vocabulary::{ClusterName, HostId, LabelKey, LabelValue, Namespace, NetworkId, Requirement, Selector};

use super::set::{Slot, at};
use super::{Column, Key, NONE, Row, Site, Value};

/// One key's value numbers by slot.
#[derive(Clone, Copy)]
pub(crate) struct Values<'a> {
    site: &'a Site,
    key: Key,
    of: Option<&'a [Value]>,
}

impl Values<'_> {
    /// [`NONE`] without the label.
    pub(crate) fn get(&self, host: Slot) -> Value {
        match self.of {
            Some(of) => of.get(at(host)).copied().unwrap_or(NONE),
            None => self.site.value(self.key, host),
        }
    }
}

impl Site {
    pub(crate) fn row(&self, host: Slot) -> Option<&Row> {
        self.rows.get(at(host)).and_then(Option::as_ref)
    }

    pub(crate) fn slot_of(&self, id: &HostId) -> Option<Slot> {
        let host = self.ranks.slot(&id.name)?;
        self.row(host)
            .is_some_and(|row| row.id.uid == id.uid)
            .then_some(host)
    }

    /// Smaller for a smaller name.
    pub(crate) fn rank(&self, host: Slot) -> u64 {
        self.ranks.label(host)
    }

    pub(crate) fn column_at(&self, key: Key) -> Option<(&LabelKey, &Column)> {
        self.columns.get(at(key)).map(|(name, column)| (name, column))
    }

    pub(crate) fn column(&self, key: &LabelKey) -> Option<(Key, &Column)> {
        let number = *self.keys.get(key)?;
        self.column_at(number).map(|(_, column)| (number, column))
    }

    pub(crate) fn network_at(&self, network: u32) -> Option<&NetworkId> {
        self.network_hosts.get(at(network)).map(|(name, _)| name)
    }

    pub(crate) fn uninspected(&self) -> &FixedBitSet {
        &self.uninspected
    }

    pub(crate) fn impaired(&self) -> &FixedBitSet {
        &self.impaired
    }

    /// A key's values, for reading many.
    pub(crate) fn values(&self, key: Key) -> Values<'_> {
        Values {
            site: self,
            key,
            of: self.column_at(key).and_then(|(_, column)| column.values()),
        }
    }

    /// The value number of a host's label, [`NONE`] without the label.
    pub(crate) fn value(&self, key: Key, host: Slot) -> Value {
        let looked_up = || {
            let labels = self.row(host).map(|row| &*row.labels).unwrap_or_default();
            labels
                .binary_search_by_key(&key, |(key, _)| *key)
                .map_or(NONE, |place| labels[place].1)
        };
        self.column_at(key)
            .and_then(|(_, column)| column.value_of(host))
            .unwrap_or_else(looked_up)
    }

    /// The value of a host's label.
    pub(crate) fn label(&self, key: &LabelKey, host: Slot) -> Option<LabelValue> {
        let (number, column) = self.column(key)?;
        column.text(self.value(number, host)).cloned()
    }

    /// The hosts that match a selector.
    pub(crate) fn matching(&self, selector: &Selector) -> FixedBitSet {
        let mut mask = self.live.clone();
        for requirement in selector.requirements() {
            self.require(requirement, &mut mask);
        }
        mask
    }

    fn require(&self, requirement: &Requirement, mask: &mut FixedBitSet) {
        let column = self.column(requirement.key()).map(|(_, column)| column);
        match (requirement, column) {
            (Requirement::In(..) | Requirement::Exists(_), None) => mask.clear(),
            (Requirement::NotIn(..) | Requirement::DoesNotExist(_), None) => {}
            (Requirement::Exists(_), Some(column)) => column.exists().keep_in(mask),
            (Requirement::DoesNotExist(_), Some(column)) => column.exists().drop_from(mask),
            (Requirement::NotIn(_, values), Some(column)) => {
                values
                    .iter()
                    .filter_map(|value| column.hosts(value.as_str()))
                    .for_each(|hosts| hosts.drop_from(mask));
            }
            (Requirement::In(_, values), Some(column)) => {
                let mut sets = values.iter().filter_map(|value| column.hosts(value.as_str()));
                match (sets.next(), sets.next()) {
                    (None, _) => mask.clear(),
                    (Some(only), None) => only.keep_in(mask),
                    (Some(first), Some(second)) => {
                        let mut any = FixedBitSet::with_capacity(mask.len());
                        [first, second]
                            .into_iter()
                            .chain(sets)
                            .for_each(|hosts| hosts.add_to(&mut any));
                        mask.intersect_with(&any);
                    }
                }
            }
        }
    }

    /// Leaves the hosts that have a value of the key.
    pub(crate) fn keep_with_topology(&self, key: &LabelKey, mask: &mut FixedBitSet) {
        match self.column(key) {
            Some((_, column)) => column.not_empty().keep_in(mask),
            None => mask.clear(),
        }
    }

    /// Leaves the hosts that are eligible for new claims of a cluster that needs these networks.
    pub(crate) fn keep_eligible(&self, networks: &BTreeSet<NetworkId>, mask: &mut FixedBitSet) {
        mask.intersect_with(&self.eligible);
        self.keep_addressed(networks, mask);
        for domain in &self.policy.cordoned {
            if let Some(hosts) = self
                .column(&domain.key)
                .and_then(|(_, column)| column.hosts(domain.value.as_str()))
            {
                hosts.drop_from(mask);
            }
        }
    }

    /// Leaves the hosts with an address in each of these networks.
    pub(crate) fn keep_addressed(&self, networks: &BTreeSet<NetworkId>, mask: &mut FixedBitSet) {
        for network in networks {
            match self
                .networks
                .get(network)
                .and_then(|number| self.network_hosts.get(at(*number)))
            {
                Some((_, hosts)) => hosts.keep_in(mask),
                None => mask.clear(),
            }
        }
    }

    /// Drops the hosts that may be the machines of members of other clusters than this.
    pub(crate) fn drop_former(&self, cluster: &ClusterName, mask: &mut FixedBitSet) {
        for name in self.former.keys() {
            if self.former_holder(name, cluster).is_some()
                && let Some(host) = self.ranks.slot(name)
            {
                mask.set(at(host), false);
            }
        }
    }

    /// Leaves the hosts that no cluster holds.
    pub(crate) fn keep_unheld(&self, mask: &mut FixedBitSet) {
        mask.difference_with(&self.held);
    }

    /// Leaves the hosts of one namespace.
    pub(crate) fn keep_in_namespace(&self, namespace: &Namespace, mask: &mut FixedBitSet) {
        match self.namespaces.get(namespace) {
            Some(hosts) => hosts.keep_in(mask),
            None => mask.clear(),
        }
    }

    /// The hosts that are in none of these namespaces.
    pub(crate) fn outside(&self, namespaces: &[&Namespace]) -> FixedBitSet {
        let mut outside = self.live.clone();
        for namespace in namespaces {
            if let Some(hosts) = self.namespaces.get(*namespace) {
                hosts.drop_from(&mut outside);
            }
        }
        outside
    }

    /// The namespaces that have hosts, sorted.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = &Namespace> {
        self.namespaces.keys()
    }
}
