//! What one identity can do to another: nothing. Real connections, real certificates.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, its fixtures too"
)]

mod audit;
mod effects;
mod fixtures;
mod hanging;
mod identities;
mod latency;
mod numbers;
mod raw;
mod reads;
mod reports;
mod slow;
mod timeouts;

/// Tests that measure time run one after the other: each of them uses all cores.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
