//! `sipctl plan`, against its contract.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on fails; clippy.toml allows it only in functions marked as tests"
)]

mod adopt;
mod certs;
mod command;
mod corpus;
mod fixtures;
mod forms;
mod hostile;
mod input;
mod losses;
mod members;
mod order;
mod outcomes;
mod permutations;
mod real;
mod refusals;
mod rehearse;
mod reports;
