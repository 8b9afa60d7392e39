//! Which hosts may be machines to which load balancers of a cluster route.
//!
//! Load balancers route to every address that a record has of its members, until the release of that member is confirmed; whatever
//! the members' hosts show meanwhile. So a host that shows such an address is for no other cluster, whether the member's host is there or
//! not. Neither is a host of the name of a member: a `BareMetalHost` that is deleted and made again is another host, on the same machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ::placement::{ClusterName, HostId, HostName, NetworkId, Uid};

/// Addresses by network.
pub(super) type Addresses = BTreeMap<NetworkId, IpAddr>;

/// A host that a cluster holds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    cluster: ClusterName,
    addresses: Addresses,
}

/// The hosts that clusters hold, by name and by the addresses that load balancers have of them, and the addresses that hosts show.
#[derive(Clone, Debug, Default)]
pub(super) struct Machines {
    members: BTreeMap<HostName, BTreeMap<Uid, Member>>,
    at: BTreeMap<(NetworkId, IpAddr), BTreeMap<ClusterName, BTreeSet<HostId>>>,
    /// The names are there; that they are optional gives each address a beginning.
    shown: BTreeSet<(IpAddr, Option<HostName>)>,
}

/// So many members of a cluster at one address make a difference: for the host of the first of them, the second does. It matters where
/// many hosts show one address by mistake.
const MATTER: usize = 2;

impl Machines {
    /// Notes the addresses that a host shows in place of those that it showed before.
    pub(super) fn show(&mut self, name: &HostName, before: Option<&Addresses>, now: &Addresses) {
        for address in before.into_iter().flat_map(Addresses::values) {
            self.shown.remove(&(*address, Some(name.clone())));
        }
        self.shown
            .extend(now.values().map(|address| (*address, Some(name.clone()))));
    }

    /// Notes that a cluster holds a host and that load balancers may have these addresses of it. Returns the hosts for which that may
    /// make a difference.
    pub(super) fn hold(
        &mut self,
        id: &HostId,
        cluster: &ClusterName,
        addresses: &Addresses,
    ) -> BTreeSet<HostName> {
        let known = self.members.get(&id.name).and_then(|named| named.get(&id.uid));
        if known.is_some_and(|known| known.cluster == *cluster && known.addresses == *addresses) {
            return BTreeSet::new();
        }
        let mut affected = self.unhold(id);
        affected.insert(id.name.clone());
        for (network, address) in addresses {
            let at = self.at.entry((network.clone(), *address)).or_default();
            let members = at.entry(cluster.clone()).or_default();
            members.insert(id.clone());
            if members.len() <= MATTER {
                affected.extend(self.showing(*address).cloned());
            }
        }
        let member = Member {
            cluster: cluster.clone(),
            addresses: addresses.clone(),
        };
        let named = self.members.entry(id.name.clone()).or_default();
        named.insert(id.uid.clone(), member);
        affected
    }

    /// Notes that no cluster holds a host any more. Returns the hosts for which that may make a difference.
    pub(super) fn unhold(&mut self, id: &HostId) -> BTreeSet<HostName> {
        let Some(named) = self.members.get_mut(&id.name) else {
            return BTreeSet::new();
        };
        let removed = named.remove(&id.uid);
        if named.is_empty() {
            self.members.remove(&id.name);
        }
        let Some(Member { cluster, addresses }) = removed else {
            return BTreeSet::new();
        };
        let mut affected = BTreeSet::from([id.name.clone()]);
        for (network, address) in addresses {
            let key = (network, address);
            let Some(at) = self.at.get_mut(&key) else { continue };
            let Some(members) = at.get_mut(&cluster) else {
                continue;
            };
            members.remove(id);
            let left = members.len();
            if left == 0 {
                at.remove(&cluster);
            }
            if at.is_empty() {
                self.at.remove(&key);
            }
            if left < MATTER {
                affected.extend(self.showing(address).cloned());
            }
        }
        affected
    }

    /// The clusters with a member whose machine this host may be, which shows these addresses, and which is not that member itself.
    pub(super) fn clusters<'a>(
        &'a self,
        host: &'a HostId,
        addresses: &'a Addresses,
    ) -> impl Iterator<Item = &'a ClusterName> {
        let named = self.members.get(&host.name).into_iter().flatten();
        let named = named.filter(|(uid, _)| **uid != host.uid);
        let at = addresses
            .iter()
            .filter_map(|(network, address)| self.at.get(&(network.clone(), *address)));
        let at = at
            .flatten()
            .filter(|(_, members)| members.len() > 1 || !members.contains(host));
        named
            .map(|(_, member)| &member.cluster)
            .chain(at.map(|(cluster, _)| cluster))
    }

    /// The members of a cluster whose machine this host may be, which shows these addresses.
    pub(super) fn members(
        &self,
        host: &HostId,
        addresses: &Addresses,
        cluster: &ClusterName,
    ) -> BTreeSet<HostId> {
        let named = self.members.get(&host.name).into_iter().flatten();
        let named = named.filter(|(_, member)| member.cluster == *cluster);
        let named = named.map(|(uid, _)| HostId {
            name: host.name.clone(),
            uid: uid.clone(),
        });
        let at = addresses
            .iter()
            .filter_map(|(network, address)| self.at.get(&(network.clone(), *address))?.get(cluster));
        named.chain(at.flatten().cloned()).collect()
    }

    /// The hosts that show an address, in whatever network.
    pub(super) fn showing(&self, address: IpAddr) -> impl Iterator<Item = &HostName> {
        let from_there = self.shown.range((address, None)..);
        let there = from_there.take_while(move |(other, _)| *other == address);
        there.filter_map(|(_, name)| name.as_ref())
    }
}
