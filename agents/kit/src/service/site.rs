//! A site's API server as one service agent sees it.

use std::sync::Arc;

use api::{Cluster, PortSet, SIPCluster};
use kube::Client;

use super::{identity::Identity, last_applied::LastApplied, parsed_ports::ParsedPorts, stores::Stores};
use crate::config::ServiceOverrides;

/// A site's API server as one service agent sees it.
pub(super) struct Site {
    pub(super) client: Client,
    pub(super) identity: &'static Identity,
    pub(super) stores: Stores,
    pub(super) last_applied: Arc<LastApplied>,
    /// The node ports that the agent's section of a spec asks for.
    pub(super) node_ports: fn(&Cluster) -> PortSet,
    pub(super) parsed_ports: ParsedPorts,
    pub(super) overrides: ServiceOverrides,
}

impl Site {
    /// The node ports that the agent's section of a cluster's spec asks for; `None` if the spec is refused.
    pub(super) fn spec_ports(&self, cluster: &SIPCluster) -> Option<Arc<PortSet>> {
        self.parsed_ports.get(&self.stores.clusters, cluster, |cluster| {
            let parsed = Cluster::parse(cluster).ok()?;
            Some((self.node_ports)(&parsed))
        })
    }
}
