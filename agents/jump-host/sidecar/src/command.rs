//! The command line.

use crate::{follow, install, sshd};

/// Prepares, updates and runs sshd in the pods of jump hosts.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "sip-jump-host-sidecar", version)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Copies programs of this image to a directory
    Install(install::Args),
    /// Updates the files that sshd and ssh read, when the configuration or the keys in Kubernetes change
    Follow(follow::Args),
    /// Runs sshd until it receives a signal, and reports logins
    RunSshd(sshd::Args),
}

/// Runs a command.
///
/// # Errors
/// Why it could not start, or what failed.
pub async fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Install(args) => Ok(install::run(&args)?),
        Command::Follow(args) => follow::run(args).await,
        Command::RunSshd(args) => sshd::run(args).await,
    }
}
