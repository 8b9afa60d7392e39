//! The scheduler service: one per region. It alone decides which hosts a tenant cluster gets.
//!
//! | module | what it does |
//! |---|---|
//! | [`api`] | gRPC: who may call, requests in, answers out |
//! | [`call_rules`] | one descriptor per RPC: effect, who may call, kind, deadline, audit |
//! | [`region`] | sites behind their locks, and the order of every step: reserve, decide, stage, wait |
//! | [`site`] | one site: inventory, sessions, the protocol of claims, what watchers are sent |
//! | [`record`], [`spec`] | what the ledger holds of a cluster |
//! | [`ledger`] | durable storage, group commit |
//! | [`convert`] | protobuf to domain types and back |
//! | [`term`] | when this process may write: terms, read-only, standby |
//! | [`backup`] | exports that are written by themselves |
//! | [`policy`] | a site's policy, from its file |
//! | [`admission`] | what is applied to every call: authorization, limits of each identity, audit |
//! | [`metrics`] | the table of metrics |
//! | [`load`] | what belongs to the call that a task serves: its deadline, its changes; panics |
//! | [`error`] | what can go wrong, and its gRPC status |
//!
//! The decision itself is the pure crate `placement`.

pub mod admission;
pub mod api;
pub mod backup;
pub mod call_rules;
pub mod convert;
pub mod error;
#[cfg(test)]
mod fixtures;
pub mod ledger;
pub mod load;
pub mod metrics;
pub mod observed;
pub mod policy;
pub mod record;
pub mod region;
pub mod server;
pub mod site;
pub mod spec;
pub mod term;
pub mod violation;
