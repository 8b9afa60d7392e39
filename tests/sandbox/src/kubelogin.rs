//! kubelogin, kubectl's plugin `oidc-login`, and the browser that it asks a person to open.

use std::{ffi::OsString, fs, time::Duration};

use http::{Request, Uri, header};
use kube::client::Body;
use tokio::time;

use crate::{
    login::{self, Provider},
    process::{self, Process},
    tools,
};

/// What a person reads on standard error where no browser can be started.
pub const PROMPT: &str = "Please visit the following URL in your browser manually:";
/// How long kubectl may take until it asks for a login.
const PATIENCE: Duration = Duration::from_mins(1);

/// Why nobody has logged in.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// kubectl has ended, or was not started.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// Its log cannot be read.
    #[error("read the log of kubectl")]
    Log(#[from] std::io::Error),
    /// It asks for no login.
    #[error("kubectl asks for no login. The end of its log:\n{0}")]
    Late(String),
    /// The plugin or the provider does not answer.
    #[error(transparent)]
    Provider(#[from] login::Error),
}

/// A `PATH` with kubectl and its plugin, and with no browser.
///
/// # Errors
/// When one of them is not built.
pub fn path() -> Result<OsString, tools::Error> {
    let found = [tools::path("kubectl")?, tools::path("kubectl-oidc_login")?];
    let mut path = OsString::new();
    for directory in found.iter().filter_map(|program| program.parent()) {
        if !path.is_empty() {
            path.push(":");
        }
        path.push(directory);
    }
    Ok(path)
}

/// Waits until kubectl asks for a login, and returns the address that a person is to open.
///
/// # Errors
/// When it ends before, or asks for none.
pub async fn prompted(kubectl: &mut Process) -> Result<String, Error> {
    let asked = async {
        let mut pace = time::interval(Duration::from_millis(50));
        loop {
            pace.tick().await;
            let log = fs::read_to_string(kubectl.log_path())?;
            let prompt = log.rsplit_once(PROMPT);
            if let Some((address, _)) = prompt.and_then(|(_, rest)| rest.split_once('\n')) {
                return Ok(address.trim().to_owned());
            }
            kubectl.check()?;
        }
    };
    match time::timeout(PATIENCE, asked).await {
        Ok(answer) => answer,
        Err(_) => Err(Error::Late(kubectl.log_tail(20))),
    }
}

/// Plays the browser of a person: from the address that the plugin names to the provider, and back with what that gives.
///
/// # Errors
/// When the plugin or the provider does not answer, or does not let the person in.
pub async fn browse(address: &str, provider: &Provider, person: (&str, &str)) -> Result<(), Error> {
    let authorization = visit(address, "/").await?;
    let back = provider.visit(&authorization, person).await?;
    let query = back.split_once('?').map_or("", |(_, query)| query);
    visit(address, &format!("/?{query}")).await.map(drop)
}

/// Asks the plugin, and returns where it leads.
async fn visit(address: &str, target: &str) -> Result<String, Error> {
    let failed = |reason: &dyn std::fmt::Display| login::Error::Answer {
        target: format!("{address}{target}"),
        reason: reason.to_string(),
    };
    let server: Uri = address.parse().map_err(|error| failed(&error))?;
    let mut config = kube::Config::new(server);
    config.proxy_url = None;
    let client = kube::Client::try_from(config).map_err(|error| failed(&error))?;
    let request = Request::get(target).body(Body::empty());
    let request = request.map_err(|error| failed(&error))?;
    let answer = client.send(request).await.map_err(|error| failed(&error))?;
    let location = answer.headers().get(header::LOCATION);
    let location = location
        .and_then(|location| location.to_str().ok())
        .unwrap_or_default()
        .to_owned();
    answer
        .into_body()
        .collect_bytes()
        .await
        .map_err(|error| failed(&error))?;
    Ok(location)
}
