//! The observation from which the agent concludes that a host was released.

use std::time::Instant;

use kit::placement::Release;

/// The observation from which the agent concludes that a host was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The API server has no such host.
    Gone,
    /// The API server has accepted a write to the host, which had no consumer of the cluster then.
    Written {
        /// A time before the call began.
        before: Instant,
    },
    /// The watch shows the host as released.
    Seen,
}

/// A host that was released.
#[derive(Clone, Debug, PartialEq)]
pub struct Released {
    /// What is confirmed to the scheduler.
    pub release: Release,
    /// How that is known.
    pub evidence: Evidence,
}
