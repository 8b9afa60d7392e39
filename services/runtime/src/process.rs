//! A process: its parts started in the right order, supervised, and stopped in the right order.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use futures::Stream;
use http::Uri;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::info::Info;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::health::{self, HealthArgs};
use crate::identity::{Caller, Realm};
use crate::metrics::{self, Metrics, ProcessCollector};
use crate::readiness::Readiness;
use crate::serving::{self, ConnectionRound};
use crate::shutdown::Signals;
use crate::tasks::{self, Tasks};
use crate::telemetry::{self, Telemetry, TelemetryArgs};
use crate::tls::{self, Channel, ClientTls, ClientTlsArgs, Listener, Reloader, ServerTlsArgs, TlsMetrics};

/// How long the health port may take to close after everything else has ended.
const HEALTH_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Command-line options that every process has.
#[derive(Debug, Clone, clap::Args)]
pub struct ProcessArgs {
    /// Logs and traces.
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
    /// The health port.
    #[command(flatten)]
    pub health: HealthArgs,
    /// Seconds that calls in progress may take to complete after a signal to shut down
    #[arg(long, env = "SIP_DRAIN_SECONDS", value_name = "SECONDS", default_value_t = 20)]
    pub drain_seconds: u16,
}

/// Why a process could not start, or why it ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Telemetry did not start.
    #[error("telemetry cannot start")]
    Telemetry(#[source] telemetry::Error),
    /// The signal handlers were refused.
    #[error("signals cannot be handled")]
    Signals(#[source] std::io::Error),
    /// The health port did not open.
    #[error("the health port cannot open")]
    Health(#[source] health::Error),
}

/// A started process.
#[derive(Debug)]
pub struct Process {
    /// What the process counts.
    pub metrics: Metrics,
    /// Whether it is ready.
    pub readiness: Readiness,
    /// What it runs.
    pub tasks: Tasks,
    /// Cancelled when it must end.
    pub shutdown: CancellationToken,
    // They answer while the tasks drain, and end after them.
    outlasting: Tasks,
    drained: CancellationToken,
    health_address: SocketAddr,
    tls_metrics: TlsMetrics,
    drain: Duration,
    // Last, so that it is dropped last and sees everything.
    telemetry: Telemetry,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    name: &'static str,
    version: &'static str,
}

impl Process {
    /// Starts logs, signal handling and the health port.
    ///
    /// # Errors
    /// As [`Error`] lists.
    pub async fn start(name: &'static str, version: &'static str, args: &ProcessArgs) -> Result<Self, Error> {
        Self::start_answering(name, version, args, Router::new()).await
    }

    /// The same; the health port answers `more` too, which must not be one of its own paths.
    ///
    /// # Errors
    /// As [`Error`] lists.
    pub async fn start_answering(
        name: &'static str,
        version: &'static str,
        args: &ProcessArgs,
        more: Router,
    ) -> Result<Self, Error> {
        let ProcessArgs {
            telemetry,
            health,
            drain_seconds,
        } = args;
        let telemetry = Telemetry::start(name, version, telemetry).map_err(Error::Telemetry)?;
        let shutdown = CancellationToken::new();
        let mut tasks = Tasks::new(shutdown.clone());
        let signals = Signals::install().map_err(Error::Signals)?;
        let forward = signals.forward(shutdown.clone());
        tasks.spawn("signals", async move {
            forward.await;
            Ok::<_, std::convert::Infallible>(())
        });

        let metrics = Metrics::default();
        metrics.add(&metrics::BUILD, Info::new(Build { name, version }));
        metrics.collect(ProcessCollector);
        let tls_metrics = TlsMetrics::registered(&metrics);
        let readiness = Readiness::default();
        let health = health::Server::bind(health, readiness.clone(), metrics.clone())
            .await
            .map_err(Error::Health)?
            .answering(more);
        let health_address = health.address();
        let drained = CancellationToken::new();
        let mut outlasting = Tasks::new(drained.clone());
        outlasting.spawn("health", health.serve(drained.clone()));
        tracing::info!(name, version, health = %health_address, "started");
        let drain = Duration::from_secs(u64::from(*drain_seconds));
        Ok(Self {
            metrics,
            readiness,
            tasks,
            shutdown,
            outlasting,
            drained,
            health_address,
            tls_metrics,
            drain,
            telemetry,
        })
    }

    /// Where the health port is.
    #[must_use]
    pub fn health_address(&self) -> SocketAddr {
        self.health_address
    }

    /// Opens a gRPC port whose certificates are kept current.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub async fn bind(
        &mut self,
        address: SocketAddr,
        args: &ServerTlsArgs,
        realm: &Realm,
    ) -> Result<Listener, tls::Error> {
        let (listener, reloader) = Listener::bind(address, args, realm, &self.tls_metrics).await?;
        if let Some(reloader) = reloader {
            self.keep_current("server certificate", reloader);
        }
        Ok(listener)
    }

    /// Serves `routes` on `listener` as the task `name`, until the shutdown. Whenever `rounds` has another value, clients that are connected are
    /// told to connect anew; until it has any they may stay.
    pub fn serve(
        &mut self,
        name: &'static str,
        listener: Listener,
        routes: Routes,
        rounds: impl Stream<Item = ConnectionRound> + Send + 'static,
    ) {
        tracing::info!(address = %listener.address(), "serving {name}");
        let stop = self.shutdown.clone();
        self.tasks
            .spawn(name, serving::serve(listener, routes, rounds, stop));
    }

    /// A channel to the region's scheduler whose certificates are kept current.
    ///
    /// # Errors
    /// When the certificates are not usable, or as [`tls::channel`].
    pub fn scheduler(
        &mut self,
        endpoint: &Uri,
        args: &ClientTlsArgs,
        realm: &Realm,
    ) -> Result<Channel, tls::Error> {
        let (tls, reloader) = ClientTls::load(args, realm, Caller::Scheduler, &self.tls_metrics)?.unzip();
        let channel = tls::channel(endpoint, tls)?;
        if let Some(reloader) = reloader {
            self.keep_current("client certificate", reloader);
        }
        Ok(channel)
    }

    fn keep_current(&mut self, name: &'static str, reloader: Reloader) {
        let gate = self.readiness.gate(name);
        self.tasks.spawn(name, reloader.run(gate, self.shutdown.clone()));
    }

    /// Runs until a signal or until the first task ends, then drains.
    ///
    /// # Errors
    /// As [`Tasks::run`].
    pub async fn run(self) -> Result<(), tasks::Error> {
        let Self {
            metrics: _,
            readiness,
            tasks,
            shutdown,
            outlasting,
            drained,
            health_address: _,
            tls_metrics: _,
            drain,
            telemetry,
        } = self;
        let working = async {
            let end = tasks.run(drain, &readiness).await;
            drained.cancel();
            end
        };
        let answering = async {
            let end = outlasting.run(HEALTH_DRAIN_TIMEOUT, &readiness).await;
            shutdown.cancel();
            end
        };
        let (worked, answered) = tokio::join!(working, answering);
        tracing::info!("stopped");
        drop(telemetry);
        worked.and(answered)
    }
}
