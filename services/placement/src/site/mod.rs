//! A site's hosts, indexed for the decision, and who holds which.

mod bytes;
mod column;
mod hold;
mod query;
mod rank;
mod row;
mod set;
pub mod size;

use std::collections::BTreeMap;

use fixedbitset::FixedBitSet;
use vocabulary::{ClusterName, HostId, HostName, LabelKey, Namespace, NetworkId, SipLabels};

pub(crate) use column::{Column, NONE, Value};
pub(crate) use row::{Key, Row};
pub(crate) use set::{Slot, at, slot};

use crate::host::Host;
use crate::ineligible::{claim_reasons, own_reasons};
use crate::policy::Policy;
use crate::request::Holder;
use rank::Ranks;
use set::{Set, assign};

/// A site's inventory and who holds which host. What it answers does not depend on the order in which it was filled.
///
/// Every host has a slot number; labels, networks and states are sets of slots and columns over slots, kept up to date
/// by each change, so that a decision intersects sets instead of looking at hosts.
#[derive(Debug, Clone, Default)]
pub struct Site {
    policy: Policy,
    ranks: Ranks,
    rows: Vec<Option<Row>>,
    /// Bytes of all rows.
    host_bytes: usize,
    vacant: Vec<Slot>,
    keys: BTreeMap<LabelKey, Key>,
    columns: Vec<(LabelKey, Column)>,
    /// Bytes of the values of all columns.
    column_bytes: usize,
    /// Free numbers of columns: no host has a label of these keys any more.
    unused_keys: Vec<Key>,
    networks: BTreeMap<NetworkId, u32>,
    network_hosts: Vec<(NetworkId, Set)>,
    /// Free numbers of networks: no host has an address in them any more.
    unused_networks: Vec<u32>,
    namespaces: BTreeMap<Namespace, Set>,
    live: FixedBitSet,
    /// Hosts that are eligible by themselves, without regard to SIP labels and holders.
    sound: FixedBitSet,
    /// Hosts without SIP labels.
    unlabelled: FixedBitSet,
    /// Hosts that are eligible by themselves and by their SIP labels; a cluster may hold them.
    eligible: FixedBitSet,
    held: FixedBitSet,
    uninspected: FixedBitSet,
    impaired: FixedBitSet,
    holders: BTreeMap<HostId, Holder>,
    /// Clusters with a member, by the hosts that may be its machine and are not the member itself.
    former: BTreeMap<HostName, Box<[ClusterName]>>,
    /// Hosts held per namespace of clusters; releasing ones do not count.
    usage: BTreeMap<Namespace, u32>,
    cluster_usage: BTreeMap<ClusterName, u32>,
}

/// What a [`Holder`] means for whether its host is eligible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    None,
    /// A cluster holds the host.
    Held,
    Orphaned,
}

impl Claim {
    fn held_by(holder: Option<&Holder>) -> Self {
        match holder {
            None => Self::None,
            Some(Holder::Cluster { .. }) => Self::Held,
            Some(Holder::Orphaned) => Self::Orphaned,
        }
    }
}

impl Site {
    /// An empty site with this policy.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }

