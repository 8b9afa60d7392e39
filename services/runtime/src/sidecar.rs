//! What a sidecar reports of the program beside it, over HTTP beside health and metrics: to the kubelet, which starts the program, and to
//! the agent, which waits for what the program is to run.

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use serde::Serialize;
use tokio::sync::watch;

/// What is reported.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report<R> {
    /// Whether the program may start: its configuration is written. It stays true.
    pub started: bool,
    /// What the program runs.
    pub running: R,
    /// While the program does not run: SHA-256, in hexadecimal digits, of the configuration that it reads when it starts. `None` where
    /// that is not certain.
    pub starts_with: Option<String>,
}

/// Where reports are served.
#[derive(Clone, Copy, Debug)]
pub struct Paths {
    /// Answers 200 once the program may start, and 503 before.
    pub started: &'static str,
    /// Answers with what the program runs, as JSON.
    pub running: &'static str,
    /// Answers with [`Report::starts_with`] as text, and 404 without. `None` serves no such path.
    pub starts_with: Option<&'static str>,
}

/// Serves the newest report.
pub fn routes<R>(paths: Paths, report: watch::Receiver<Report<R>>) -> Router
where
    R: Clone + Serialize + Send + Sync + 'static,
{
    let mut routes = Router::new()
        .route(paths.running, get(running::<R>))
        .route(paths.started, get(started::<R>));
    if let Some(path) = paths.starts_with {
        routes = routes.route(path, get(starts_with::<R>));
    }
    routes.with_state(report)
}

async fn starts_with<R>(State(report): State<watch::Receiver<Report<R>>>) -> Response {
    let starts_with = report.borrow().starts_with.clone();
    starts_with.map_or_else(|| StatusCode::NOT_FOUND.into_response(), String::into_response)
}

async fn running<R: Clone + Serialize>(State(report): State<watch::Receiver<Report<R>>>) -> Response {
    let running = report.borrow().running.clone();
    match serde_json::to_string(&running) {
        Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Err(error) => {
            tracing::error!(%error, "the report cannot be encoded");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

async fn started<R>(State(report): State<watch::Receiver<Report<R>>>) -> Response {
    if report.borrow().started {
        return "the configuration is written\n".into_response();
    }
    (
        StatusCode::SERVICE_UNAVAILABLE,
        "the configuration is not written yet\n",
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use axum::{
        body::{Body, to_bytes},
        http::Request,
    };
    use tower::ServiceExt as _;

    use super::*;

    const PATHS: Paths = Paths {
        started: "/started",
        running: "/config",
        starts_with: Some("/starts"),
    };

    async fn get(routes: &Router, path: &str) -> (u16, Option<String>, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = routes.clone().oneshot(request).await.unwrap();
        let kind = response.headers().get(header::CONTENT_TYPE);
        let kind = kind.map(|kind| kind.to_str().unwrap().to_owned());
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), 1_000).await.unwrap();
        (status, kind, String::from_utf8(body.into()).unwrap())
    }

    #[tokio::test]
    async fn the_newest_report_is_served_at_its_paths() {
        let (report, reported) = watch::channel(Report::<Option<&str>>::default());
        let routes = routes(PATHS, reported);
        let json = Some("application/json".to_owned());
        assert_eq!(get(&routes, "/started").await.0, 503);
        assert_eq!(
            get(&routes, "/config").await,
            (200, json.clone(), "null".to_owned())
        );
        assert_eq!(get(&routes, "/starts").await.0, 404);
        report.send_replace(Report {
            started: true,
            running: Some("00ff"),
            starts_with: Some("11ee".to_owned()),
        });
        assert_eq!(get(&routes, "/started").await.0, 200);
        let (status, _, body) = get(&routes, "/starts").await;
        assert_eq!((status, &*body), (200, "11ee"));
        assert_eq!(get(&routes, "/config").await, (200, json, "\"00ff\"".to_owned()));
        assert_eq!(get(&routes, "/other").await.0, 404);
    }

    #[tokio::test]
    async fn what_cannot_be_encoded_is_an_error_of_the_server() {
        // JSON has no keys that are lists.
        let running = std::collections::BTreeMap::from([(vec![1], 1)]);
        let (_report, reported) = watch::channel(Report {
            started: true,
            running,
            starts_with: None,
        });
        assert_eq!(get(&routes(PATHS, reported), "/config").await.0, 500);
    }
}
