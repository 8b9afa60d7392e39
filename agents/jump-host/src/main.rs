//! The jump-host agent of a site.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    runtime::exit::run(jump_host_agent::run::run(jump_host_agent::run::Args::parse()))
}
