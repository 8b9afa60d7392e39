//! Which hosts may be machines to which load balancers of a cluster route.
//!
//! Load balancers route to every address that a record has of its members, until the release of that member is confirmed; whatever
//! the members' hosts show meanwhile. So a host that shows such an address is for no other cluster, whether the member's host is there or
//! not, and whatever the network of each is called: pods connect to addresses. Neither is a host of the name of a member: a
//! `BareMetalHost` that is deleted and made again is another host, on the same machine.
//!
//! Made again under another name, it may show no address yet. Then its BMC tells which machine it is, as long as the member's host is
//! not there. `BareMetalHost`s are written by the operators of the site, never by tenants, and several may have one BMC address by
//! mistake. So that no tenant keeps such hosts from others, an address that two hosts show tells nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ::placement::{ClusterName, HostId, HostName, NetworkId, Uid};

use super::bmc::Bmc;

/// Addresses by network.
pub(super) type Addresses = BTreeMap<NetworkId, IpAddr>;

/// What tells of a host, or of the record of one, which machine it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    addresses: BTreeSet<IpAddr>,
    bmc: Option<Bmc>,
}

impl Identity {
    pub(super) fn new(addresses: &Addresses, bmc_address: &str) -> Self {
        Self {
            addresses: addresses.values().copied().collect(),
            bmc: Bmc::parse(bmc_address),
        }
    }
}

/// A host that a cluster holds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    cluster: ClusterName,
    known: Identity,
}

/// The hosts that clusters hold, by name, by the addresses that load balancers have of them and by BMC, and what hosts show.
#[derive(Clone, Debug, Default)]
pub(super) struct Machines {
    members: BTreeMap<HostName, BTreeMap<Uid, Member>>,
    at: BTreeMap<IpAddr, BTreeMap<ClusterName, BTreeSet<HostId>>>,
    behind: BTreeMap<Bmc, BTreeMap<HostId, ClusterName>>,
    /// The names are there; that they are optional gives each address a beginning.
    shown: BTreeSet<(IpAddr, Option<HostName>)>,
    shown_behind: BTreeMap<Bmc, BTreeSet<HostName>>,
}

/// So many members of a cluster at one address make a difference: for the host of the first of them, the second does. It matters where
/// many hosts show one address by mistake. So many hosts that show one BMC do, too.
const MATTER: usize = 2;

/// Whether a host is for no other cluster than one is known from two clusters, whichever they are. The third makes a difference to the
/// host of a member of one of them.
pub(super) const CLUSTERS: usize = 2;

impl Machines {
    /// Notes what a host shows in place of what it showed before; `None`: it is not there. Returns the other hosts for which that may
    /// make a difference.
    pub(super) fn show(
        &mut self,
        name: &HostName,
        before: Option<&Identity>,
        now: Option<&Identity>,
    ) -> BTreeSet<HostName> {
        for address in before.into_iter().flat_map(|before| &before.addresses) {
            self.shown.remove(&(*address, Some(name.clone())));
        }
        let addresses = now.into_iter().flat_map(|now| &now.addresses);
        self.shown
            .extend(addresses.map(|address| (*address, Some(name.clone()))));
        let mut affected = BTreeSet::new();
        let [left, come] = [before, now].map(|shown| shown.and_then(|shown| shown.bmc.as_ref()));
        if left != come {
            affected.extend(left.into_iter().flat_map(|bmc| self.hide_bmc(name, bmc)));
            affected.extend(come.into_iter().flat_map(|bmc| self.show_bmc(name, bmc.clone())));
        }
        if before.is_none() || now.is_none() {
            let members = self.members.get(name).into_iter().flatten();
            let bmcs = members.filter_map(|(_, member)| member.known.bmc.as_ref());
            affected.extend(bmcs.filter_map(|bmc| self.only(bmc)).cloned());
        }
        affected
    }

    fn show_bmc(&mut self, name: &HostName, bmc: Bmc) -> BTreeSet<HostName> {
        let names = self.shown_behind.entry(bmc).or_default();
        names.insert(name.clone());
        few(names)
    }

    fn hide_bmc(&mut self, name: &HostName, bmc: &Bmc) -> BTreeSet<HostName> {
        let Some(names) = self.shown_behind.get_mut(bmc) else {
            return BTreeSet::new();
        };
        names.remove(name);
        let left = few(names);
        if names.is_empty() {
            self.shown_behind.remove(bmc);
        }
        left
    }

    /// The only host that shows a BMC.
    fn only(&self, bmc: &Bmc) -> Option<&HostName> {
        let names = self.shown_behind.get(bmc)?;
        names.first().filter(|_| names.len() == 1)
    }

