//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

const EXIT_CODES: &str = "Exit codes:
  0  done
  1  another failure, such as a file that cannot be read
  2  wrong arguments
  3  refused: the call is not allowed, or the state of the host does not permit it; nothing was changed
  4  not possible now: no replica of the service serves calls, the scheduler or API server does not answer, or a limit is reached; nothing was changed
  5  the host's BMC failed; nothing was changed
  6  unknown: the service may have sent the action, and its effect was not observed; `host status` prints the power state

NAME is a host's name, NAMESPACE/NAME, or @ and its ordinal name, such as @worker-3. `status` and `console` also accept the part of the
name before its first dot, and the ordinal name without @. Another host may have such a name, so `reboot`, `on` and `off` refuse it.";

/// Power control of the hosts of this cluster
#[derive(Debug, Parser)]
#[command(name = "host", version, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// Format of the output
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

/// Address of the service, and credentials of the caller. Files are read for each call: they change while a pod runs.
#[derive(Debug, Args)]
#[command(next_help_heading = "Service")]
pub(crate) struct ServerArguments {
    /// Host and port of the service
    #[arg(
        long,
        global = true,
        env = "SIP_POWER_ADDRESS",
        value_name = "HOST:PORT",
        default_value = "sip-jump-host-agent-power.sip-system.svc:8443"
    )]
    pub(crate) address: String,
    /// DNS name in the certificate of the service [default: the host of --address]
    #[arg(long, global = true, env = "SIP_POWER_SERVER_NAME", value_name = "NAME")]
    pub(crate) server_name: Option<String>,
    /// CA certificates (PEM) that the certificate of the service must chain to
    #[arg(
        long,
        global = true,
        env = "SIP_POWER_CA",
        value_name = "FILE",
        default_value = "/etc/sip/power/ca.crt"
    )]
    pub(crate) ca: PathBuf,
    /// `ServiceAccount` token of this pod, for the audience sip-power
    #[arg(
        long,
        global = true,
        env = "SIP_POWER_TOKEN_FILE",
        value_name = "FILE",
        default_value = "/var/run/secrets/sip/power/token"
    )]
    pub(crate) token: PathBuf,
    /// Seconds to wait for a replica of the service that serves calls
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=600))]
    pub(crate) wait: u16,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists the hosts of this cluster
    List,
    /// Prints the power state of a host, as its BMC reports it
    Status(Name),
    /// Restarts a host, and waits until its BMC has reported the restart
    Reboot(Forced),
    /// Turns a host on, and waits until its BMC reports it on
    On(Name),
    /// Turns a host off, and waits until its BMC reports it off
    Off(Forced),
    /// Prints the consoles that the BMC of a host offers
    Console(Name),
    /// Prints a completion script for a shell
    Completion {
        /// The shell
        shell: Shell,
    },
}

/// Which host.
#[derive(Debug, Args)]
pub(crate) struct Name {
    /// Name of the host, or its ordinal name such as @worker-3
    #[arg(value_name = "NAME")]
    pub(crate) host: String,
}

/// Which host, and how.
#[derive(Debug, Args)]
pub(crate) struct Forced {
    /// Name of the host, or its ordinal name such as @worker-3
    #[arg(value_name = "NAME")]
    pub(crate) host: String,
    /// Reset or power off the host at once, instead of asking its operating system to shut down
    #[arg(long)]
    pub(crate) force: bool,
}

/// Format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table or a sentence.
    Table,
    /// One JSON object.
    Json,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_help_explains_every_exit_code() {
        let help = Arguments::command().render_help().to_string();
        for code in 0..=6 {
            assert!(help.contains(&format!("\n  {code}  ")), "{code}\n{help}");
        }
    }
}
