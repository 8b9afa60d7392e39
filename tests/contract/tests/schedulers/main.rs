//! Several schedulers on one real etcd: one leads, and what was promised is kept whoever is killed, stopped or cut off.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, its fixtures too"
)]

mod abuse;
mod agent;
mod certificates;
mod client;
mod connections;
mod failover;
mod killed;
mod limits;
mod metrics;
mod moving;
mod partition;
mod pki;
mod region;
mod service;
mod spans;
