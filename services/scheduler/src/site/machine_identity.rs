//! Which machine a host is: whether it may be one to which load balancers of a cluster route.
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

use ::placement::{ClusterName, HostId, HostName, NetworkId, Uid, size::entry};

use super::bmc::Bmc;

/// Addresses by network.
pub(super) type Addresses = BTreeMap<NetworkId, IpAddr>;

/// What tells of a host, or of the record of one, which machine it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    /// Each once, in order.
    addresses: Box<[IpAddr]>,
    bmc: Option<Bmc>,
}

impl Identity {
    pub(super) fn new(addresses: &Addresses, bmc_address: &str) -> Self {
        Self {
            addresses: addresses
                .values()
                .copied()
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
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

/// Part of a key, or where the keys begin or end that have the same parts before it: each kind of entry is in one map of its own, since a
/// small map in each entry of another one takes a multiple of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part<T> {
    First,
    Is(T),
    Last,
}

impl<T> Part<T> {
    fn get(&self) -> Option<&T> {
        match self {
            Self::Is(part) => Some(part),
            Self::First | Self::Last => None,
        }
    }
}

/// The hosts that clusters hold, by name, by the addresses that load balancers have of them and by BMC, and what hosts show.
#[derive(Clone, Debug, Default)]
pub(super) struct Machines {
    members: BTreeMap<(HostName, Part<Uid>), Member>,
    at: BTreeSet<(IpAddr, Part<ClusterName>, Part<HostId>)>,
    behind: BTreeMap<(Bmc, Part<HostId>), ClusterName>,
    shown: BTreeSet<(IpAddr, Part<HostName>)>,
    shown_behind: BTreeSet<(Bmc, Part<HostName>)>,
}

/// Bytes of a member of which so many addresses are known.
pub(super) fn member_bytes(addresses: usize, bmc_address: &str) -> usize {
    let bmc = if bmc_address.is_empty() {
        0
    } else {
        entry(size_of::<((Bmc, Part<HostId>), ClusterName)>()) + 2 * (bmc_address.len() + size_of::<Bmc>())
    };
    let each = entry(size_of::<(IpAddr, Part<ClusterName>, Part<HostId>)>()) + size_of::<IpAddr>();
    entry(size_of::<((HostName, Part<Uid>), Member)>()) + addresses * each + bmc
}

/// Maximum number of members of a cluster at one address, or of hosts with one BMC, that are compared: for the host of the first one, only
/// the second makes a difference. The bound matters where many hosts report one address by mistake.
const MAX_COMPARED_MEMBERS: usize = 2;

/// Maximum number of clusters at one address that are compared. Two are enough to know that a host is for no other cluster than one; the
/// third makes a difference to the host of a member of one of them.
pub(super) const MAX_COMPARED_CLUSTERS: usize = 2;

impl Machines {
    /// Records what a host shows, in place of what it showed before; `None`: the site does not have it. Returns other hosts whose eligibility that
    /// may change.
    pub(super) fn show(
        &mut self,
        name: &HostName,
        before: Option<&Identity>,
        now: Option<&Identity>,
    ) -> BTreeSet<HostName> {
        for address in before.into_iter().flat_map(|before| &before.addresses) {
            self.shown.remove(&(*address, Part::Is(name.clone())));
        }
        let addresses = now.into_iter().flat_map(|now| &now.addresses);
        self.shown
            .extend(addresses.map(|address| (*address, Part::Is(name.clone()))));
        let mut affected = BTreeSet::new();
        let [left, come] = [before, now].map(|shown| shown.and_then(|shown| shown.bmc.as_ref()));
        if left != come {
            affected.extend(left.into_iter().flat_map(|bmc| self.hide_bmc(name, bmc)));
            affected.extend(come.into_iter().flat_map(|bmc| self.show_bmc(name, bmc)));
        }
        if before.is_none() || now.is_none() {
            let bmcs = self
                .named(name)
                .filter_map(|(_, member)| member.known.bmc.as_ref());
            affected.extend(bmcs.filter_map(|bmc| self.only(bmc)).cloned());
        }
        affected
    }

    fn show_bmc(&mut self, name: &HostName, bmc: &Bmc) -> BTreeSet<HostName> {
        self.shown_behind.insert((bmc.clone(), Part::Is(name.clone())));
        self.hosts_sharing(bmc)
    }

    fn hide_bmc(&mut self, name: &HostName, bmc: &Bmc) -> BTreeSet<HostName> {
        self.shown_behind.remove(&(bmc.clone(), Part::Is(name.clone())));
        self.hosts_sharing(bmc)
    }

    /// The hosts that show a BMC, if there are so few of them that one more makes a difference.
    fn hosts_sharing(&self, bmc: &Bmc) -> BTreeSet<HostName> {
        let some = self.showing_bmc(bmc).take(MAX_COMPARED_MEMBERS + 1);
        let some: BTreeSet<HostName> = some.cloned().collect();
        if some.len() <= MAX_COMPARED_MEMBERS {
            some
        } else {
            BTreeSet::new()
        }
    }

    fn showing_bmc(&self, bmc: &Bmc) -> impl Iterator<Item = &HostName> + use<'_> {
        let there = (bmc.clone(), Part::First)..(bmc.clone(), Part::Last);
        self.shown_behind.range(there).filter_map(|(_, name)| name.get())
    }

    /// The only host that shows a BMC.
    fn only(&self, bmc: &Bmc) -> Option<&HostName> {
        let mut names = self.showing_bmc(bmc);
        names.next().filter(|_| names.next().is_none())
    }

    /// The members of this name.
    fn named(&self, name: &HostName) -> impl Iterator<Item = (&Uid, &Member)> + use<'_> {
        let there = (name.clone(), Part::First)..(name.clone(), Part::Last);
        let members = self.members.range(there);
        members.filter_map(|((_, uid), member)| Some((uid.get()?, member)))
    }

