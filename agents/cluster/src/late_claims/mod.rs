//! When late claims of Cluster API can no longer take a released host, so that the agent may confirm the release to the scheduler.
//!
//! CAPM3 chooses a host and patches it later without reading it again: its patch may come after the agent has unlabelled the host. Where the
//! policy on consumers is in force, the API server refuses that patch, and the agent confirms a release at once. Elsewhere the agent confirms it
//! only after the host had no consumer for as long as a claim can be in flight.

mod admission_policy;
mod confirmation;
mod evidence;
mod releases;

pub use admission_policy::watch as watch_policy;
pub use confirmation::LateClaims;
pub use evidence::{Evidence, Released};
