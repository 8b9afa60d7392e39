//! Bounds of a request, and of the lists that a decision returns. Those of a request are far above any real cluster, so that only a mistaken or
//! hostile request exceeds them.

/// The most roles of a cluster. A node group is a role; the work of a decision grows with their number.
pub const MAX_ROLES: usize = 64;

/// The most members of one role, active and standby together: more than Kubernetes' own limit of 5,000 nodes allows.
pub const MAX_WANTED: u32 = 100_000;

/// The most entries of [`crate::Refusal::helps`].
pub const MAX_HELPS: usize = 8;

/// The most reports of a decision that are shown to callers.
pub const MAX_REPORTS: usize = 64;