    /// The site's policy.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Replaces the policy; nothing that is held changes.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// How many hosts there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranks.len()
    }

    /// Whether there is no host.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The host of this name, as it was given.
    #[must_use]
    pub fn get(&self, name: &HostName) -> Option<Host> {
        self.ranks
            .slot(name)
            .and_then(|slot| self.row(slot))
            .map(|row| row.host(self))
    }

    /// Whether exactly this host, by name and uid, is there.
    #[must_use]
    pub fn contains(&self, id: &HostId) -> bool {
        self.slot_of(id).is_some()
    }

    /// All hosts by name, as they were given.
    pub fn hosts(&self) -> impl Iterator<Item = Host> {
        self.ranks
            .slots()
            .filter_map(|slot| self.row(slot))
            .map(|row| row.host(self))
    }

    /// The ids of all hosts, by name.
    pub fn ids(&self) -> impl Iterator<Item = &HostId> {
        self.ranks
            .slots()
            .filter_map(|slot| self.row(slot))
            .map(|row| &row.id)
    }

    /// Adds a host, or replaces what is known of the one with its name (also when that has another uid).
    pub fn upsert(&mut self, host: Host) {
        let number = self.ranks.slot(&host.id.name);
        let number = if let Some(number) = number {
            self.unindex(number);
            number
        } else {
            let number = self.vacant.pop().unwrap_or_else(|| {
                self.rows.push(None);
                slot(self.rows.len() - 1)
            });
            self.ranks.insert(host.id.name.clone(), number);
            number
        };
        self.index(number, host);
    }

    /// Removes the host of this name, whatever its uid; who holds it stays known. Whether there was one.
    pub fn remove(&mut self, name: &HostName) -> bool {
        let Some(number) = self.ranks.slot(name) else {
            return false;
        };
        self.unindex(number);
        self.ranks.remove(name);
        self.vacant.push(number);
        true
    }

    fn index(&mut self, number: Slot, host: Host) {
        let mut labels = Vec::with_capacity(host.labels.len());
        for (key, value) in &host.labels {
            let key = self.key_number(key);
            let column = &mut self.columns[at(key)].1;
            self.column_bytes -= column.bytes();
            labels.push((key, column.insert(number, value, &self.ranks)));
            self.column_bytes += column.bytes();
        }
        labels.sort_unstable();
        let mut networks = Vec::with_capacity(host.networks.len());
        for network in &host.networks {
            let network = self.network_number(network);
            self.network_hosts[at(network)].1.insert(number, &self.ranks);
            networks.push(network);
        }
        networks.sort_unstable();
        let namespace = host.id.name.namespace();
        if let Some(hosts) = self.namespaces.get_mut(namespace) {
            hosts.insert(number, &self.ranks);
        } else {
            let mut hosts = Set::default();
            hosts.insert(number, &self.ranks);
            self.namespaces.insert(namespace.clone(), hosts);
        }
        assign(&mut self.live, number, true);
        assign(&mut self.uninspected, number, !host.inspected);
        assign(&mut self.impaired, number, !host.powered_on || host.unhealthy);
        assign(&mut self.sound, number, own_reasons(&host).is_empty());
        assign(&mut self.unlabelled, number, host.sip_labels == SipLabels::None);
        let claim = Claim::held_by(self.holders.get(&host.id));
        debug_assert_eq!(
            self.is_claimable(number, claim),
            claim == Claim::Held || claim_reasons(&host, self.holders.get(&host.id)).is_none()
        );
        self.index_claim(number, claim);
        let row = Row::new(host, labels.into_boxed_slice(), networks.into_boxed_slice());
        self.host_bytes += row.bytes();
        self.rows[at(number)] = Some(row);
    }

    fn unindex(&mut self, number: Slot) {
        let Some(row) = self.rows.get_mut(at(number)).and_then(Option::take) else {
            return;
        };
        self.host_bytes -= row.bytes();
        for (key, value) in &row.labels {
            let (name, column) = &mut self.columns[at(*key)];
            self.column_bytes -= column.bytes();
            column.remove(number, *value, &self.ranks);
            self.column_bytes += column.bytes();
            if column.exists().is_empty() {
                self.column_bytes -= column.bytes();
                *column = Column::default();
                self.keys.remove(name);
                self.unused_keys.push(*key);
            }
        }
        for network in &row.networks {
            let (name, hosts) = &mut self.network_hosts[at(*network)];
            hosts.remove(number, &self.ranks);
            if hosts.is_empty() {
                *hosts = Set::default();
                self.networks.remove(name);
                self.unused_networks.push(*network);
            }
        }
        let namespace = row.id.name.namespace();
        if let Some(hosts) = self.namespaces.get_mut(namespace) {
            hosts.remove(number, &self.ranks);
            if hosts.is_empty() {
                self.namespaces.remove(namespace);
            }
        }
        for bits in [
            &mut self.live,
            &mut self.sound,
            &mut self.unlabelled,
            &mut self.eligible,
            &mut self.held,
            &mut self.uninspected,
            &mut self.impaired,
        ] {
            assign(bits, number, false);
        }
    }

    /// Keeps the two sets that depend on who holds the host.
    fn index_claim(&mut self, number: Slot, claim: Claim) {
        let eligible = self.is_claimable(number, claim) && self.sound.contains(at(number));
        assign(&mut self.held, number, claim == Claim::Held);
        assign(&mut self.eligible, number, eligible);
    }

    fn is_claimable(&self, number: Slot, claim: Claim) -> bool {
        match claim {
            Claim::Held => true,
            Claim::None => self.unlabelled.contains(at(number)),
            Claim::Orphaned => false,
        }
    }

    fn key_number(&mut self, key: &LabelKey) -> Key {
        if let Some(number) = self.keys.get(key) {
            return *number;
        }
        let column = (key.clone(), Column::default());
        let number = if let Some(number) = self.unused_keys.pop() {
            self.columns[at(number)] = column;
            number
        } else {
            self.columns.push(column);
            slot(self.columns.len() - 1)
        };
        self.keys.insert(key.clone(), number);
        number
    }

    fn network_number(&mut self, network: &NetworkId) -> u32 {
        if let Some(number) = self.networks.get(network) {
            return *number;
        }
        let hosts = (network.clone(), Set::default());
        let number = if let Some(number) = self.unused_networks.pop() {
            self.network_hosts[at(number)] = hosts;
            number
        } else {
            self.network_hosts.push(hosts);
            slot(self.network_hosts.len() - 1)
        };
        self.networks.insert(network.clone(), number);
        number
    }
}

#[cfg(test)]
mod tests {
    use vocabulary::{LabelValue, Uid};

    use super::*;

    #[test]
    fn relabelling_for_ever_takes_no_memory() {
        let mut site = Site::default();
        for round in 0..1000 {
            for name in ["h1", "h2"] {
                let id = HostId {
                    name: HostName::new("metal", name).unwrap(),
                    uid: Uid::new("u").unwrap(),
                };
                let mut host = Host::available(id);
                for kept in ["rack".to_owned(), format!("key-{round}")] {
                    let value = LabelValue::new("value").unwrap();
                    host.labels.insert(LabelKey::new(kept).unwrap(), value);
                }
                host.networks
                    .insert(NetworkId::new(format!("network-{round}")).unwrap());
                site.upsert(host.clone());
                assert_eq!(site.get(&host.id.name), Some(host));
            }
        }
        let sizes = (site.columns.len(), site.network_hosts.len(), site.keys.len());
        assert!(sizes.0 <= 4 && sizes.1 <= 3 && sizes.2 <= 4, "{sizes:?}");
        for name in ["h1", "h2"] {
            site.remove(&HostName::new("metal", name).unwrap());
        }
        assert_eq!((site.keys.len(), site.networks.len()), (0, 0));
    }
}
