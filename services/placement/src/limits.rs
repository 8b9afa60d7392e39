//! What a request may ask at most. Far above any cluster that was ever built, so that only mistakes and attacks meet them.

/// The most roles of a cluster. A node group is a role; the work of a decision grows with their number.
pub const MAX_ROLES: usize = 64;

/// The most members of one role, active and standby together: more than Kubernetes' own limit of 5,000 nodes allows.
pub const MAX_WANTED: u32 = 100_000;

/// The most entries of [`crate::Refusal::helps`].
pub const MAX_HELPS: usize = 8;

/// The most reports of a decision that are shown to callers.
pub const MAX_REPORTS: usize = 64;
