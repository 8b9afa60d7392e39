//! Protobuf into domain types and back, each in one place: requests and answers of the API, and the messages that the ledger
//! stores. Past it nothing knows protobuf, and nothing is checked again.

mod changes;
mod host;
mod names;
mod placement;
mod plan;
mod position;
mod spec;

pub use changes::{changes, slices};
pub use host::{addresses, host, observed_host, sip_labels};
pub use names::{cluster, cluster_ref, duration, host_id, host_ref, time, uid};
pub use placement::{decision, parse_member_state, parse_refusal, parse_report, placement, report, state};
pub use plan::plan;
pub use spec::{cluster_spec, declared_spec, parse_role, parse_selector, parse_spec};
