//! A site's API server as one service agent sees it.

use std::sync::Arc;

use api::{Cluster, PortSet};
use kube::Client;

use super::{identity::Identity, last_applied::LastApplied, stores::Stores};
use crate::config::ServiceOverrides;

/// A site's API server as one service agent sees it.
pub(super) struct Site {
    pub(super) client: Client,
    pub(super) identity: &'static Identity,
    pub(super) stores: Stores,
    pub(super) last_applied: Arc<LastApplied>,
    /// The node ports that the agent's section of a spec asks for.
    pub(super) node_ports: fn(&Cluster) -> PortSet,
    pub(super) overrides: ServiceOverrides,
}
