//! The health port: `/healthz`, `/readyz`, `/metrics`.
//!
//! Plain HTTP: kubelet and Prometheus read it, and nothing secret or changing is behind it. A process may answer more there.

use std::io;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::readiness::Readiness;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Command-line options of the health port.
#[derive(Debug, Clone, clap::Args)]
pub struct HealthArgs {
    /// Address of the health and metrics port (plain HTTP)
    #[arg(
        long,
        env = "SIP_HEALTH_LISTEN",
        value_name = "ADDRESS",
        default_value = "0.0.0.0:8081"
    )]
    pub health_listen: SocketAddr,
}

/// The health port could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for health checks (--health-listen)")]
pub struct Error {
    address: SocketAddr,
    #[source]
    source: io::Error,
}

/// The opened health port.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    about: About,
    more: Router,
}

#[derive(Debug, Clone)]
struct About {
    readiness: Readiness,
    metrics: Metrics,
}

impl Server {
    /// Opens the port.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub async fn bind(args: &HealthArgs, readiness: Readiness, metrics: Metrics) -> Result<Self, Error> {
        let HealthArgs {
            health_listen: address,
        } = *args;
        let fail = |source| Error { address, source };
        let listener = TcpListener::bind(address).await.map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        Ok(Self {
            listener,
            address,
            about: About { readiness, metrics },
            more: Router::new(),
        })
    }

    /// Answers these requests too. None of them may be one of its own.
    #[must_use]
    pub fn answering(self, more: Router) -> Self {
        Self { more, ..self }
    }

    /// Where it listens; with port 0 in the arguments, the port that was chosen.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`.
    ///
    /// # Errors
    /// When the listener fails.
    pub async fn serve(self, stop: CancellationToken) -> io::Result<()> {
        let Self {
            listener,
            address: _,
            about,
            more,
        } = self;
        let routes = Router::new()
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(about)
            .merge(more);
        // A scraper that keeps its connection open must not hold up the exit.
        tokio::select! {
            served = axum::serve(listener, routes) => served,
            () = stop.cancelled() => Ok(()),
        }
    }
}

/// Answering at all is the proof: the first supervised task to end takes this one with it.
async fn healthz() -> &'static str {
    "ok\n"
}

async fn readyz(State(about): State<About>) -> Response {
    use std::fmt::Write as _;

    let unready = about.readiness.unready();
    if unready.is_empty() {
        return "ok\n".into_response();
    }
    let body = unready.iter().fold(String::new(), |mut body, (gate, reason)| {
        // Writing to a String cannot fail.
        let _ = writeln!(body, "{gate} {reason}");
        body
    });
    (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
}

async fn metrics(State(about): State<About>) -> Response {
    match about.metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "metrics could not be encoded");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
