//! How the agent knows that a host was released.

use std::time::Instant;

use kit::placement::Release;

/// How an agent knows that a host was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The API server has no such host.
    Gone,
    /// The host was written, by a call that began at this time; it had no consumer.
    Written {
        /// Before the call.
        before: Instant,
    },
    /// The watch shows it.
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
