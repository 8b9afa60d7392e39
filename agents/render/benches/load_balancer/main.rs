//! The figures that load balancers are held to, one line each: measured, and the goal. Needs haproxy in PATH.
#![allow(missing_docs, reason = "a program")]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::cast_precision_loss,
    reason = "a bench may stop, and its figures are rounded"
)]

mod haproxy;
mod large;
mod throughput;

fn main() {
    large::run();
    throughput::run();
}