    /// Notes that a cluster holds a host and what its record says of the machine: load balancers may have these addresses of it. Returns
    /// the hosts for which that may make a difference.
    pub(super) fn hold(&mut self, id: &HostId, cluster: &ClusterName, known: Identity) -> BTreeSet<HostName> {
        let member = Member {
            cluster: cluster.clone(),
            known,
        };
        let before = self.members.get(&id.name).and_then(|named| named.get(&id.uid));
        if before == Some(&member) {
            return BTreeSet::new();
        }
        let mut affected = self.unhold(id);
        affected.insert(id.name.clone());
        for address in &member.known.addresses {
            let at = self.at.entry(*address).or_default();
            let members = at.entry(cluster.clone()).or_default();
            members.insert(id.clone());
            if members.len() <= MATTER && at.len() <= CLUSTERS + 1 {
                affected.extend(self.showing(*address).cloned());
            }
        }
        if let Some(bmc) = &member.known.bmc {
            let behind = self.behind.entry(bmc.clone()).or_default();
            behind.insert(id.clone(), cluster.clone());
            affected.extend(self.only(bmc).cloned());
        }
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
        let Some(Member { cluster, known }) = removed else {
            return BTreeSet::new();
        };
        let mut affected = BTreeSet::from([id.name.clone()]);
        for address in known.addresses {
            let Some(at) = self.at.get_mut(&address) else {
                continue;
            };
            let Some(members) = at.get_mut(&cluster) else {
                continue;
            };
            members.remove(id);
            let left = members.len();
            if left == 0 {
                at.remove(&cluster);
            }
            if at.is_empty() {
                self.at.remove(&address);
            }
            if left < MATTER {
                affected.extend(self.showing(address).cloned());
            }
        }
        if let Some(bmc) = known.bmc
            && let Some(behind) = self.behind.get_mut(&bmc)
        {
            behind.remove(id);
            if behind.is_empty() {
                self.behind.remove(&bmc);
            }
            affected.extend(self.only(&bmc).cloned());
        }
        affected
    }

    /// The clusters with a member whose machine this host may be, which shows this, and which is not that member itself; one may come
    /// several times. `is_there`: the host of a member is reported.
    pub(super) fn clusters<'a>(
        &'a self,
        host: &HostId,
        shows: &Identity,
        is_there: impl Fn(&HostId) -> bool,
    ) -> impl Iterator<Item = &'a ClusterName> {
        let named = self.members.get(&host.name).into_iter().flatten();
        let named = named.filter(|(uid, _)| **uid != host.uid);
        let at = shows.addresses.iter().filter_map(|address| self.at.get(address));
        let at = at
            .flatten()
            .filter(|(_, members)| members.len() > 1 || !members.contains(host));
        let behind = self.behind(shows).filter(move |(id, _)| !is_there(id));
        named
            .map(|(_, member)| &member.cluster)
            .chain(at.map(|(cluster, _)| cluster))
            .chain(behind.map(|(_, cluster)| cluster))
    }

    /// The members of a cluster whose machine this host may be, which shows this.
    pub(super) fn members(&self, host: &HostId, shows: &Identity, cluster: &ClusterName) -> BTreeSet<HostId> {
        let named = self.members.get(&host.name).into_iter().flatten();
        let named = named.filter(|(_, member)| member.cluster == *cluster);
        let named = named.map(|(uid, _)| HostId {
            name: host.name.clone(),
            uid: uid.clone(),
        });
        let at = shows.addresses.iter();
        let at = at.filter_map(|address| self.at.get(address)?.get(cluster));
        let behind = self.behind(shows).filter(|(_, of)| *of == cluster);
        named
            .chain(at.flatten().cloned())
            .chain(behind.map(|(id, _)| id.clone()))
            .collect()
    }

    /// The members behind the BMC that a host shows, if no other host shows it.
    fn behind<'a>(
        &'a self,
        shows: &Identity,
    ) -> impl Iterator<Item = (&'a HostId, &'a ClusterName)> + use<'a> {
        let bmc = shows.bmc.as_ref().filter(|bmc| self.only(bmc).is_some());
        bmc.and_then(|bmc| self.behind.get(bmc)).into_iter().flatten()
    }

    /// The hosts that show an address, in whatever network.
    pub(super) fn showing(&self, address: IpAddr) -> impl Iterator<Item = &HostName> {
        let from_there = self.shown.range((address, None)..);
        let there = from_there.take_while(move |(other, _)| *other == address);
        there.filter_map(|(_, name)| name.as_ref())
    }
}

/// These hosts, if there are so few of them that one more makes a difference.
fn few(names: &BTreeSet<HostName>) -> BTreeSet<HostName> {
    if names.len() <= MATTER {
        names.clone()
    } else {
        BTreeSet::new()
    }
}
