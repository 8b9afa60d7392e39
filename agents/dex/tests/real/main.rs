//! What is rendered for a provider, run by a real Dex, with a real directory and a real etcd.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, its helpers too"
)]

mod bindings;
mod checked;
mod flooded;
mod key_secret;
mod logins;
mod lost;
mod separate;
mod stage;
