//! What one pass over a cluster does.

use std::{collections::BTreeSet, time::Duration};

use api::ClusterApiCluster;
use kit::placement::{ClusterId, HostId, ObjectKey};

use super::{event::Event, host_actions::HostAction, machine::Machine, scaling::Scale, status_draft::Draft};
use crate::tenant_nodes::Wanted;

/// What one pass over a cluster does. The parts are executed in this order; the status, once, comes last.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) cluster: ClusterId,
    /// The Cluster API cluster that the `SIPCluster` names by its annotation.
    pub(super) cluster_api: Option<ClusterApiCluster>,
    /// Hosts whose changes trigger passes over the cluster; `None` leaves these hosts as they were.
    pub(super) watched: Option<BTreeSet<ObjectKey>>,
    pub(super) nodes: NodesAction,
    pub(super) finalizer: Option<FinalizerAction>,
    pub(super) machines: Vec<MachineAction>,
    /// `None` while the status does not hold the placement: nothing acts on a claim before it does.
    pub(super) hosts: Option<Vec<HostAction>>,
    pub(super) scales: Vec<Scale>,
    /// Whether replicas wait until Machines are marked. No watch shows that.
    pub(super) follows_machines: bool,
    /// The pass is about to write hosts. The watch of these triggers the next pass, which writes the status.
    pub(super) status_follows: bool,
    pub(super) status: Option<Draft>,
    /// Published in any case.
    pub(super) notices: Vec<Event>,
    /// Published each when its host has been released in this pass.
    pub(super) nodes_left: Vec<(HostId, Event)>,
    /// Published when the status has been written.
    pub(super) events: Vec<Event>,
    /// When the cluster is reconciled again though nothing changes.
    pub(super) requeue: Option<Duration>,
}

impl Plan {
    /// A plan that does nothing.
    pub(super) fn nothing(cluster: ClusterId) -> Self {
        Self {
            cluster,
            cluster_api: None,
            watched: None,
            nodes: NodesAction::Unchanged,
            finalizer: None,
            machines: Vec::new(),
            hosts: None,
            scales: Vec::new(),
            follows_machines: false,
            status_follows: false,
            status: None,
            notices: Vec::new(),
            nodes_left: Vec::new(),
            events: Vec::new(),
            requeue: None,
        }
    }
}

/// What is wanted of the Nodes of the tenant's cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NodesAction {
    /// Keep what was wanted before.
    Unchanged,
    /// Replace what was wanted before.
    Want(Box<Wanted>),
    /// Want nothing of the Nodes.
    Forget,
}

/// What is done to the finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FinalizerAction {
    /// Set before the first claim.
    Add,
    /// Taken off when nothing is left.
    Remove,
}

/// What is done to a Machine of Cluster API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MachineAction {
    /// The Machine is marked so that Cluster API deletes it first. The status names it already.
    Prioritize(Machine),
    /// That is taken back; `host`: the uid of the host that the status names it for.
    Restore { host: String, machine: Machine },
}
