//! What a site's API server holds: small enough that every order of events can be tried.

use std::{collections::BTreeMap, net::IpAddr};

use crate::balancer::Balancers;

use kit::placement::{ClusterId, ObjectKey, Position};
use placement::ClusterName;
use proto::inventory::v1 as wire;
use scheduler::convert;
use vocabulary::labels;

/// Hosts of the site.
pub(crate) const HOSTS: usize = 2;
/// Names of clusters that there may be.
pub(crate) const CLUSTERS: usize = 2;
/// The role of every member.
pub(crate) const ROLE: &str = "Worker";

/// One host of a name: made again, it is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct HostKey {
    pub(crate) index: u8,
    pub(crate) uid: u8,
    /// Of a former address of it, which number that has; 0: it is the host itself.
    pub(crate) former: u8,
}

impl HostKey {
    pub(crate) fn new(index: u8, uid: u8) -> Self {
        Self {
            index,
            uid,
            former: 0,
        }
    }
}

/// The network of every address.
pub(crate) const NETWORK: &str = "oam";
/// Addresses that there are: one more than hosts.
pub(crate) const ADDRESSES: u8 = 3;

/// A member as the scheduler answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Member {
    pub(crate) host: HostKey,
    /// Number of the claim or release.
    pub(crate) revision: u64,
    pub(crate) releasing: bool,
    /// None also where nobody tells it.
    pub(crate) address: Option<u8>,
}

/// A `BareMetalHost`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Host {
    pub(crate) uid: u8,
    /// The cluster that its labels name.
    pub(crate) label: Option<u8>,
    /// The annotation `sip.airshipit.org/placement-revision`.
    pub(crate) mark: u64,
    /// Its `resourceVersion`.
    pub(crate) version: u64,
    /// The address that its data show.
    pub(crate) address: Option<u8>,
}

/// All hosts, as they are or as somebody saw them.
pub(crate) type Hosts = [Option<Host>; HOSTS];

/// A `SIPCluster`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cluster {
    pub(crate) uid: u8,
    pub(crate) generation: i64,
    pub(crate) want: u32,
    pub(crate) deleting: bool,
    /// `status.placement`.
    pub(crate) status: Option<Status>,
    /// `status.drained`.
    pub(crate) drained: Option<Position>,
}

/// What a `SIPCluster` says of its placement, as it was told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Status {
    pub(crate) epoch: u64,
    pub(crate) revision: u64,
    pub(crate) members: Vec<Member>,
    /// Of a release that the members do not show.
    pub(crate) former_release: Option<u64>,
    /// Whether somebody has forged a position that no ledger can have issued, and above which the scheduler does not raise its own. No agent acts
    /// on such a status. Who forges here takes it away again before the cluster agent hears the next answer, or nothing more would be tried of the
    /// cluster. A forged position up to the limit stays until the scheduler, after a restart, has raised its own above it.
    pub(crate) is_forged: bool,
}

impl Status {
    /// As the API server holds it, as far as load balancers depend on it.
    pub(crate) fn held(&self) -> api::Placement {
        let member = |member: &Member| api::Member {
            namespace: String::new(),
            name: String::new(),
            uid: String::new(),
            role: String::new(),
            ordinal: None,
            domain: None,
            state: if member.releasing {
                api::MemberState::Releasing
            } else {
                api::MemberState::Bound
            },
            revision: member.revision,
            since: None,
            failed_since: None,
            replaces: None,
            release_reason: None,
            machine: None,
        };
        api::Placement {
            epoch: self.epoch,
            revision: self.revision,
            generation: 0,
            members: self.members.iter().map(member).collect(),
            former_release: self.former_release,
            former_since: None,
        }
    }
}

/// The site, as it is or as somebody saw it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Observed {
    pub(crate) hosts: Hosts,
    pub(crate) clusters: [Option<Cluster>; CLUSTERS],
}

/// The API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) now: Observed,
    /// By the cluster's name: what is made for one outlives it for a while.
    pub(crate) balancers: [Balancers; CLUSTERS],
    /// uids that clusters of a name have had.
    uids: [u8; CLUSTERS],
    /// The same of hosts.
    host_uids: [u8; HOSTS],
    /// The last `resourceVersion` that was given out.
    pub(crate) version: u64,
}

