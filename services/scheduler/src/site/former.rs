//! Members whose hosts are gone, and which hosts may be their machines.
//!
//! A `BareMetalHost` that is deleted and made again is another host, on the same machine. Load balancers route to the address of a
//! member that is gone until it is released, so until then its machine is not for another cluster. The machine is known by the
//! namespace and name of its host, or by an address that it has in the same network.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ::placement::{ClusterName, HostId, HostName, NetworkId, Uid};

/// Addresses by network.
pub(super) type Addresses = BTreeMap<NetworkId, IpAddr>;

/// A member whose host is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Gone {
    cluster: ClusterName,
    addresses: Addresses,
}

/// The members of a site whose hosts are gone, by name and by address, and the addresses of its hosts.
#[derive(Clone, Debug, Default)]
pub(super) struct Former {
    gone: BTreeMap<HostName, BTreeMap<Uid, Gone>>,
    at: BTreeMap<(NetworkId, IpAddr), BTreeSet<HostId>>,
    /// The names are there; that they are optional gives each address a beginning.
    hosts: BTreeSet<(IpAddr, Option<HostName>)>,
}

impl Former {
    /// Notes the addresses of a host in place of those that it had.
    pub(super) fn set_addresses(&mut self, name: &HostName, before: Option<&Addresses>, now: &Addresses) {
        for address in before.into_iter().flat_map(Addresses::values) {
            self.hosts.remove(&(*address, Some(name.clone())));
        }
        self.hosts
            .extend(now.values().map(|address| (*address, Some(name.clone()))));
    }

    /// Notes that the host of a cluster's member is gone, with the addresses that it had. Returns the hosts for which that may
    /// make a difference.
    pub(super) fn add(
        &mut self,
        id: &HostId,
        cluster: &ClusterName,
        addresses: &Addresses,
    ) -> BTreeSet<HostName> {
        let known = self.gone.get(&id.name).and_then(|gone| gone.get(&id.uid));
        if known.is_some_and(|known| known.cluster == *cluster && known.addresses == *addresses) {
            return BTreeSet::new();
        }
        let mut affected = self.remove(id);
        affected.extend(self.hosts_with(&id.name, addresses));
        for (network, address) in addresses {
            let at = self.at.entry((network.clone(), *address)).or_default();
            at.insert(id.clone());
        }
        let gone = Gone {
            cluster: cluster.clone(),
            addresses: addresses.clone(),
        };
        let named = self.gone.entry(id.name.clone()).or_default();
        named.insert(id.uid.clone(), gone);
        affected
    }

    /// Notes that a host is not gone, or no member any more. Returns the hosts for which that may make a difference.
    pub(super) fn remove(&mut self, id: &HostId) -> BTreeSet<HostName> {
        let Some(named) = self.gone.get_mut(&id.name) else {
            return BTreeSet::new();
        };
        let removed = named.remove(&id.uid);
        if named.is_empty() {
            self.gone.remove(&id.name);
        }
        let Some(Gone {
            cluster: _,
            addresses,
        }) = removed
        else {
            return BTreeSet::new();
        };
        for (network, address) in &addresses {
            let key = (network.clone(), *address);
            if let Some(ids) = self.at.get_mut(&key) {
                ids.remove(id);
                if ids.is_empty() {
                    self.at.remove(&key);
                }
            }
        }
        self.hosts_with(&id.name, &addresses)
    }

    /// The members that are gone and whose machine a host of this name with these addresses may be, with their clusters.
    pub(super) fn members<'a>(
        &'a self,
        name: &'a HostName,
        addresses: &'a Addresses,
    ) -> impl Iterator<Item = (HostId, &'a ClusterName)> {
        let named = self.gone.get(name).into_iter().flat_map(BTreeMap::keys);
        let named = named.map(|uid| HostId {
            name: name.clone(),
            uid: uid.clone(),
        });
        let at = addresses
            .iter()
            .filter_map(|(network, address)| self.at.get(&(network.clone(), *address)));
        let ids: BTreeSet<HostId> = named.chain(at.flatten().cloned()).collect();
        ids.into_iter().filter_map(|id| {
            let gone = self.gone.get(&id.name)?.get(&id.uid)?;
            Some((id, &gone.cluster))
        })
    }

    /// The hosts that have a name or one of these addresses, in whatever network.
    fn hosts_with(&self, name: &HostName, addresses: &Addresses) -> BTreeSet<HostName> {
        let of_address = |address: &IpAddr| {
            let address = *address;
            let from_there = self.hosts.range((address, None)..);
            from_there.take_while(move |(other, _)| *other == address)
        };
        let hosts = addresses.values().flat_map(of_address);
        let mut hosts: BTreeSet<HostName> = hosts.filter_map(|(_, name)| name.clone()).collect();
        hosts.insert(name.clone());
        hosts
    }
}
