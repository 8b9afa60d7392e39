//! The cluster agent of a site.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    runtime::exit::run(cluster_agent::run::run(cluster_agent::run::Args::parse()))
}