impl Cluster {
    fn new(uid: u8, want: u32) -> Self {
        Self {
            uid,
            generation: 1,
            want,
            deleting: false,
            status: None,
            drained: None,
        }
    }

    /// The position in the status, if a ledger can have issued it.
    pub(crate) fn position(&self) -> Option<Position> {
        let status = self.status.as_ref().filter(|status| !status.is_forged)?;
        Some(Position::new(status.epoch, status.revision))
    }
}

impl World {
    /// Free hosts, and clusters that want so many.
    pub(crate) fn new(wants: [u32; CLUSTERS]) -> Self {
        let host = |index: usize| Host {
            uid: 0,
            label: None,
            mark: 0,
            version: 0,
            address: u8::try_from(index).ok(),
        };
        Self {
            now: Observed {
                hosts: std::array::from_fn(|index| Some(host(index))),
                clusters: wants.map(|want| Some(Cluster::new(0, want))),
            },
            balancers: [const { Balancers::new() }; CLUSTERS],
            uids: [0; CLUSTERS],
            host_uids: [0; HOSTS],
            version: 0,
        }
    }

    /// The host, if it is still the one of that uid.
    pub(crate) fn host(&self, key: HostKey) -> Option<Host> {
        self.now.hosts[usize::from(key.index)].filter(|host| host.uid == key.uid && key.former == 0)
    }

    /// A merge patch under the condition of uid and `resourceVersion`; whether it was taken.
    pub(crate) fn patch(&mut self, key: HostKey, seen: u64, change: impl FnOnce(&mut Host)) -> bool {
        let Some(mut host) = self.host(key).filter(|host| host.version == seen) else {
            return false;
        };
        self.version += 1;
        host.version = self.version;
        change(&mut host);
        self.now.hosts[usize::from(key.index)] = Some(host);
        true
    }

    /// Somebody writes a release mark on a host that no scheduler has asked for.
    pub(crate) fn forge(&mut self, index: u8, mark: u64) {
        if let Some(host) = &mut self.now.hosts[usize::from(index)] {
            self.version += 1;
            host.version = self.version;
            host.mark = mark;
        }
    }

    /// Makes a cluster, again if it is there: a restore, a pivot.
    pub(crate) fn make_cluster(&mut self, cluster: u8, want: u32) {
        let index = usize::from(cluster);
        self.uids[index] += 1;
        self.now.clusters[index] = Some(Cluster::new(self.uids[index], want));
    }

    /// Addresses that no host has.
    pub(crate) fn unused(&self) -> impl Iterator<Item = u8> + '_ {
        let is_used = |address: &u8| {
            let mut hosts = self.now.hosts.iter().flatten();
            hosts.any(|host| host.address == Some(*address))
        };
        (0..ADDRESSES).filter(move |address| !is_used(address))
    }

    /// A host's data show another address, or one that was not there, or none.
    pub(crate) fn readdress(&mut self, index: u8, address: Option<u8>) {
        if let Some(host) = &mut self.now.hosts[usize::from(index)] {
            host.address = address;
        }
    }

    /// Deletes a host.
    pub(crate) fn vanish(&mut self, index: u8) {
        self.now.hosts[usize::from(index)] = None;
    }

    /// Makes a host again under the same name; it is deleted first if it is there.
    pub(crate) fn remake(&mut self, index: u8, address: Option<u8>) {
        self.version += 1;
        let uid = &mut self.host_uids[usize::from(index)];
        *uid += 1;
        self.now.hosts[usize::from(index)] = Some(Host {
            uid: *uid,
            label: None,
            mark: 0,
            version: self.version,
            address,
        });
    }
}

/// Namespace and name.
pub(crate) fn cluster_name(cluster: u8) -> ClusterName {
    ClusterName::new("tenant", format!("c{cluster}")).unwrap()
}

/// The cluster of that name.
pub(crate) fn cluster_index(name: &ClusterName) -> u8 {
    name.name()[1..].parse().unwrap()
}

