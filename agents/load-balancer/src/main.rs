//! The load-balancer agent of a site.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    runtime::exit::run(load_balancer_agent::run::run(
        load_balancer_agent::run::Args::parse(),
    ))
}
