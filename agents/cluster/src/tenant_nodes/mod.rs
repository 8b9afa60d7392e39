//! The Nodes of tenants' clusters, where a `SIPCluster` names a kubeconfig: which members load balancers should not prefer, and how far the Nodes
//! of hosts that leave are drained.
//!
//! A pass over a cluster states what it wants ([`Wanted`]) and reads what polls have found ([`Report`]); [`run`] polls the API servers of tenants
//! independently of passes. A slow or failing server of a tenant delays no pass, and polls of other namespaces only by its namespace's share.
//!
//! | module | holds |
//! |---|---|
//! | `node` | what of a Node is read |
//! | `matching` | which Node runs on which host; pure |
//! | `preference` | which members are not preferred; pure |
//! | `lasting` | which problem the status states; pure |
//! | `deletions` | for how long hosts wait for the deletion of their Nodes; pure |
//! | `cluster` | what is known of one cluster; pure |
//! | `clusters` | which clusters are polled when; pure |
//! | `eviction` | what happens to the pods of a Node that is drained; pure |
//! | `page` | what of a list is read |
//! | `rotation` | which of many Nodes and pods a poll takes; pure |
//! | `server` | calls to a tenant's API server |
//! | `poll` | one poll |
//! | [`run`] | when each cluster is polled |

mod cluster;
mod clusters;
mod deletions;
mod eviction;
mod lasting;
mod matching;
pub mod metrics;
mod node;
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
use kit::{
    placement::{HostId, ObjectKey},
    tenant::secret::User,
};
use tokio::sync::Notify;

pub use self::deletions::WAIT_TIMEOUT as DELETION_TIMEOUT;
use self::{
    clusters::{Begun, Clusters},
    poll::Observation,
};

/// What is wanted of the Nodes of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// The `SIPCluster`, for Events.
    pub object: ObjectReference,
    /// The cluster that uses the kubeconfig, which must not be another cluster's.
    pub user: User,
    /// The Secret with the kubeconfig.
    pub secret: String,
    /// The members whose Nodes the poll reads.
    pub members: Vec<WantedMember>,
    /// `status.tenantNodes` as the pass has observed it.
    pub known: api::TenantNodes,
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
    /// Uncordon the Node, unless another writer has cordoned it.
    Keep,
    /// Leave the Node as it is.
    Leave,
    /// Cordon the Node, and evict its pods.
    Drain,
    /// Delete the Node.
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
    /// The host has no Node, or no longer has one.
    NoNode,
    /// Cluster API has a Machine for it.
    ClusterApi,
    /// Pods are left.
    Draining {
        /// Name of the Node.
        node: String,
        /// What is left, for messages.
        left: String,
    },
    /// No pod is left that would have to be evicted.
    Drained {
        /// Name of the Node.
        node: String,
    },
    /// Its deletion was requested, and it may still exist.
    Deleting {
        /// Name of the Node.
        node: String,
    },
    /// The tenant's API server refuses the drain.
    Refused {
        /// Name of the Node.
        node: String,
        /// The server's message.
        why: String,
    },
}

/// Why the Nodes of a cluster are not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    /// Whether a later poll may succeed without a change by a user.
    pub passes: bool,
    /// For messages.
    pub message: String,
}

/// What polls have found of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Whether a poll has ended.
    pub is_polled: bool,
    /// The problem of the last poll.
    pub problem: Option<Problem>,
    /// The problem that the status states, see `lasting`.
    pub lasting_problem: Option<String>,
    /// Members that load balancers are not to prefer.
    pub not_preferred: Vec<NotPreferred>,
    /// By the uid of the host, of those whose Nodes the last poll was to drain or delete.
    pub drains: BTreeMap<String, Drain>,
    /// By the uid of the host, where the deletion of its Node is wanted: for how long the host still waits for it.
    pub deletions: BTreeMap<String, Duration>,
}

/// Hands what passes want to the polls, and what polls have found to the passes. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct TenantNodes {
    clusters: Arc<Mutex<Clusters>>,
    changed: Arc<Notify>,
}

impl TenantNodes {
    fn lock(&self) -> MutexGuard<'_, Clusters> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what a pass wants of the Nodes of a cluster; `None`: they are not polled, and what is known of them is forgotten.
    pub fn set_wanted(&self, cluster: &ObjectKey, wanted: Option<Wanted>, now: Instant) {
        let Some(wanted) = wanted else {
            self.lock().forget(cluster);
            return;
        };
        if self.lock().set_wanted(cluster, wanted, now) {
            self.changed.notify_one();
        }
    }

    /// What is known of a cluster now.
    #[must_use]
    pub fn report(&self, cluster: &ObjectKey, now: Instant) -> Report {
        self.lock().report(cluster, now)
    }

    /// See [`Clusters::action`].
    fn action(&self, cluster: &ObjectKey, began: &Wanted, host: &str) -> Option<Action> {
        self.lock().action(cluster, began, host)
    }

    /// See [`Clusters::begin`].
    fn begin(&self, now: Instant, free: usize, of_namespace: usize) -> (Vec<Begun>, Option<Instant>) {
        self.lock().begin(now, free, of_namespace)
    }

    /// See [`Clusters::end`].
    fn end(&self, begun: &Begun, times: (Instant, Instant), found: Result<Observation, Problem>) -> bool {
        self.lock().end(begun, times, found)
    }

    /// See [`Clusters::is_gone`].
    fn is_gone(&self, begun: &Begun) {
        self.lock().is_gone(begun);
    }
}
