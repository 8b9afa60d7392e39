//! Conditions of a SIPCluster: which types there are, who writes each, how its status is read, and its reasons. Users wait for
//! types and alert on reasons, so both keep their names; `docs/conditions.md` is generated from here.

mod meanings;
mod page;
mod reason;
#[cfg(test)]
mod tests;

use std::fmt;

pub use page::page;
pub use reason::{Meaning, Reason, Status, auth, jump_host, load_balancer, ready};

/// A type of condition. Each has one owner (field manager).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum ConditionType {
    /// See [`READY`].
    Ready,
    /// See [`SCHEDULED`].
    Scheduled,
    /// See [`HOSTS_LABELED`].
    HostsLabeled,
    /// See [`LOAD_BALANCER_READY`].
    LoadBalancerReady,
    /// See [`JUMP_HOST_READY`].
    JumpHostReady,
    /// See [`AUTH_READY`].
    AuthReady,
    /// See [`CLUSTER_API_SYNCED`].
    ClusterAPISynced,
    /// See [`SERVICES_SKIPPED`].
    ServicesSkipped,
    /// See [`STALLED`].
    Stalled,
}

/// Every role has the hosts that the spec sets.
pub const SCHEDULED: ConditionType = ConditionType::Scheduled;
/// Every member has the cluster's labels.
pub const HOSTS_LABELED: ConditionType = ConditionType::HostsLabeled;
/// The cluster is as specified.
pub const READY: ConditionType = ConditionType::Ready;
/// Sections of the spec whose agent this site does not have.
pub const SERVICES_SKIPPED: ConditionType = ConditionType::ServicesSkipped;
/// Nothing changes until a person acts.
pub const STALLED: ConditionType = ConditionType::Stalled;
/// Load balancers are as specified.
pub const LOAD_BALANCER_READY: ConditionType = ConditionType::LoadBalancerReady;
/// Jump hosts are as specified.
pub const JUMP_HOST_READY: ConditionType = ConditionType::JumpHostReady;
/// Identity providers are as specified.
pub const AUTH_READY: ConditionType = ConditionType::AuthReady;

/// Reason of a section's condition, such as [`LOAD_BALANCER_READY`], when the objects that were made for the cluster are removed.
pub const REMOVED: Reason = Reason::Removed;
/// Reason of a section's condition when its agent has no rights in the namespace of the cluster.
pub const NAMESPACE_NOT_GRANTED: Reason = Reason::NamespaceNotGranted;

/// The objects of Cluster API that the spec names follow it.
pub const CLUSTER_API_SYNCED: ConditionType = ConditionType::ClusterAPISynced;

/// How the status of a condition is read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Polarity {
    /// `True` is the normal status; `False` is work going on or a fault.
    Positive,
    /// `True` is what users should know; the condition is absent otherwise.
    Negative,
}

/// The program that writes a condition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Owner {
    /// The cluster agent.
    Cluster,
    /// The load-balancer agent.
    LoadBalancer,
    /// The jump-host agent.
    JumpHost,
    /// The Dex agent.
    Auth,
}

impl ConditionType {
    /// Every type, in the order of the reference page.
    pub const ALL: [Self; 9] = [
        Self::Ready,
        Self::Scheduled,
        Self::HostsLabeled,
        Self::LoadBalancerReady,
        Self::JumpHostReady,
        Self::AuthReady,
        Self::ClusterAPISynced,
        Self::ServicesSkipped,
        Self::Stalled,
    ];

    /// `type` as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Scheduled => "Scheduled",
            Self::HostsLabeled => "HostsLabeled",
            Self::LoadBalancerReady => "LoadBalancerReady",
            Self::JumpHostReady => "JumpHostReady",
            Self::AuthReady => "AuthReady",
            Self::ClusterAPISynced => "ClusterAPISynced",
            Self::ServicesSkipped => "ServicesSkipped",
            Self::Stalled => "Stalled",
        }
    }

    /// Who writes it.
    #[must_use]
    pub fn owner(self) -> Owner {
        match self {
            Self::Ready
            | Self::Scheduled
            | Self::HostsLabeled
            | Self::ClusterAPISynced
            | Self::ServicesSkipped
            | Self::Stalled => Owner::Cluster,
            Self::LoadBalancerReady => Owner::LoadBalancer,
            Self::JumpHostReady => Owner::JumpHost,
            Self::AuthReady => Owner::Auth,
        }
    }

    /// How its status is read.
    #[must_use]
    pub fn polarity(self) -> Polarity {
        match self {
            Self::Ready
            | Self::Scheduled
            | Self::HostsLabeled
            | Self::LoadBalancerReady
            | Self::JumpHostReady
            | Self::AuthReady
            | Self::ClusterAPISynced => Polarity::Positive,
            Self::ServicesSkipped | Self::Stalled => Polarity::Negative,
        }
    }

    /// What it means that the status is `True`, as a sentence.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Ready => {
                "The cluster is as specified: it has its hosts, they have its labels, and its services are ready."
            }
            Self::Scheduled => "Every role has the number of hosts that the spec sets.",
            Self::HostsLabeled => {
                "Every member has the cluster's labels, and no labelled host is being released."
            }
            Self::LoadBalancerReady => "Load balancers are as specified.",
            Self::JumpHostReady => "Jump hosts are as specified.",
            Self::AuthReady => "Identity providers are as specified.",
            Self::ClusterAPISynced => {
                "The objects that `clusterAPI` of the spec names have the replicas that `count` sets. Absent where the spec names none. It does \
                 not affect `Ready`."
            }
            Self::ServicesSkipped => {
                "The spec has sections whose agent this site does not have; the message names them. They do not affect `Ready`."
            }
            Self::Stalled => {
                "A person must act. The reason is that of the condition that the message names; the tables above mark such \
                 reasons *stalls*. While this condition exists, kstatus, which Flux uses, reports the cluster as failed."
            }
        }
    }
}

impl fmt::Display for ConditionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cluster => "the cluster agent",
            Self::LoadBalancer => "the load-balancer agent",
            Self::JumpHost => "the jump-host agent",
            Self::Auth => "the Dex agent",
        })
    }
}
