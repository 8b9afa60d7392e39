//! The Nodes of tenants' clusters, where a `SIPCluster` names a kubeconfig: which members load balancers are not to prefer, and how far the
//! Nodes of hosts that leave are drained.
//!
//! A pass over a cluster states what is [`Wanted`], and reads the [`Report`] on it; [`run`] polls the API servers of tenants beside the
//! passes. Nothing that a tenant's server does or leaves undone delays a pass, or a poll of another namespace by more than its share.
//!
//! | module | holds |
//! |---|---|
//! | `node` | what of a Node is read |
//! | `matching` | which Node runs on which host; pure |
//! | `preference` | which members are not preferred; pure |
//! | `eviction` | what happens to the pods of a Node that is drained; pure |
//! | `page` | what of a list is read |
//! | `rotation` | which of many Nodes and pods a poll takes; pure |
//! | `server` | calls to a tenant's API server |
//! | `poll` | one poll |
//! | [`run`] | when each cluster is polled |

mod eviction;
mod matching;
pub mod metrics;
mod node;
mod page;
mod poll;
mod preference;
mod rotation;
pub mod run;
mod server;

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use api::NotPreferred;
use k8s_openapi::api::core::v1::ObjectReference;
use kit::placement::{HostId, ObjectKey};
use tokio::sync::Notify;

use self::{poll::Found, preference::Preference};

/// Pause between polls of a cluster.
const PAUSE: Duration = Duration::from_secs(10);
/// The same where something else is wanted of it.
const SOON: Duration = Duration::from_secs(1);
/// A poll is followed by a pause of so many times its own length: one cluster never takes more than a tenth of a place.
const REST: u32 = 9;

/// What is wanted of the Nodes of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// The `SIPCluster`, for Events.
    pub object: ObjectReference,
    /// Name of the Cluster API cluster that it serves: the kubeconfig must not be that of another one.
    pub cluster_api: String,
    /// The Secret with the kubeconfig.
    pub secret: String,
    /// Those whose Nodes count.
    pub members: Vec<WantedMember>,
    /// Which members were not preferred when the status was written.
    pub known: Vec<NotPreferred>,
}

/// What is wanted of the Node of a member.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedMember {
    /// Which host it runs on.
    pub host: HostId,
    /// Role of the member.
    pub role: String,
    /// Addresses of the host.
    pub addresses: BTreeSet<IpAddr>,
    /// Whether load balancers have it.
    pub is_balanced: bool,
    /// What is done to the Node.
    pub action: Action,
}

/// What is done to a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It takes pods, unless somebody else has cordoned it.
    Keep,
    /// Nothing.
    Leave,
    /// It is cordoned, and its pods are evicted.
    Drain,
    /// It is deleted.
    Delete,
}

impl Action {
    fn drains(self) -> bool {
        match self {
            Self::Drain | Self::Delete => true,
            Self::Keep | Self::Leave => false,
        }
    }
}

/// How far the Node of a host that leaves is drained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Drain {
    /// The host has no Node, or none any more.
    NoNode,
    /// Cluster API has a Machine for it.
    ClusterApi,
    /// Pods are left.
    Draining {
        /// Name of the Node.
        node: String,
        /// What is left, for people.
        left: String,
    },
    /// No pod is left that would have to go.
    Drained {
        /// Name of the Node.
        node: String,
    },
    /// The tenant's API server refuses it.
    Refused {
        /// Name of the Node.
        node: String,
        /// Its words.
        why: String,
    },
}

/// Why the Nodes of a cluster are not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    /// Whether the next poll may be answered though nobody changes anything.
    pub passes: bool,
    /// For people.
    pub message: String,
}

/// What polls have shown of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Whether a poll has ended.
    pub is_polled: bool,
    /// What was wrong with the last poll.
    pub problem: Option<Problem>,
    /// The same where it lasts, for the status; in the words of its beginning.
    pub lasting_problem: Option<String>,
    /// Members that load balancers are not to prefer.
    pub not_preferred: Vec<NotPreferred>,
    /// By the uid of the host, of those whose Nodes the last poll was to drain or delete.
    pub drains: BTreeMap<String, Drain>,
}

/// A poll that begins.
#[derive(Debug, PartialEq)]
struct Begun {
    cluster: ObjectKey,
    wanted: Wanted,
    /// How many there were before.
    turn: usize,
}

/// What is wanted, and what was found. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct TenantNodes {
    clusters: Arc<Mutex<BTreeMap<ObjectKey, Cluster>>>,
    changed: Arc<Notify>,
}

#[derive(Debug)]
struct Cluster {
    wanted: Wanted,
    preference: Preference,
    report: Report,
    is_polling: bool,
    polls: usize,
    /// When the last poll has ended, and how long it took.
    last: Option<(Instant, Duration)>,
    /// Something else is wanted than in the last poll.
    is_changed: bool,
    /// How many polls in a row have failed by what does not pass.
    refusals: usize,
}

impl Cluster {
    fn new(wanted: Wanted) -> Self {
        Self {
            preference: Preference::resumed(&wanted.known),
            report: Report::default(),
            is_polling: false,
            polls: 0,
            last: None,
            is_changed: false,
            refusals: 0,
            wanted,
        }
    }

    /// A problem of the last poll. A server that starts refuses for a moment what it allows: only what is so twice does not pass.
    fn lasting(&mut self, problem: Problem) -> Problem {
        self.refusals = if problem.passes {
            0
        } else {
            self.refusals.saturating_add(1)
        };
        Problem {
            passes: self.refusals < 2,
            ..problem
        }
    }

    /// When it is polled next.
    fn due(&self, now: Instant) -> Instant {
        let Some((ended, took)) = self.last else {
            return now;
        };
        let pause = if self.is_changed { SOON } else { PAUSE };
        ended + pause.max(took * REST)
    }
}

