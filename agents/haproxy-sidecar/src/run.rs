//! The process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;
use render::running::{CONFIG_PATH, STARTED_PATH, STARTS_WITH_PATH};
use runtime::{
    Process, ProcessArgs,
    health::HealthArgs,
    sidecar::{self, Paths, Report},
    telemetry::TelemetryArgs,
};
use tokio::sync::watch;

use crate::config_map::{self, Source};
use crate::follow::{Follower, Metrics};

/// Work in progress may be dropped at any point: the next process observes HAProxy again.
const DRAIN_SECONDS: u16 = 1;
/// Where the kubelet and the load balancer agent read the report.
const REPORTS: Paths = Paths {
    started: STARTED_PATH,
    running: CONFIG_PATH,
    starts_with: Some(STARTS_WITH_PATH),
};

/// Watches the `ConfigMap` that holds the configuration, and applies each change to HAProxy in the same pod, without a restart.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "sip-haproxy-sidecar", version)]
pub struct Args {
    #[command(flatten)]
    telemetry: TelemetryArgs,
    /// Namespace of the `ConfigMap`
    #[arg(long, env = "SIP_NAMESPACE", value_name = "NAME")]
    namespace: String,
    /// Name of the `ConfigMap` with the configuration
    #[arg(long, env = "SIP_CONFIG_MAP", value_name = "NAME")]
    config_map: String,
    /// Directory that this container shares with that of HAProxy, with haproxy.cfg and master.sock, the socket of HAProxy's master process
    #[arg(long, env = "SIP_DIRECTORY", value_name = "PATH")]
    directory: PathBuf,
    /// Address of the HTTP port for probes and /metrics; GET /config returns the SHA-256 of the running configuration
    #[arg(long, env = "SIP_LISTEN", value_name = "ADDRESS", default_value = "[::]:8405")]
    listen: SocketAddr,
    /// How long to wait for open connections to a removed member before closing them
    #[arg(long, env = "SIP_DRAIN", value_name = "DURATION", default_value = "30s", value_parser = duration)]
    drain: Duration,
}

fn duration(text: &str) -> Result<Duration, String> {
    let signed: SignedDuration = text.parse().map_err(|error: jiff::Error| error.to_string())?;
    Duration::try_from(signed).map_err(|_| "it is negative".to_owned())
}

/// Runs until it receives a signal or a part fails.
///
/// # Errors
/// Why the process could not start, or what failed.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let Args {
        telemetry,
        namespace,
        config_map,
        directory,
        listen,
        drain,
    } = args;
    let (report, reported) = watch::channel(Report::default());
    let process = ProcessArgs {
        telemetry,
        health: HealthArgs {
            health_listen: listen,
        },
        drain_seconds: DRAIN_SECONDS,
    };
    let (name, version) = ("sip-haproxy-sidecar", env!("CARGO_PKG_VERSION"));
    let mut process =
        Process::start_answering(name, version, &process, sidecar::routes(REPORTS, reported)).await?;
    // It does not make the pod ready: the readiness probe of HAProxy's container does.
    let gate = process.readiness.gate("configuration");
    let client = kit::start::kubernetes().await?;
    let (source, newest) = watch::channel(Source::default());
    process.tasks.spawn_endless("configuration", async move {
        config_map::follow(client, &namespace, &config_map, source).await
    });
    let metrics = Metrics::registered(&process.metrics);
    let follower = Follower::new(newest, &directory, drain, report, metrics);
    process
        .tasks
        .spawn_endless("follower", async move { follower.run(&gate).await });
    process.run().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn the_drain_time_has_a_unit() {
        let drain = |text: &str| {
            let drain = format!("--drain={text}");
            let args = [
                "sidecar",
                "--namespace=a",
                "--config-map=b",
                "--directory=/c",
                &drain,
            ];
            Args::try_parse_from(args).map(|args| args.drain)
        };
        assert_eq!(drain("30s").unwrap(), Duration::from_secs(30));
        assert_eq!(drain("1m 30s").unwrap(), Duration::from_secs(90));
        assert_eq!(drain("0s").unwrap(), Duration::ZERO);
        for wrong in ["-1s", "30", "soon", ""] {
            assert!(drain(wrong).is_err(), "{wrong}");
        }
    }
}
