//! The site's hosts as it reported them, and who holds each.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ::placement::{ClusterName, Holder, HostId, HostName, LabelKey, LabelValue, Policy};

use super::machine_identity::{self, Identity, Machines};
use crate::observed::{Host, label_bytes};

/// Bytes of a held host that is deleted, without its labels.
const DELETED_HOST_BYTES: usize =
    ::placement::size::entry(size_of::<(HostId, BTreeMap<LabelKey, LabelValue>)>());

/// The observed hosts of a site, by name and as the columns on which decisions are made, with their holders.
#[derive(Clone, Debug)]
pub(super) struct Inventory {
    model: ::placement::Site,
    hosts: BTreeMap<HostName, Host>,
    /// Of all hosts, and of the labels that are left.
    bytes: usize,
    /// Hosts by the cluster that their labels name, completely or not, whoever holds them. The hosts are there; that they are optional
    /// gives each cluster a beginning.
    labelled: BTreeSet<(ClusterName, Option<HostId>)>,
    machines: Machines,
    /// Of held hosts that are gone, the labels that they had.
    left: BTreeMap<HostId, BTreeMap<LabelKey, LabelValue>>,
}

impl Inventory {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            model: ::placement::Site::new(policy),
            hosts: BTreeMap::new(),
            bytes: 0,
            labelled: BTreeSet::new(),
            machines: Machines::default(),
            left: BTreeMap::new(),
        }
    }

    /// What decisions are made on.
    pub(super) fn model(&self) -> &::placement::Site {
        &self.model
    }

    /// Hosts by name.
    pub(super) fn hosts(&self) -> &BTreeMap<HostName, Host> {
        &self.hosts
    }

    /// About how many bytes all that was reported of hosts takes, with the model.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.model.bytes()
    }

    /// About how many bytes more it takes with these hosts, in the place of those of their names.
    pub(super) fn bytes_of_more(&self, hosts: &[Host]) -> usize {
        let own = hosts.iter().map(|host| {
            let before = self.hosts.get(&host.id().name).map_or(0, Host::bytes);
            host.bytes().saturating_sub(before)
        });
        own.sum::<usize>() + self.model.bytes_of_more(hosts.iter().map(Host::facts))
    }

    pub(super) fn set_policy(&mut self, policy: Policy) {
        self.model.set_policy(policy);
    }

    /// What was reported of exactly this host; `None` when it is gone or another has its name.
    pub(super) fn reported(&self, id: &HostId) -> Option<&Host> {
        self.hosts.get(&id.name).filter(|host| host.id().uid == id.uid)
    }

    /// The labels that a host had last that a cluster holds and that is gone, as far as this process has seen them.
    pub(super) fn last_labels(&self, id: &HostId) -> Option<&BTreeMap<LabelKey, LabelValue>> {
        self.left.get(id)
    }

    /// The host that has this name now.
    pub(super) fn incarnation(&self, name: &HostName) -> Option<&HostId> {
        self.hosts.get(name).map(Host::id)
    }

    /// Hosts whose labels name a cluster.
    pub(super) fn labelled<'a>(
        &'a self,
        cluster: &ClusterName,
    ) -> impl Iterator<Item = &'a HostId> + use<'a> {
        let cluster = cluster.clone();
        let from_there = self.labelled.range((cluster.clone(), None)..);
        let named = from_there.take_while(move |(named, _)| *named == cluster);
        named.filter_map(|(_, host)| host.as_ref())
    }

    /// Clusters that labels of hosts name.
    pub(super) fn labelled_clusters(&self) -> BTreeSet<&ClusterName> {
        self.labelled.iter().map(|(cluster, _)| cluster).collect()
    }

    /// Takes a host in, in the place of what was reported of it before. Another host of its name must be removed first.
    pub(super) fn insert(&mut self, host: Host) {
        let id = host.id().clone();
        self.unindex(&id.name);
        self.forget_left(&id);
        if let Some(cluster) = &host.details().named {
            self.labelled.insert((cluster.clone(), Some(id.clone())));
        }
        self.model.upsert(host.facts().clone());
        let before = self.hosts.get(&id.name).map(identity);
        let now = identity(&host);
        let mut affected = self.machines.show(&id.name, before.as_ref(), Some(&now));
        self.bytes += host.bytes();
        let before = self.hosts.insert(id.name.clone(), host);
        self.bytes -= before.as_ref().map_or(0, Host::bytes);
        affected.insert(id.name);
        self.set_former(&affected);
    }

    /// Removes the host of this name; who holds it still does.
    pub(super) fn remove(&mut self, name: &HostName) -> Option<Host> {
        self.unindex(name);
        self.model.remove(name);
        let host = self.hosts.remove(name)?;
        self.bytes -= host.bytes();
        let mut affected = self.machines.show(name, Some(&identity(&host)), None);
        affected.insert(name.clone());
        self.set_former(&affected);
        if self.holding_cluster(host.id()).is_some() {
            let labels = host.facts().labels.clone();
            self.bytes += DELETED_HOST_BYTES + label_bytes(&labels);
            self.left.insert(host.id().clone(), labels);
        }
        Some(host)
    }

    fn forget_left(&mut self, id: &HostId) {
        if let Some(labels) = self.left.remove(id) {
            self.bytes -= DELETED_HOST_BYTES + label_bytes(&labels);
        }
    }

    /// Tells the model of these hosts whose member's machine each may be: of many clusters some, so that many hosts at one address,
    /// each of another cluster, take no more memory than others.
    fn set_former(&mut self, names: &BTreeSet<HostName>) {
        for name in names {
            let clusters = self.routed_by(name, machine_identity::MAX_COMPARED_CLUSTERS);
            let clusters = clusters.into_iter().cloned().collect();
            self.model.set_former(name, clusters);
        }
    }

    /// At most so many of the clusters with a member whose machine the host of this name may be, and which is not that host itself: their
    /// load balancers may route to it.
    pub(super) fn routed_by(&self, name: &HostName, most: usize) -> BTreeSet<&ClusterName> {
        let mut found = BTreeSet::new();
        let Some(host) = self.hosts.get(name) else {
            return found;
        };
        let is_there = |id: &HostId| self.reported(id).is_some();
        let shows = identity(host);
        for cluster in self.machines.clusters(host.id(), &shows, is_there) {
            found.insert(cluster);
            if found.len() >= most {
                break;
            }
        }
        found
    }

    /// The members of a cluster that are gone and whose machine the host of this name may be.
    pub(super) fn former(&self, name: &HostName, cluster: &ClusterName) -> BTreeSet<HostId> {
        let Some(host) = self.hosts.get(name) else {
            return BTreeSet::new();
        };
        let mut members = self.machines.members(host.id(), &identity(host), cluster);
        members.retain(|id| self.reported(id).is_none());
        members
    }

    /// Whether another host than this shows an address.
    pub(super) fn is_shown_elsewhere(&self, id: &HostId, address: IpAddr) -> bool {
        self.machines.showing(address).any(|name| *name != id.name)
    }

    fn unindex(&mut self, name: &HostName) {
        let Some(host) = self.hosts.get(name) else { return };
        let Some(cluster) = &host.details().named else {
            return;
        };
        self.labelled.remove(&(cluster.clone(), Some(host.id().clone())));
    }

    /// Sets why a host is not eligible whatever else it shows.
    pub(super) fn set_problem(&mut self, name: &HostName, problem: Option<String>) {
        if let Some(host) = self.hosts.get_mut(name) {
            self.bytes -= host.bytes();
            host.set_problem(problem);
            self.bytes += host.bytes();
            self.model.upsert(host.facts().clone());
        }
    }

    /// Who holds a host.
    pub(super) fn holder(&self, id: &HostId) -> Option<&Holder> {
        self.model.holder(id)
    }

    /// The cluster that holds a host.
    pub(super) fn holding_cluster(&self, id: &HostId) -> Option<&ClusterName> {
        match self.model.holder(id)? {
            Holder::Cluster {
                cluster,
                role: _,
                state: _,
            } => Some(cluster),
            Holder::Orphaned => None,
        }
    }

    /// Another cluster that holds a host.
    pub(super) fn other_holder(&self, id: &HostId, ours: &ClusterName) -> Option<&ClusterName> {
        self.holding_cluster(id).filter(|cluster| *cluster != ours)
    }

    /// Says who holds a host, and what the record states of its machine: load balancers may have these addresses of it.
    pub(super) fn hold(&mut self, id: &HostId, holder: Holder, known: Identity) {
        let affected = match &holder {
            Holder::Cluster {
                cluster,
                role: _,
                state: _,
            } => self.machines.hold(id, cluster, known),
            Holder::Orphaned => BTreeSet::new(),
        };
        self.model.hold(id, holder);
        self.set_former(&affected);
    }

    pub(super) fn unhold(&mut self, id: &HostId) {
        self.model.unhold(id);
        self.forget_left(id);
        let affected = self.machines.unhold(id);
        self.set_former(&affected);
    }

    /// Marks a host as orphaned or not, unless a cluster holds it.
    pub(super) fn set_orphaned(&mut self, id: &HostId, orphaned: bool) {
        match (self.model.holder(id), orphaned) {
            (None, true) => self.model.hold(id, Holder::Orphaned),
            (Some(Holder::Orphaned), false) => {
                self.model.unhold(id);
            }
            (None, false) | (Some(Holder::Orphaned), true) | (Some(Holder::Cluster { .. }), _) => {}
        }
    }
}

