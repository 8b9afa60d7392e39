//! The Dex agent of a site.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    runtime::exit::run(dex_agent::run::run(dex_agent::run::Args::parse()))
}
