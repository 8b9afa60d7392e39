//! Brings a site up for people: to look at it, to try manifests on, or to be shown what the project does.

mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs a site of its own on this machine: etcd, kube-apiserver, controllers and fake nodes.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Brings an empty site up, prints how to reach it, and stays until Ctrl-C
    Up(up::Options),
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { command } = Arguments::parse();
    let outcome = match command {
        Command::Up(options) => up::run(options).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sip-sandbox: {error:#}");
            ExitCode::FAILURE
        }
    }
}