/// What a host shows of which machine it is.
pub(super) fn identity(host: &Host) -> Identity {
    let details = host.details();
    Identity::new(&details.addresses, &details.bmc_address)
}

#[cfg(test)]
mod tests {
    use ::placement::{MemberState, NetworkId, RoleName, SipLabels, Uid};

    use super::*;
    use crate::{observed::Details, site::machine_identity::Addresses};

    fn id(uid: &str) -> HostId {
        HostId {
            name: HostName::new("metal", "h1").unwrap(),
            uid: Uid::new(uid).unwrap(),
        }
    }

    fn cluster(name: &str) -> ClusterName {
        ClusterName::new("tenant", name).unwrap()
    }

    fn host(uid: &str, named: Option<&str>) -> Host {
        let details = Details {
            named: named.map(cluster),
            ..Details::default()
        };
        Host::new(::placement::Host::available(id(uid)), details)
    }

    fn held() -> Holder {
        Holder::Cluster {
            cluster: cluster("one"),
            role: RoleName::new("Worker").unwrap(),
            state: MemberState::Bound,
        }
    }

    #[test]
    fn labels_are_indexed_by_the_latest_report() {
        let mut inventory = Inventory::new(Policy::default());
        inventory.insert(host("u", Some("one")));
        inventory.insert(host("u", Some("two")));
        assert_eq!(inventory.labelled(&cluster("one")).count(), 0);
        assert_eq!(
            inventory.labelled(&cluster("two")).collect::<Vec<_>>(),
            [&id("u")]
        );
        inventory.remove(&id("u").name);
        assert_eq!(inventory.labelled_clusters().len(), 0);
    }

