//! `PowerService` against real parts: an emulator of BMCs, a real API server; and BMCs that fail in every way that was thought of.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, its helpers too"
)]

mod audited;
mod broken_bmcs;
mod commands;
mod emulated;
mod fault_server;
mod faults;
mod floods;
mod ledger;
mod log;
mod moved;
mod names;
mod proxied;
mod proxy;
mod stage;
mod tenants;
mod tokens;
mod transcript;
