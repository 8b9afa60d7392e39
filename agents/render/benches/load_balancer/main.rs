//! The figures that load balancers are held to, one line each: measured, and the goal. Needs haproxy in PATH.
#![allow(missing_docs, reason = "a program")]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::cast_precision_loss,
    reason = "a bench may stop, and its figures are rounded"
)]

mod goals;
mod haproxy;
mod large;
mod throughput;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut goals = goals::Goals::default();
    large::run(&mut goals);
    throughput::run(&mut goals);
    goals.end()
}
