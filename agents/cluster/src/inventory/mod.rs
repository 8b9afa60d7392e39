//! What the site has: hosts with their addresses, and `SIPCluster`s. Watches fill it; the reporter and the reconciler read it.
//!
//! Objects are not kept: a host is reduced to what is reported of it, a Secret to the addresses in it.

mod clusters;
mod complaints;
mod dropped;
mod hosts;
mod kept;
mod report;
mod store;
mod watch;

pub use complaints::Complaints;
pub use dropped::{Dropped, no_held_hosts_outside};
pub use hosts::HostState;
pub use kit::placement::ObjectKey as Key;
pub use report::report;
pub use store::{Changes, Inventory};
pub use watch::{Listed, watch_clusters, watch_hosts, watch_network_data};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// A Kubernetes time as it is reported.
fn time(time: &Time) -> prost_types::Timestamp {
    let nanos = time.0.subsec_nanosecond();
    prost_types::Timestamp {
        seconds: time.0.as_second(),
        nanos,
    }
}
