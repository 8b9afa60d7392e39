//! Brings a site up for people: to look at it, to try manifests on, or to be shown what the project does.

mod bench;
mod demo;
mod interrupted;
mod steps;
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs a site on this machine: etcd, kube-apiserver, controllers and nodes.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Starts an empty site, prints how to reach it, and runs until Ctrl-C
    Up(up::Options),
    /// Starts a region with one site, places three clusters, and prints the result
    ///
    /// On a terminal it runs until Ctrl-C. Otherwise it ends, with exit status 0 only if two clusters became ready
    /// and the third was refused with a reason.
    Demo(demo::Options),
    /// Measures how long a site takes from a new cluster to its last labelled host
    Bench(bench::Options),
    /// Measures how much longer it takes to place clusters while a hostile tenant has clusters in the same site
    Hostile(bench::hostile::Options),
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { command } = Arguments::parse();
    let outcome = match command {
        Command::Up(options) => up::run(options).await,
        Command::Demo(options) => Box::pin(demo::run(options)).await,
        Command::Bench(options) => Box::pin(bench::run(options)).await,
        Command::Hostile(options) => Box::pin(bench::hostile::run(options)).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sip-sandbox: {error:#}");
            ExitCode::FAILURE
        }
    }
}
