//! The health port: `/healthz`, `/readyz`, `/metrics`.
//!
//! Plain HTTP: kubelet and Prometheus read it, and nothing secret or changing is behind it. A process may answer more there.
//! Anybody who reaches the port may connect, so connections share slots ([`ConnectionSlots`]), have to send their requests in time,
//! and end after a while. Metrics are encoded once a second at most.

mod scrapes;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::connection_slots::{ConnectionSlot, ConnectionSlots};
use crate::metrics::{Metrics, exposition};
use crate::quiet::Quiet;
use crate::readiness::Readiness;
use scrapes::Scrapes;

/// Maximum number of connections at once. The next one takes the slot of one that has sent no request.
const MAX_CONNECTIONS: usize = 64;
/// How long a request may take to arrive, and a connection may be idle between two requests.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum age of a connection: the server closes it even if the client has not read its answer yet.
const MAX_CONNECTION_AGE: Duration = Duration::from_mins(2);
/// Pause before the next accept when the system is out of file descriptors or memory.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(500);

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
    sources: Sources,
    more: Router,
}

#[derive(Debug, Clone)]
struct Sources {
    readiness: Readiness,
    scrapes: Scrapes,
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
            sources: Sources {
                readiness,
                scrapes: Scrapes::new(metrics),
            },
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
            sources,
            more,
        } = self;
        let routes = Router::new()
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(sources)
            .merge(more);
        // A scraper that keeps its connection open must not hold up the exit: the connections end with this.
        let _ = stop.run_until_cancelled(accept(&listener, &routes)).await;
        Ok(())
    }
}

async fn accept(listener: &TcpListener, routes: &Router) -> Infallible {
    let slots = ConnectionSlots::new(MAX_CONNECTIONS);
    let log = Arc::new(Quiet::default());
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => {
                    let slot = slots.take(address.ip());
                    connections.spawn(connection(stream, slot, routes.clone(), Arc::clone(&log)));
                }
                Err(error) => {
                    if let Some(withheld) = log.line() {
                        tracing::warn!(%error, withheld, "a connection to the health port is not accepted");
                    }
                    sleep(ACCEPT_BACKOFF).await;
                }
            },
        }
    }
}

async fn connection(stream: TcpStream, slot: ConnectionSlot, routes: Router, log: Arc<Quiet>) {
    let service = hyper::service::service_fn(|request: hyper::Request<Incoming>| {
        slot.spoke();
        routes.clone().oneshot(request.map(Body::new))
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    let served = pin!(timeout(
        MAX_CONNECTION_AGE,
        http.serve_connection(TokioIo::new(stream), service)
    ));
    let why = tokio::select! {
        () = slot.evicted() => "a newer connection replaces it",
        ended = served => match ended {
            Ok(Ok(())) => return,
            Ok(Err(error)) if error.is_timeout() => "it sent no request in time",
            Ok(Err(_)) => "the client closed it, or sent no valid HTTP",
            Err(_elapsed) => "it reached its maximum age",
        },
    };
    if let Some(withheld) = log.line() {
        tracing::debug!(why, withheld, "a connection to the health port ends");
    }
}

/// Answering at all is the proof: the first supervised task to end takes this one with it.
async fn healthz() -> &'static str {
    "ok\n"
}

async fn readyz(State(sources): State<Sources>) -> Response {
    use std::fmt::Write as _;

    let unready = sources.readiness.unready();
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

async fn metrics(State(sources): State<Sources>, headers: HeaderMap) -> Response {
    let Ok(all) = sources.scrapes.all().await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let accept = headers.get_all(header::ACCEPT).into_iter();
    let mut accept = accept.filter_map(|value| value.to_str().ok());
    let (kind, body) = if accept.any(exposition::accepts_openmetrics) {
        (exposition::OPENMETRICS, all.openmetrics)
    } else {
        (exposition::TEXT, all.text)
    };
    ([(header::CONTENT_TYPE, kind)], body).into_response()
}
