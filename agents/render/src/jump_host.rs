//! sshd in front of a cluster's nodes: a `ConfigMap` with its configuration and the keys that may log in, a Deployment, a Service, and what
//! guards its pods.
//!
//! | module | holds |
//! |---|---|
//! | [`interface`] | names on which agent, sidecar and sshd agree |
//! | [`authorized_keys`], [`options`] | who may log in: public keys, authorities, and what a line may say beside its key |
//! | [`private_keys`] | formats of private keys |
//! | [`host_keys`], [`node_keys`] | the jump host's own keys, and those for the nodes |
//! | [`nodes`] | the hosts that ssh leads to, and their names |
//! | [`files`] | the files that sshd and ssh read |
//! | [`plan`], [`rendered`] | a jump host, and all its objects |

pub mod authorized_keys;
mod destinations;
pub mod files;
pub mod host_keys;
pub mod interface;
pub mod node_keys;
pub mod nodes;
pub mod options;
pub mod plan;
mod pods;
pub mod private_keys;
pub mod rendered;
mod ssh_config;
mod sshd_config;
mod volumes;

pub use plan::{Plan, PowerService};
pub use rendered::Objects;

#[cfg(test)]
mod tests;