/// uid of a `SIPCluster`.
pub(crate) fn cluster_uid(uid: u8) -> String {
    format!("cluster-{uid}")
}

/// The uid of that name.
pub(crate) fn uid_of(uid: &str) -> u8 {
    uid["cluster-".len()..].parse().unwrap()
}

pub(crate) fn cluster_reference(cluster: u8, uid: u8) -> wire::ClusterRef {
    wire::ClusterRef {
        namespace: "tenant".to_owned(),
        name: cluster_name(cluster).name().to_owned(),
        uid: cluster_uid(uid),
    }
}

pub(crate) fn cluster_id(cluster: u8, uid: u8) -> ClusterId {
    let wire::ClusterRef { namespace, name, uid } = cluster_reference(cluster, uid);
    ClusterId::new(ObjectKey { namespace, name }, uid)
}

pub(crate) fn host_reference(key: HostKey) -> wire::HostRef {
    let HostKey { index, uid, former } = key;
    let former = if former == 0 {
        String::new()
    } else {
        format!("+{former}")
    };
    wire::HostRef {
        namespace: "metal".to_owned(),
        name: format!("h{index}"),
        uid: format!("host-{uid}{former}"),
    }
}

/// The host that a reference names.
pub(crate) fn host_key(id: &placement::HostId) -> HostKey {
    let uid = &id.uid.as_str()["host-".len()..];
    let (uid, former) = uid.split_once('+').unwrap_or((uid, "0"));
    HostKey {
        index: id.name.name()[1..].parse().unwrap(),
        uid: uid.parse().unwrap(),
        former: former.parse().unwrap(),
    }
}

/// An address as it is written.
pub(crate) fn address_text(address: u8) -> String {
    format!("192.0.2.{address}")
}

/// The address that is written so.
pub(crate) fn address(written: IpAddr) -> u8 {
    match written {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(_) => unreachable!("no host has such an address"),
    }
}

pub(crate) fn host_id(key: HostKey) -> placement::HostId {
    convert::host_id(&host_reference(key)).unwrap()
}

/// What the agent reports of a host.
pub(crate) fn reported(index: usize, host: Host) -> wire::Host {
    let labels = host.label.map(|cluster| {
        let cluster = cluster_name(cluster);
        [
            (labels::CLUSTER_NAMESPACE, cluster.namespace().to_string()),
            (labels::CLUSTER_NAME, cluster.name().to_owned()),
            (labels::NODE_TYPE, ROLE.to_owned()),
        ]
    });
    wire::Host {
        r#ref: Some(host_reference(HostKey::new(
            u8::try_from(index).unwrap(),
            host.uid,
        ))),
        addresses: host
            .address
            .map(|address| (NETWORK.to_owned(), address_text(address)))
            .into_iter()
            .collect(),
        labels: labels
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.to_owned(), value))
            .collect::<BTreeMap<_, _>>(),
        provisioning_state: wire::ProvisioningState::Available.into(),
        operational_status: wire::OperationalStatus::Ok.into(),
        release_mark: host.mark,
        ..wire::Host::default()
    }
}

/// What the agent reports of a cluster.
pub(crate) fn reported_cluster(index: usize, cluster: &Cluster) -> wire::ObservedCluster {
    let Status {
        epoch,
        revision,
        members,
        former_release: _,
        is_forged: _,
    } = cluster.status.clone().unwrap_or_default();
    let member = |member: Member| wire::ObservedMember {
        host: Some(host_reference(member.host)),
        role: ROLE.to_owned(),
        state: if member.releasing {
            wire::MemberState::Releasing.into()
        } else {
            wire::MemberState::Claimed.into()
        },
        revision: member.revision,
        ..wire::ObservedMember::default()
    };
    wire::ObservedCluster {
        r#ref: Some(cluster_reference(u8::try_from(index).unwrap(), cluster.uid)),
        generation: cluster.generation,
        created: None,
        deleting: cluster.deleting,
        members: members.into_iter().map(member).collect(),
        revision: cluster
            .status
            .is_some()
            .then_some(wire::Revision { epoch, revision }),
        topology_keys: BTreeMap::new(),
    }
}
