//! When a host that was released is really free of claims.
//!
//! CAPM3 chooses a host and patches it later, without looking again: its patch may come after the host was unlabelled. Where
//! the policy on consumers is in force the API server refuses that patch, and a release is confirmed at once. Without it a release is
//! confirmed only after the host was seen without consumer for as long as a claim can be in flight.

mod admission_policy;
mod confirmation;
mod evidence;
mod releases;

pub use admission_policy::watch as watch_policy;
pub use confirmation::LateClaims;
pub use evidence::{Evidence, Released};
