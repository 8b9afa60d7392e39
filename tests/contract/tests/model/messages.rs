//! What agents and the scheduler say to each other.

use placement::{LabelKey, MemberState};
use proto::inventory::v1 as wire;
use scheduler::{observed, site::Site};

use crate::world::{self, CLUSTERS, Cluster, HOSTS, Host, HostKey, Member, Observed, Status};

/// What a cluster's agent is told.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Placement {
    pub(crate) epoch: u64,
    pub(crate) revision: u64,
    pub(crate) members: Vec<Member>,
}

/// A call of an agent's.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Request {
    pub(crate) agent: u8,
    pub(crate) cluster: u8,
    pub(crate) uid: u8,
    pub(crate) ask: Ask,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Ask {
    Apply { generation: i64, want: u32 },
    Release,
    Confirm { host: HostKey, revision: u64 },
}

/// The answer to a call; `None`: nothing is held.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Answer {
    pub(crate) request: Request,
    pub(crate) placement: Option<Placement>,
}

/// A message on a stream of reports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Piece {
    /// With the position that the reporter says it has seen.
    Hello(Option<(u64, u64)>),
    Snapshot(Observed),
    Delta {
        before: Box<Observed>,
        seen: Observed,
    },
}

/// What is reported by who saw `before` already.
pub(crate) fn changes(before: Option<&Observed>, seen: &Observed) -> wire::HostChanges {
    let mut changes = wire::HostChanges::default();
    for (index, host) in seen.hosts.iter().enumerate() {
        let known = before.and_then(|before| before.hosts[index]);
        let deleted = known.filter(|known| host.is_none_or(|host| host.uid != known.uid));
        changes.deleted_hosts.extend(deleted.map(|host| {
            let index = u8::try_from(index).unwrap();
            world::host_reference(HostKey::new(index, host.uid))
        }));
        let changed = host.filter(|_| *host != known);
        changes
            .hosts
            .extend(changed.map(|host| world::reported(index, host)));
    }
    for (index, cluster) in seen.clusters.iter().enumerate() {
        let known = before.and_then(|before| before.clusters[index].as_ref());
        let uid = cluster.as_ref().map(|cluster| cluster.uid);
        let deleted = known.filter(|known| Some(known.uid) != uid);
        changes.deleted_clusters.extend(
            deleted.map(|cluster| world::cluster_reference(u8::try_from(index).unwrap(), cluster.uid)),
        );
        let changed = cluster.as_ref().filter(|cluster| Some(*cluster) != known);
        changes
            .clusters
            .extend(changed.map(|cluster| world::reported_cluster(index, cluster)));
    }
    changes
}

const NOTHING: Observed = Observed {
    hosts: [None; HOSTS],
    clusters: [const { None }; CLUSTERS],
};

/// What the site has been told, as data. Versions are no part of what is reported.
pub(crate) fn observed(site: &Site) -> Observed {
    let mut observed = NOTHING;
    for host in site.hosts().values() {
        let HostKey { index, uid, .. } = world::host_key(host.id());
        let name = LabelKey::new(vocabulary::labels::CLUSTER_NAME).unwrap();
        let label = host.facts().labels.get(&name);
        observed.hosts[usize::from(index)] = Some(Host {
            uid,
            label: label.map(|name| name.as_str()[1..].parse().unwrap()),
            mark: host.release_mark(),
            version: 0,
            address: host
                .details()
                .addresses
                .values()
                .next()
                .copied()
                .map(world::address),
        });
    }
    for (name, cluster) in site.clusters() {
        let member = |member: &observed::Member| Member {
            host: world::host_key(&member.host),
            revision: member.revision,
            releasing: member.state == Some(MemberState::Releasing),
            address: None,
        };
        observed.clusters[usize::from(world::cluster_index(name))] = Some(Cluster {
            uid: world::uid_of(&cluster.id().uid),
            generation: cluster.generation(),
            want: 0,
            deleting: cluster.is_deleting(),
            status: cluster.position().map(|at| Status {
                epoch: at.epoch(),
                revision: at.revision(),
                members: cluster.members().iter().map(member).collect(),
                former_release: None,
                is_forged: false,
            }),
            // Nobody reports it.
            drained: None,
        });
    }
    observed
}