    #[test]
    fn another_host_of_the_name_is_not_reported() {
        let mut inventory = Inventory::new(Policy::default());
        inventory.insert(host("u", None));
        assert!(inventory.reported(&id("u")).is_some());
        assert!(inventory.reported(&id("v")).is_none());
        assert_eq!(inventory.incarnation(&id("v").name), Some(&id("u")));
    }

    #[test]
    fn a_holder_outlives_the_host_and_is_no_orphan() {
        let mut inventory = Inventory::new(Policy::default());
        inventory.insert(host("u", None));
        inventory.hold(&id("u"), held(), Identity::default());
        inventory.remove(&id("u").name);
        inventory.set_orphaned(&id("u"), true);
        assert_eq!(inventory.holder(&id("u")), Some(&held()));
        inventory.unhold(&id("u"));
        inventory.set_orphaned(&id("u"), true);
        assert_eq!(inventory.holder(&id("u")), Some(&Holder::Orphaned));
        assert_eq!(inventory.holding_cluster(&id("u")), None);
    }

    #[test]
    fn a_problem_stands_until_it_is_taken_back() {
        let mut inventory = Inventory::new(Policy::default());
        inventory.insert(host("u", None));
        let problem = |inventory: &Inventory| inventory.model().get(&id("u").name).unwrap().problem;
        inventory.set_problem(&id("u").name, Some("forged".to_owned()));
        assert_eq!(problem(&inventory), Some("forged".to_owned()));
        inventory.set_problem(&id("u").name, None);
        assert_eq!(problem(&inventory), None);
        assert_eq!(
            inventory.hosts()[&id("u").name].facts().sip_labels,
            SipLabels::None
        );
    }

