//! What is promised when the storage fails: what was durable is told, nothing is promised that may be lost, and all goes on
//! when the storage does.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, its fixtures too"
)]

mod backups;
mod disk;
mod ending;
mod export;
mod fixtures;
mod read_only;