    /// The members of a cluster at an address.
    fn members_at(&self, address: IpAddr, cluster: &ClusterName) -> impl Iterator<Item = &HostId> + use<'_> {
        let from = (address, Part::Is(cluster.clone()), Part::First);
        let to = (address, Part::Is(cluster.clone()), Part::Last);
        self.at.range(from..to).filter_map(|(_, _, id)| id.get())
    }

    /// The clusters with a member at an address, each once.
    fn clusters_at(&self, address: IpAddr) -> impl Iterator<Item = &ClusterName> {
        let next = move |from| {
            let mut there = self.at.range(from..(address, Part::Last, Part::First));
            there.next().and_then(|(_, cluster, _)| cluster.get())
        };
        let first = next((address, Part::First, Part::First));
        std::iter::successors(first, move |cluster: &&ClusterName| {
            next((address, Part::Is(ClusterName::clone(cluster)), Part::Last))
        })
    }

    /// Records that a cluster holds a host, and the addresses in its record, to which load balancers may route. Returns the hosts whose eligibility
    /// that may change.
    pub(super) fn hold(&mut self, id: &HostId, cluster: &ClusterName, known: Identity) -> BTreeSet<HostName> {
        let member = Member {
            cluster: cluster.clone(),
            known,
        };
        if self.members.get(&key(id)) == Some(&member) {
            return BTreeSet::new();
        }
        let mut affected = self.unhold(id);
        affected.insert(id.name.clone());
        for address in &member.known.addresses {
            self.at
                .insert((*address, Part::Is(cluster.clone()), Part::Is(id.clone())));
            let few_members = self
                .members_at(*address, cluster)
                .nth(MAX_COMPARED_MEMBERS)
                .is_none();
            if few_members
                && self
                    .clusters_at(*address)
                    .nth(MAX_COMPARED_CLUSTERS + 1)
                    .is_none()
            {
                affected.extend(self.showing(*address).cloned());
            }
        }
        if let Some(bmc) = &member.known.bmc {
            let behind = (bmc.clone(), Part::Is(id.clone()));
            self.behind.insert(behind, cluster.clone());
            affected.extend(self.only(bmc).cloned());
        }
        self.members.insert(key(id), member);
        affected
    }

    /// Records that no cluster holds a host now. Returns the hosts whose eligibility that may change.
    pub(super) fn unhold(&mut self, id: &HostId) -> BTreeSet<HostName> {
        let Some(Member { cluster, known }) = self.members.remove(&key(id)) else {
            return BTreeSet::new();
        };
        let mut affected = BTreeSet::from([id.name.clone()]);
        for address in known.addresses {
            let there = (address, Part::Is(cluster.clone()), Part::Is(id.clone()));
            if self.at.remove(&there)
                && self
                    .members_at(address, &cluster)
                    .nth(MAX_COMPARED_MEMBERS - 1)
                    .is_none()
            {
                affected.extend(self.showing(address).cloned());
            }
        }
        if let Some(bmc) = known.bmc {
            self.behind.remove(&(bmc.clone(), Part::Is(id.clone())));
            affected.extend(self.only(&bmc).cloned());
        }
        affected
    }

    /// The clusters with a member, other than this host itself, whose machine this host may be by its name or by what it shows. A cluster can occur
    /// several times. `is_there`: whether a member's host is reported.
    pub(super) fn clusters<'a, 'b>(
        &'a self,
        host: &'b HostId,
        shows: &'b Identity,
        is_there: impl Fn(&HostId) -> bool + 'b,
    ) -> impl Iterator<Item = &'a ClusterName> {
        let named = self.named(&host.name).filter(|(uid, _)| **uid != host.uid);
        let at = shows.addresses.iter().flat_map(move |address| {
            let clusters = self.clusters_at(*address);
            clusters.filter(move |cluster| self.members_at(*address, cluster).any(|id| id != host))
        });
        let behind = self.members_by_bmc(shows).filter(move |(id, _)| !is_there(id));
        named
            .map(|(_, member)| &member.cluster)
            .chain(at)
            .chain(behind.map(|(_, cluster)| cluster))
    }

    /// The members of a cluster whose machine this host may be by its name or by what it shows.
    pub(super) fn members(&self, host: &HostId, shows: &Identity, cluster: &ClusterName) -> BTreeSet<HostId> {
        let named = self.named(&host.name);
        let named = named.filter(|(_, member)| member.cluster == *cluster);
        let named = named.map(|(uid, _)| HostId {
            name: host.name.clone(),
            uid: uid.clone(),
        });
        let at = shows.addresses.iter();
        let at = at.flat_map(|address| self.members_at(*address, cluster));
        let behind = self.members_by_bmc(shows).filter(|(_, of)| *of == cluster);
        named
            .chain(at.cloned())
            .chain(behind.map(|(id, _)| id.clone()))
            .collect()
    }

    /// The members behind the BMC that a host shows, if no other host shows it.
    fn members_by_bmc<'a>(
        &'a self,
        shows: &Identity,
    ) -> impl Iterator<Item = (&'a HostId, &'a ClusterName)> + use<'a> {
        let bmc = shows.bmc.as_ref().filter(|bmc| self.only(bmc).is_some());
        let there = bmc.map(|bmc| (bmc.clone(), Part::First)..(bmc.clone(), Part::Last));
        let behind = there.into_iter().flat_map(|there| self.behind.range(there));
        behind.filter_map(|((_, id), cluster)| Some((id.get()?, cluster)))
    }

    /// The hosts that show an address, in whatever network.
    pub(super) fn showing(&self, address: IpAddr) -> impl Iterator<Item = &HostName> {
        let there = (address, Part::First)..(address, Part::Last);
        self.shown.range(there).filter_map(|(_, name)| name.get())
    }
}

fn key(HostId { name, uid }: &HostId) -> (HostName, Part<Uid>) {
    (name.clone(), Part::Is(uid.clone()))
}
