//! The protocol of claims, through the region and a real ledger: what is promised, when it is told, and when a host is
//! free again.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, its fixtures too"
)]

mod claims;
mod durable;
mod errors;
mod existence;
mod fixtures;
mod growth_order;
mod history;
mod limits;
mod marks;
mod move_requests;
mod names;
mod positions;
mod readdressed;
mod rebuild;
mod reconciliation;
mod refused;
mod releases;
mod replacement;
mod sessions;
mod shares;
mod status_size;
mod wanted;
mod watching;
