//! The program that runs beside sshd in every pod of a jump host.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    runtime::exit::run(jump_host_sidecar::command::run(
        jump_host_sidecar::command::Args::parse(),
    ))
}
