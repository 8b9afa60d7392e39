//! What is rendered for a provider, run by a real Dex, with a real directory and a real etcd.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, its helpers too"
)]

mod bindings;
mod checked;
mod flooded;
mod key_secret;
mod logins;
mod lost;
mod read_back;
mod separate;
mod stage;
#[expect(
    dead_code,
    unreachable_pub,
    reason = "the fuzzer and the test of all texts are its other users"
)]
#[path = "../../../render/fuzz/targets.rs"]
mod targets;
#[path = "../../../render/tests/hostile/texts.rs"]
mod texts;
