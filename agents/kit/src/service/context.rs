//! Everything that a pass over a cluster needs.

use tokio::sync::watch;

use super::{label_priority::LabelPriority, last_members::LastMembers, site::Site};
use crate::{
    events::Events, metrics::AgentMetrics, retries::Retries, scheduler_client::Scheduler, shares::Shares,
};

/// Everything that a pass over a cluster needs.
pub(super) struct Context<S> {
    pub(super) service: S,
    pub(super) site: Site,
    /// The region's scheduler.
    pub(super) scheduler: Scheduler,
    /// Whether every watch of the whole site has shown a complete list.
    pub(super) listed: watch::Receiver<bool>,
    pub(super) label_priority: LabelPriority,
    /// Which passes run at once.
    pub(super) shares: Shares,
    pub(super) last_members: LastMembers,
    pub(super) retries: Retries,
    /// Pauses after which a placement that the scheduler does not know is asked for again.
    pub(super) unplaced: Retries,
    pub(super) metrics: AgentMetrics,
    pub(super) events: Events,
}
