//! A real sshd, as the user that a pod has, with the files that are rendered: who may log in, and where connections lead.
//!
//! Mounts of its own need root, as in CI; others skip these tests, and the reason is printed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, its fixtures too"
)]

mod certificates;
mod changes;
mod keys;
mod logins;
mod nodes;
mod other_sshd;
mod refused;
mod rig;
mod sessions;
mod taken_over;
