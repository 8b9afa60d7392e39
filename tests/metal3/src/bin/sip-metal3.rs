//! `sip-metal3`: the stand-in of Cluster API and CAPM3 for one namespace of a site.

use std::{io::Write as _, time::Duration};

use clap::Parser;
use kube::Client;
use metal3::{
    controller::{Controller, Settings},
    provider::Pauses,
};

/// Simulates what Cluster API and its metal3 provider do to hosts.
///
/// The cluster of the current kubeconfig must have the CRDs of tests/metal3/crds.yaml.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Namespace of the hosts, Machines and templates
    #[arg(long, default_value = "metal")]
    namespace: String,
    /// Seconds between two searches of a machine that finds no host
    #[arg(long, default_value_t = 30.0)]
    search_seconds: f64,
    /// Longest pause between the choice of a host and its patch, in seconds
    #[arg(long, default_value_t = 0.008)]
    delay_seconds: f64,
    /// Pause between two passes, in milliseconds
    #[arg(long, default_value_t = 200)]
    period_milliseconds: u64,
    /// Seed of names and choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Leave the provisioning states of hosts, and claims of them, to a baremetal-operator
    #[arg(long)]
    no_operator: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments {
        namespace,
        search_seconds,
        delay_seconds,
        period_milliseconds,
        seed,
        no_operator,
    } = Arguments::parse();
    let settings = Settings {
        pauses: Pauses {
            search: Duration::try_from_secs_f64(search_seconds)?,
            delay: Duration::try_from_secs_f64(delay_seconds)?,
        },
        period: Duration::from_millis(period_milliseconds.max(1)),
        seed,
        operates_hosts: !no_operator,
    };
    let client = Client::try_default().await?;
    let controller = Controller::new(client, &namespace, settings);
    let tell = |error: &kube::Error| {
        // Nobody reads it where this fails.
        let _ = writeln!(std::io::stderr(), "sip-metal3: {error}; it is tried again");
    };
    tokio::select! {
        () = controller.run(tell) => {}
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_default_pauses_are_those_of_capm3() {
        let Arguments {
            search_seconds,
            delay_seconds,
            ..
        } = Arguments::parse_from(["sip-metal3"]);
        let pauses = [search_seconds, delay_seconds].map(Duration::from_secs_f64);
        assert_eq!(pauses, [Duration::from_secs(30), Duration::from_millis(8)]);
    }
}
