//! The site's API server, and what people wish.

use std::{collections::BTreeMap, time::Duration};

use placement::MemberState;
use proto::inventory::v1 as wire;
use scheduler::ledger::Contents;
use vocabulary::labels;

pub(crate) const SITE: &str = "a";
pub(crate) const ROLE: &str = "Worker";
const NAMESPACE: &str = "tenant";
const HOSTS: usize = 5;
const CLUSTERS: usize = 3;
/// How long a process that has lost its election may not know it.
const UNAWARE: Duration = Duration::from_millis(600);

/// A `BareMetalHost`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Host {
    pub(crate) label: Option<String>,
    pub(crate) mark: u64,
    pub(crate) version: u64,
}

/// A `SIPCluster`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cluster {
    pub(crate) uid: String,
    pub(crate) generation: i64,
    pub(crate) want: u32,
    pub(crate) deleting: bool,
    /// Where the status stands.
    pub(crate) status: Option<wire::Revision>,
}

/// Everything on the API server.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) hosts: BTreeMap<String, Host>,
    pub(crate) clusters: BTreeMap<String, Cluster>,
    version: u64,
    made: u64,
    /// Who holds the Lease, `leaseTransitions`, and since when.
    leader: (usize, i64, Duration),
}

impl World {
    pub(crate) fn new() -> Self {
        let hosts = (0..HOSTS).map(|number| (format!("h{number}"), Host::default()));
        let mut world = Self {
            hosts: hosts.collect(),
            clusters: BTreeMap::new(),
            version: 0,
            made: 0,
            leader: (0, 1, Duration::ZERO),
        };
        for number in 0..CLUSTERS {
            world.make(number, 2);
        }
        world
    }

    /// Makes a cluster; if it is there already, it is another one now: a restore, a pivot.
    pub(crate) fn make(&mut self, number: usize, want: u32) {
        self.made += 1;
        let cluster = Cluster {
            uid: format!("uid-{}", self.made),
            generation: 1,
            want,
            deleting: false,
            status: None,
        };
        self.clusters.insert(name(number), cluster);
    }

    pub(crate) fn scale(&mut self, number: usize, want: u32) {
        if let Some(cluster) = self.clusters.get_mut(&name(number)) {
            cluster.generation += 1;
            cluster.want = want;
        }
    }

    pub(crate) fn delete(&mut self, number: usize) {
        if let Some(cluster) = self.clusters.get_mut(&name(number)) {
            cluster.deleting = true;
        }
    }

    /// The other process is elected.
    pub(crate) fn elect(&mut self, now: Duration) {
        let (leader, transitions, _) = self.leader;
        self.leader = (1 - leader, transitions + 1, now);
    }

    /// `leaseTransitions` of the election that a process believes to have won.
    pub(crate) fn elected(&self, number: usize, now: Duration) -> Option<i64> {
        let (leader, transitions, since) = self.leader;
        if leader == number {
            Some(transitions)
        } else if transitions > 1 && now < since + UNAWARE {
            Some(transitions - 1)
        } else {
            None
        }
    }

    /// A merge patch under the condition of `resourceVersion`; whether it was taken.
    pub(crate) fn patch(&mut self, host: &str, seen: u64, change: impl FnOnce(&mut Host)) -> bool {
        let Some(host) = self.hosts.get_mut(host).filter(|host| host.version == seen) else {
            return false;
        };
        self.version += 1;
        host.version = self.version;
        change(host);
        true
    }

    /// Highest position in any status.
    pub(crate) fn highest(&self) -> Option<wire::Revision> {
        let seen = self.clusters.values().filter_map(|cluster| cluster.status);
        seen.max_by_key(|seen| (seen.epoch, seen.revision))
    }

    /// A host with the labels of a cluster that does not hold it: it was freed too early, or labelled too late.
    pub(crate) fn mislabelled(&self, ledger: &Contents) -> Option<String> {
        let labelled = self
            .hosts
            .iter()
            .filter_map(|(name, host)| Some((name, host.label.as_ref()?)));
        let mut wrong = labelled.filter(|(name, label)| {
            let record = ledger
                .records
                .iter()
                .find(|(key, _)| key.cluster.name() == *label);
            !record.is_some_and(|(_, record)| record.members.keys().any(|id| id.name.name() == *name))
        });
        wrong
            .next()
            .map(|(name, label)| format!("{name} has the labels of {label}, which does not hold it"))
    }

    /// What has not settled yet.
    pub(crate) fn unsettled(&self, ledger: &Contents) -> Option<String> {
        let mut holders = BTreeMap::new();
        for (key, record) in &ledger.records {
            let name = key.cluster.name();
            let Some(cluster) = self.clusters.get(name) else {
                // A late call has declared it again after it was gone: held, which is safe, and reported.
                holders.extend(record.members.keys().map(|id| (id.name.name().to_owned(), None)));
                continue;
            };
            if cluster.uid != record.uid {
                return Some(format!("{name} is not declared"));
            }
            for (id, member) in &record.members {
                if member.state == MemberState::Releasing {
                    return Some(format!("{} is releasing", id.name));
                }
                holders.insert(id.name.name().to_owned(), Some(name.to_owned()));
            }
        }
        if let Some(name) = self.clusters.iter().find(|(_, cluster)| cluster.deleting) {
            return Some(format!("{} is being deleted", name.0));
        }
        for (name, host) in &self.hosts {
            match holders.get(name) {
                Some(None) => {}
                Some(holder) if *holder == host.label => {}
                None if host.label.is_none() => {}
                holder => {
                    return Some(format!(
                        "{name} is labelled {:?} and held by {holder:?}",
                        host.label
                    ));
                }
            }
        }
        let free = self.hosts.len() - holders.len();
        for (name, cluster) in &self.clusters {
            let held = holders
                .values()
                .filter(|holder| holder.as_ref() == Some(name))
                .count();
            let want = usize::try_from(cluster.want).unwrap_or(usize::MAX);
            // All or nothing: who wants more than there is waits though something is free.
            if held > want || held < want && held + free >= want {
                return Some(format!("{name} has {held} of {want}, and {free} are free"));
            }
        }
        None
    }
}

pub(crate) fn name(number: usize) -> String {
    format!("c{}", number % CLUSTERS)
}

pub(crate) fn cluster_reference(name: &str, cluster: &Cluster) -> wire::ClusterRef {
    wire::ClusterRef {
        namespace: NAMESPACE.to_owned(),
        name: name.to_owned(),
        uid: cluster.uid.clone(),
    }
}

/// What is reported of a host.
pub(crate) fn reported(name: &str, host: &Host) -> wire::Host {
    let labels = host.label.iter().flat_map(|cluster| {
        [
            (labels::CLUSTER_NAMESPACE, NAMESPACE),
            (labels::CLUSTER_NAME, cluster),
            (labels::NODE_TYPE, ROLE),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
    });
    wire::Host {
        r#ref: Some(wire::HostRef {
            namespace: "metal".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-{name}"),
        }),
        labels: labels.collect(),
        provisioning_state: wire::ProvisioningState::Available.into(),
        operational_status: wire::OperationalStatus::Ok.into(),
        release_mark: host.mark,
        ..wire::Host::default()
    }
}

/// What is reported of a cluster.
pub(crate) fn reported_cluster(name: &str, cluster: &Cluster) -> wire::ObservedCluster {
    wire::ObservedCluster {
        r#ref: Some(cluster_reference(name, cluster)),
        generation: cluster.generation,
        deleting: cluster.deleting,
        ..wire::ObservedCluster::default()
    }
}
