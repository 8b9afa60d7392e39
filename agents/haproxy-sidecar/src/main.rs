//! The container beside HAProxy.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    runtime::exit::run(haproxy_sidecar::run::run(haproxy_sidecar::run::Args::parse()))
}
