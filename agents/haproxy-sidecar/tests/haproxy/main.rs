//! A real haproxy follows what it is told, with real connections through it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, its fixtures too"
)]

mod changes;
mod chosen_again;
mod configuration;
mod faults;
mod fifty;
mod large;
mod rendered;
mod rig;
mod traffic;
