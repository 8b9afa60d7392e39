//! Answers which files are written, over HTTP beside health and metrics: to the kubelet and to the jump-host agent.

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use render::running::{CONFIG_PATH, Running, STARTED_PATH};
use tokio::sync::watch;

/// What is written.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// Whether the keys for the nodes are written, or there are none.
    pub node_keys: bool,
    /// The digest of the files, and why the newest are not written.
    pub running: Running,
}

impl Report {
    /// Whether sshd may start.
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.node_keys && self.running.running.is_some()
    }
}

/// Answers of a process that reports so.
pub fn routes(report: watch::Receiver<Report>) -> Router {
    Router::new()
        .route(CONFIG_PATH, get(config))
        .route(STARTED_PATH, get(started))
        .with_state(report)
}

async fn config(State(report): State<watch::Receiver<Report>>) -> Response {
    let running = report.borrow().running.clone();
    match serde_json::to_string(&running) {
        Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Err(error) => {
            tracing::error!(%error, "the report cannot be encoded");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

async fn started(State(report): State<watch::Receiver<Report>>) -> Response {
    if report.borrow().is_started() {
        return "the files are written\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, "the files are not written yet\n").into_response()
}
