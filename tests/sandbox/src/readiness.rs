//! Waiting until a process serves.

use std::time::{Duration, Instant};

use crate::process::{self, Process};

/// How often a process that is starting is asked.
const INTERVAL: Duration = Duration::from_millis(25);

/// Why a process is not ready.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It ended.
    #[error(transparent)]
    Ended(#[from] process::Error),
    /// It runs, but is not ready in time.
    #[error("{program} does not answer {url} after {} s: {answer}. The end of its log:\n{log}", waited.as_secs())]
    Late {
        /// The program's name.
        program: String,
        /// What was asked.
        url: String,
        /// For how long.
        waited: Duration,
        /// What the last attempt gave.
        answer: String,
        /// The last lines of its log.
        log: String,
    },
    /// There is no client to ask with.
    #[error("ask {url}")]
    Client {
        /// What was to be asked.
        url: String,
        /// What was wrong.
        source: kube::Error,
    },
}

/// Asks a plain HTTP port on loopback until it answers with success, or the process has ended.
///
/// # Errors
/// When the process ends, or is not ready in time.
pub async fn http(process: &mut Process, port: u16, path: &str, deadline: Duration) -> Result<(), Error> {
    let server = format!("http://127.0.0.1:{port}");
    let url = format!("{server}{path}");
    let mut config = kube::Config::new(server.parse::<http::Uri>().map_err(|error| Error::Client {
        url: url.clone(),
        source: kube::Error::HttpError(error.into()),
    })?);
    config.proxy_url = None;
    let client = kube::Client::try_from(config).map_err(|source| Error::Client { url, source })?;
    serving(process, &client, path, deadline).await
}

/// Asks through a client until the answer is a success, or the process has ended.
///
/// # Errors
/// When the process ends, or is not ready in time.
pub async fn serving(
    process: &mut Process,
    client: &kube::Client,
    path: &str,
    deadline: Duration,
) -> Result<(), Error> {
    let started = Instant::now();
    loop {
        process.check()?;
        let request = http::Request::get(path)
            .body(Vec::new())
            .map_err(|error| Error::Client {
                url: path.to_owned(),
                source: kube::Error::HttpError(error),
            })?;
        // A server that has accepted the connection and then says nothing must not use up the deadline alone.
        let answer = match tokio::time::timeout(Duration::from_secs(2), client.request_text(request)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer within 2 s".to_owned(),
        };
        if started.elapsed() > deadline {
            return Err(Error::Late {
                program: process.name().to_owned(),
                url: path.to_owned(),
                waited: started.elapsed(),
                answer,
                log: process.log_tail(25),
            });
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