    const SHARED: &str = "192.0.2.1";

    fn name(number: usize) -> HostName {
        HostName::new("metal", format!("h{number}")).unwrap()
    }

    fn at(number: usize, addresses: &[&str]) -> (HostId, Addresses) {
        let id = HostId {
            name: name(number),
            uid: Uid::new("u").unwrap(),
        };
        let addresses = addresses.iter().enumerate().map(|(network, address)| {
            let network = NetworkId::new(format!("n{network}")).unwrap();
            (network, address.parse().unwrap())
        });
        (id, addresses.collect())
    }

    fn host_at(number: usize, addresses: &[&str]) -> Host {
        let (id, addresses) = at(number, addresses);
        let details = Details {
            addresses,
            ..Details::default()
        };
        Host::new(::placement::Host::available(id), details)
    }

    fn held_by(number: usize) -> Holder {
        Holder::Cluster {
            cluster: cluster(&format!("c{number}")),
            role: RoleName::new("Worker").unwrap(),
            state: MemberState::Bound,
        }
    }

    #[test]
    fn hosts_and_clusters_at_one_address_make_no_product() {
        const MANY: usize = 500;
        let mut inventory = Inventory::new(Policy::default());
        for number in 0..MANY {
            inventory.insert(host_at(number, &[SHARED]));
        }
        for number in 0..MANY {
            let (id, addresses) = at(number, &[SHARED]);
            inventory.hold(&id, held_by(number), Identity::new(&addresses, ""));
        }
        let clusters = (0..MANY).map(|number| inventory.model().former_clusters(&name(number)).count());
        assert_eq!(clusters.max(), Some(2));
    }

    proptest::proptest! {
        /// Some of the clusters at an address are enough to know whether a host is for no other cluster than one.
        #[test]
        fn former_clusters_are_known_after_any_order_of_changes(
            steps in proptest::collection::vec((0..4_usize, 0..5_usize, 0..5_usize, 0..4_usize), 1..60),
        ) {
            const ADDRESSES: [&[&str]; 4] = [&[], &[SHARED], &["192.0.2.2"], &[SHARED, "192.0.2.2"]];
            let mut inventory = Inventory::new(Policy::default());
            for (what, host, holder, addresses) in steps {
                let (id, known) = at(host, ADDRESSES[addresses]);
                match what {
                    0 => inventory.insert(host_at(host, ADDRESSES[addresses])),
                    1 => drop(inventory.remove(&id.name)),
                    2 => inventory.hold(&id, held_by(holder), Identity::new(&known, "")),
                    _ => inventory.unhold(&id),
                }
                for (host, ours) in (0..5).flat_map(|host| (0..6).map(move |ours| (host, ours))) {
                    let ours = cluster(&format!("c{ours}"));
                    let all = inventory.routed_by(&name(host), usize::MAX);
                    proptest::prop_assert_eq!(
                        inventory.model().former_holder(&name(host), &ours).is_some(),
                        all.into_iter().any(|cluster| *cluster != ours)
                    );
                }
            }
        }
    }
}
