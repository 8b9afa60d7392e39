//! HAProxy in front of a cluster's API servers or workers: a `ConfigMap` with its configuration, a Deployment, a Service, and
//! what guards its pods.

mod check;
mod config;
mod interface;
mod member;
mod placement_line;
mod plan;
mod pods;
mod rendered;
pub mod server_list;
mod servers;
mod sidecar;
pub mod template;

pub use crate::running;
pub use check::Check;
pub use config::digest as config_digest;
pub use interface::{
    API_SERVER_PORT, CONFIG_FILE, INTERNAL_PORT_NAME, MASTER_SOCKET, MEMBERS_PATH, MEMBERSHIP_FILE,
    REPORT_PORT_NAME,
};
pub use member::Member;
pub use placement_line::without_placement;
pub use plan::{Plan, Sidecar};
pub use rendered::{Objects, control_plane, worker};
pub use sidecar::{Access, DRAIN_SECONDS};

#[cfg(test)]
mod tests;
