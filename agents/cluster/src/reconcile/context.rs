//! What every pass over a cluster uses.

use std::{collections::BTreeSet, time::Duration};

use kit::{
    apply::Manager, config::Section, events::Events, metrics::AgentMetrics, retries::Retries,
    scheduler_client::Scheduler, shares::Shares,
};
use kube::Client;

use super::{metrics::Metrics, pending_writes::PendingWrites, scaling::Contests};
use crate::{
    answered::Answered, host_events::HostEvents, inventory::Inventory, late_claims::LateClaims,
    tenant_nodes::TenantNodes, triggers::Triggers,
};

/// Name under which this agent owns fields and publishes Events.
pub const MANAGER: Manager = Manager("sip-cluster-agent");

/// What every pass over a cluster uses.
pub struct Context {
    /// The site's API server.
    pub client: Client,
    /// The region's scheduler.
    pub scheduler: Scheduler,
    /// What the site has.
    pub inventory: Inventory,
    /// What makes a cluster be reconciled.
    pub triggers: Triggers,
    /// Writes to hosts that the watch does not show yet.
    pub pending_writes: PendingWrites,
    /// Writes to statuses that the watch does not show yet.
    pub pending_statuses: PendingWrites,
    /// The positions that the scheduler has answered from.
    pub answered: Answered,
    /// Objects whose replicas another writer repeatedly resets.
    pub contests: Contests,
    /// When a release may be confirmed.
    pub late_claims: LateClaims,
    /// What is wanted and known of the Nodes of tenants' clusters.
    pub tenant_nodes: TenantNodes,
    /// For how long a host that leaves waits for the drain of its Node.
    pub drain_for: Duration,
    /// Which passes run at once.
    pub shares: Shares,
    /// Pauses after failures.
    pub retries: Retries,
    /// What is counted.
    pub metrics: Metrics,
    /// What every agent counts.
    pub reconciles: AgentMetrics,
    /// Publishes Events on `SIPCluster`s.
    pub events: Events,
    /// Events on hosts.
    pub host_events: HostEvents,
    /// Namespaces whose hosts are watched.
    pub host_namespaces: BTreeSet<String>,
    /// Sections that no agent of the site serves.
    pub not_installed: BTreeSet<Section>,
}
