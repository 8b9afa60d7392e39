//! What one pass over a cluster is planned from: the object, what the stores have, and the scheduler's answer. Nothing in it changes
//! during the pass.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use api::{Cluster, ClusterApiCluster, SIPCluster, Scaled};
use k8s_openapi::jiff::Timestamp;
use kit::{
    config::Section,
    placement::{Member, ObjectKey, Placement},
};

use tonic::Status;

use super::{
    host_users::{Remains, User},
    machine::Machine,
    scaling::{self, Lookup},
};
use crate::{inventory::ObservedHost, tenant_nodes::Report};

/// What is observed of one `SIPCluster`.
#[derive(Debug)]
pub(super) struct Observation<'a> {
    /// As the watch shows it.
    pub(super) object: &'a SIPCluster,
    /// Sections that no agent of the site serves.
    pub(super) not_installed: &'a BTreeSet<Section>,
    /// When it was observed.
    pub(super) now: Timestamp,
    pub(super) state: State,
}

/// Where a `SIPCluster` is in its life.
#[derive(Debug)]
pub(super) enum State {
    /// Its spec cannot be acted on; for messages.
    Invalid(String),
    /// The scheduler has no room for what it declares: the site is full.
    SiteFull(Box<Status>),
    /// It may not hold hosts before it has the finalizer.
    WithoutFinalizer,
    /// The scheduler has answered its declaration.
    Declared(Box<Cluster>, Holding),
    /// It is being deleted, and holds hosts.
    Releasing(Holding, Evidence),
    /// It is being deleted, and holds nothing.
    Released,
}

/// How it is known that no pod of a load balancer routes to a host that leaves a cluster that is being deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    /// The load-balancer agent reports it in the status.
    Reported,
    /// That agent has no rights in the namespace, so the API server was asked: what may still route to them, for messages.
    Listed(Option<String>),
}

/// What a cluster holds, and what is observed of that.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Holding {
    /// The scheduler's answer.
    pub(super) placement: Placement,
    /// The Cluster API cluster that the `SIPCluster` names by its annotation.
    pub(super) cluster_api: Option<ClusterApiCluster>,
    /// The members' hosts, as far as there are any, at the versions that the watch shows.
    pub(super) hosts: BTreeMap<ObjectKey, ObservedHost>,
    /// Those of them that this process has written since.
    pub(super) pending: BTreeSet<ObjectKey>,
    /// What is known of Cluster API's Machines on hosts that leave and are in use, on those whose Machine the status names, and of those whose hosts
    /// are gone, by the uid of the host.
    pub(super) machines: BTreeMap<String, MachineLookup>,
    /// The objects of Cluster API that the spec names, and what is known of each.
    pub(super) scaled: Vec<(Scaled, Lookup)>,
    /// What is known of the Nodes of the tenant's cluster.
    pub(super) nodes: Nodes,
}

impl Holding {
    /// The Cluster API cluster that the `SIPCluster` serves.
    pub(super) fn served(&self) -> ClusterApiCluster {
        let annotation = self.cluster_api.as_ref().map(ToString::to_string);
        ClusterApiCluster::served_by(annotation.as_deref(), self.placement.cluster().name())
    }

    /// Whether the replicas of the object of Cluster API that has made a Machine follow the role of a member.
    pub(super) fn is_followed(&self, member: &Member, machine: &Machine) -> bool {
        let mut of_role = self
            .scaled
            .iter()
            .filter(|(scaled, _)| scaled.role().as_str() == member.role());
        of_role.any(|(scaled, lookup)| scaling::has_made(scaled, lookup, machine))
    }
}

/// What is known of the Nodes of a tenant's cluster, and for how long a host that leaves waits for the drain of its own.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Nodes {
    pub(super) report: Report,
    /// Zero: Nodes are neither drained nor deleted.
    pub(super) drain_for: Duration,
}

/// What the API server has answered about the Machine on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MachineLookup {
    /// This one is on it, or was when the host went.
    Found(Machine),
    /// A `HostClaim` without Machine uses it, which this names by kind, namespace and name.
    Claim(String),
    /// A Machine of another Cluster uses it, to which this leads, by kind, namespace and name.
    Foreign(String),
    /// No Machine uses it, but CAPM3 keeps it for one, in the name of this Cluster.
    Kept(String),
    /// The host is gone, as its owner is, which this names by kind, namespace and name: the garbage collector deletes such hosts.
    Collected(String),
    /// There may be one; why it could not be read, for messages.
    Unreadable(String),
}

impl From<User> for MachineLookup {
    fn from(user: User) -> Self {
        match user {
            User::Machine(machine) => Self::Found(machine),
            User::Claim(claim) => Self::Claim(claim),
            User::Foreign(consumer) => Self::Foreign(consumer),
            User::Kept(cluster) => Self::Kept(cluster),
        }
    }
}

impl From<Remains> for MachineLookup {
    fn from(left: Remains) -> Self {
        match left {
            Remains::Machine(machine) => Self::Found(machine),
            Remains::Collected(owner) => Self::Collected(owner),
        }
    }
}
