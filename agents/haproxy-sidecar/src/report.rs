//! What is said to whoever asks, over HTTP beside health and metrics.

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use render::load_balancer::running::{CONFIG_PATH, Running, STARTED_PATH};
use tokio::sync::watch;

/// What is known.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// Whether a configuration is written.
    pub started: bool,
    /// What HAProxy runs.
    pub running: Running,
}

/// Answers the questions of the kubelet and of the load balancer agent.
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
            tracing::error!(%error, "the report could not be encoded");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

async fn started(State(report): State<watch::Receiver<Report>>) -> Response {
    if report.borrow().started {
        return "a configuration is written\n".into_response();
    }
    (
        StatusCode::SERVICE_UNAVAILABLE,
        "no configuration is written yet\n",
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::*;

    async fn text(response: Response) -> (u16, String) {
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), 1_000).await.unwrap();
        (status, String::from_utf8(body.into()).unwrap())
    }

    #[tokio::test]
    async fn what_runs_and_whether_anything_may_is_answered() {
        let (report, reported) = watch::channel(Report::default());
        let asked = async || {
            let started = text(started(State(reported.clone())).await).await;
            (started.0, text(config(State(reported.clone())).await).await)
        };
        let nothing = (200, r#"{"running":null,"failed":null}"#.to_owned());
        assert_eq!(asked().await, (503, nothing));
        report.send_replace(Report {
            started: true,
            running: Running {
                running: Some("00ff".to_owned()),
                failed: Some("the newest is worse".to_owned()),
            },
        });
        let both = r#"{"running":"00ff","failed":"the newest is worse"}"#.to_owned();
        assert_eq!(asked().await, (200, (200, both)));
    }
}
