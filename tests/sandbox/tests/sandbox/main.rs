//! The sandbox: its set-up, its sites and nodes, the demonstration, and that nothing of them is left behind.
//!
//! In one program, so that two of its tests always run beside each other.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking, its helpers too"
)]

mod bench;
mod demo;
mod endings;
mod node;
mod region;
mod setup;
mod site;
