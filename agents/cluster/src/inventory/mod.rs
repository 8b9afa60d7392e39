//! What the site has: hosts with their addresses, and `SIPCluster`s. Watches fill it; the reporter and the reconciler read it.
//!
//! Objects are not stored: a host is reduced to what is reported of it, a Secret to the addresses in it.

mod changes;
mod cluster_report;
mod dropped_namespaces;
mod first_list;
mod gone_hosts;
mod host_faults;
mod host_report;
mod observed_host;
mod packed;
mod presence;
mod served;
mod store;
mod stream;
mod unreadable_placement;
mod watch;

pub use changes::Changes;
pub use dropped_namespaces::{DroppedNamespace, no_held_hosts_outside, no_recorded_hosts_outside};
pub use first_list::FirstList;
pub use gone_hosts::{GoneHost, Verdict};
pub use host_faults::HostFaults;
pub use observed_host::{ObservedHost, SipLabels};
pub use presence::{Loss, Presence, is_absent};
pub use store::Inventory;
pub use stream::report;
pub use watch::{watch_clusters, watch_hosts, watch_network_data};
