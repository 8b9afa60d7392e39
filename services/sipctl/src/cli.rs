//! The command line.

mod help;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use clap_complete::Shell;
use placement::{ClusterName, Namespace};

pub use crate::output::Output;
#[cfg(feature = "region")]
use crate::region;

/// Shows and explains the placement of clusters on bare-metal hosts.
#[derive(Debug, Parser)]
#[command(name = "sipctl", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Plan from files, offline: which hosts each SIPCluster would claim, keep and release
    #[command(after_help = help::PLAN_HELP)]
    Plan(Plan),
    /// List the clusters that would lose members, and the roles that would keep no more than half of theirs, if a domain failed; reads files
    #[command(after_help = help::LOSE_HELP)]
    Lose(Lose),
    /// What needs the region: its scheduler, ledger or certificates, or a site's API server.
    #[cfg(feature = "region")]
    #[command(flatten)]
    Region(region::cli::Command),
    /// Print a completion script for a shell
    Completions {
        /// The shell.
        shell: Shell,
    },
}

/// Options of `sipctl plan`.
#[derive(Debug, clap::Args)]
pub struct Plan {
    /// JSON or YAML file, directory with *.yaml, *.yml and *.json, or standard input (-). Can be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE_OR_DIR", required = true)]
    pub files: Vec<PathBuf>,
    /// Namespace of objects without a namespace
    #[arg(short, long, default_value = "default", value_parser = |text: &str| Namespace::new(text))]
    pub namespace: Namespace,
    /// Print only this cluster. The exit code is that of this cluster; the command plans the others too
    #[arg(long, value_name = "NS/NAME", value_parser = |text: &str| text.parse::<ClusterName>())]
    pub cluster: Option<ClusterName>,
    /// File with the site policy, in the format of the scheduler's --site-policy
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// Options of `sipctl lose`.
#[derive(Debug, clap::Args)]
pub struct Lose {
    /// The label and its value that all hosts of the domain have
    #[arg(value_name = "KEY=VALUE", value_parser = crate::lose::parse_domain)]
    pub domain: placement::Domain,
    /// Assume that the changes that `sipctl plan` prints for the same input have been made
    #[arg(long)]
    pub planned: bool,
    /// JSON or YAML file, directory with *.yaml, *.yml and *.json, or standard input (-). Can be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE_OR_DIR", required = true)]
    pub files: Vec<PathBuf>,
    /// Namespace of objects without a namespace
    #[arg(short, long, default_value = "default", value_parser = |text: &str| Namespace::new(text))]
    pub namespace: Namespace,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}