impl TenantNodes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Cluster>> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This is wanted of the Nodes of a cluster; `None`: nothing is known of them, and they are not polled.
    pub fn want(&self, cluster: &ObjectKey, wanted: Option<Wanted>) {
        let mut clusters = self.lock();
        let Some(wanted) = wanted else {
            clusters.remove(cluster);
            return;
        };
        match clusters.get_mut(cluster) {
            Some(known) if known.wanted.object.uid == wanted.object.uid => {
                let is_same = known.wanted.secret == wanted.secret && known.wanted.members == wanted.members;
                known.wanted = wanted;
                if is_same {
                    return;
                }
                known.is_changed = true;
            }
            Some(_) | None => {
                clusters.insert(cluster.clone(), Cluster::new(wanted));
            }
        }
        drop(clusters);
        self.changed.notify_one();
    }

    /// What polls have shown of a cluster.
    #[must_use]
    pub fn report(&self, cluster: &ObjectKey) -> Report {
        let clusters = self.lock();
        let known = clusters.get(cluster);
        known.map(|known| known.report.clone()).unwrap_or_default()
    }

    /// What is wanted now of the Node of a host, for the `SIPCluster` with this uid.
    fn action(&self, (cluster, uid): (&ObjectKey, Option<&str>), host: &str) -> Option<Action> {
        let clusters = self.lock();
        let known = clusters.get(cluster)?;
        let mut members = known.wanted.members.iter();
        let member = members.find(|member| member.host.uid() == host)?;
        (known.wanted.object.uid.as_deref() == uid).then_some(member.action)
    }

    /// The clusters to poll now, with what is wanted of each, and when the next one is due. At most `free` of them, and of each namespace
    /// no more than `of_namespace` at once.
    fn begin(&self, now: Instant, free: usize, of_namespace: usize) -> (Vec<Begun>, Option<Instant>) {
        let mut clusters = self.lock();
        let mut running: BTreeMap<String, usize> = BTreeMap::new();
        for (key, _) in clusters.iter().filter(|(_, cluster)| cluster.is_polling) {
            *running.entry(key.namespace.clone()).or_default() += 1;
        }
        // Those that have waited longest come first.
        let mut waiting: Vec<(Instant, ObjectKey)> = clusters
            .iter()
            .filter(|(_, cluster)| !cluster.is_polling)
            .map(|(key, cluster)| (cluster.due(now), key.clone()))
            .collect();
        waiting.sort();
        let mut begun = Vec::new();
        let mut next = None;
        for (due, key) in waiting {
            if due > now {
                next = Some(due);
                break;
            }
            let running = running.entry(key.namespace.clone()).or_default();
            // The end of a poll brings about the next call.
            if begun.len() == free || *running == of_namespace {
                continue;
            }
            if let Some(cluster) = clusters.get_mut(&key) {
                *running += 1;
                cluster.is_polling = true;
                cluster.is_changed = false;
                begun.push(Begun {
                    cluster: key,
                    wanted: cluster.wanted.clone(),
                    turn: cluster.polls,
                });
                cluster.polls = cluster.polls.wrapping_add(1);
            }
        }
        (begun, next)
    }

    /// A poll that began with this has ended. Returns whether the report on the cluster has changed.
    fn end(
        &self,
        cluster: &ObjectKey,
        wanted: &Wanted,
        (began, now): (Instant, Instant),
        found: Result<Found, Problem>,
    ) -> bool {
        let mut clusters = self.lock();
        let Some(known) = clusters.get_mut(cluster) else {
            return false;
        };
        if known.wanted.object.uid != wanted.object.uid {
            return false;
        }
        known.is_polling = false;
        known.last = Some((now, now.saturating_duration_since(began)));
        let found = found.map_err(|problem| known.lasting(problem));
        if found.is_ok() {
            known.refusals = 0;
        }
        let next = next_report(&known.report, &mut known.preference, wanted, now, found);
        let is_changed = known.report != next;
        known.report = next;
        is_changed
    }
}

/// The report after a poll.
fn next_report(
    before: &Report,
    preference: &mut Preference,
    wanted: &Wanted,
    now: Instant,
    found: Result<Found, Problem>,
) -> Report {
    match found {
        Ok(Found { nodes, mut drains }) => {
            // Those to which the poll did not come are as they were.
            for member in wanted.members.iter().filter(|member| member.action.drains()) {
                let uid = member.host.uid();
                if let (false, Some(drain)) = (drains.contains_key(uid), before.drains.get(uid)) {
                    drains.insert(uid.to_owned(), drain.clone());
                }
            }
            let nodes = matching::nodes_by_host(wanted, &nodes);
            let listed = preference.answered(now, wanted, &nodes);
            Report {
                is_polled: true,
                problem: None,
                lasting_problem: listed.too_many.map(|count| {
                    format!(
                        "the Nodes of {count} members are not ready, more than {}: load balancers prefer no member",
                        preference::NAMED
                    )
                }),
                not_preferred: listed.members,
                drains,
            }
        }
        Err(problem) => {
            let listed = preference.failed(now);
            let lasts = listed.is_some() || !problem.passes;
            let same = before
                .problem
                .as_ref()
                .is_some_and(|before| before.passes == problem.passes);
            let words = before.lasting_problem.clone().filter(|_| same);
            Report {
                is_polled: true,
                lasting_problem: lasts.then(|| words.unwrap_or_else(|| problem.message.clone())),
                not_preferred: listed.map_or_else(|| before.not_preferred.clone(), |listed| listed.members),
                drains: BTreeMap::new(),
                problem: Some(problem),
            }
        }
    }
}
