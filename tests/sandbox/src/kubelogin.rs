//! A stand-in for kubelogin, kubectl's plugin `oidc-login`, with those of its options that `sipctl kubeconfig` writes: it waits for a
//! browser on the same addresses, and gets a token by authorization code and PKCE. It opens no browser and keeps no token.

use std::{io, net::SocketAddr};

use axum::{
    Router,
    extract::State,
    http::{Uri, header},
    response::{Html, IntoResponse, Redirect, Response},
    routing::get,
};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD as BASE64, URL_SAFE_NO_PAD},
};
use kube::client::Body;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::{net::TcpListener, sync::mpsc};

use crate::login::{self, Provider, Token};

/// Where it waits for a browser; the second one is for when the first is taken.
const LISTEN: [&str; 2] = ["127.0.0.1:8000", "127.0.0.1:18000"];
/// What a person reads on standard error.
pub const PROMPT: &str = "Please visit the following URL in your browser:";
/// CSS selector of what the browser shows in the end.
pub const DONE: &str = "#logged-in";
const DONE_PAGE: &str = "<p id=\"logged-in\">You have logged in. You can close this window.</p>";

/// What kubectl calls it with.
#[derive(Debug, clap::Parser)]
#[command(name = "kubectl oidc-login")]
pub enum Command {
    /// Logs in, and writes a token for kubectl.
    GetToken(Options),
}

/// How to log in.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Issuer of the provider
    #[arg(long)]
    oidc_issuer_url: String,
    /// Client id
    #[arg(long)]
    oidc_client_id: String,
    /// Scopes besides openid
    #[arg(long)]
    oidc_extra_scope: Vec<String>,
    /// How the code is bound to who asked for it
    #[arg(long, value_parser = ["S256"])]
    oidc_pkce_method: String,
    /// CA certificates of the provider (PEM, base64)
    #[arg(long)]
    certificate_authority_data: String,
}

/// Why nobody has logged in.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The CA certificates cannot be read.
    #[error("--certificate-authority-data must be PEM in base64")]
    Authority,
    /// Both addresses are taken, or there is no randomness.
    #[error("wait for a browser")]
    Io(#[from] io::Error),
    /// The provider does not answer.
    #[error(transparent)]
    Provider(#[from] login::Error),
    /// The provider refuses.
    #[error("the provider refuses: {0}")]
    Refused(String),
    /// The token was issued for another login.
    #[error("the token's {0} is another")]
    OtherToken(&'static str),
}

/// What a browser comes back with.
struct Waiting {
    authorization: String,
    came: mpsc::Sender<String>,
}

/// Logs in, and returns what kubectl reads.
///
/// # Errors
/// When nobody has logged in.
pub async fn run(command: Command) -> Result<String, Error> {
    let Command::GetToken(Options {
        oidc_issuer_url: issuer,
        oidc_client_id: client,
        oidc_extra_scope: scopes,
        oidc_pkce_method: method,
        certificate_authority_data: authority,
    }) = command;
    let bundle = BASE64.decode(authority).ok();
    let bundle = bundle.and_then(|bundle| String::from_utf8(bundle).ok());
    let provider = Provider::new(&issuer, &bundle.ok_or(Error::Authority)?)?;
    let listener = listen().await?;
    let redirect = format!("http://localhost:{}", listener.local_addr()?.port());
    let (state, nonce, verifier) = (random()?, random()?, random()?);
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier));
    let scope = ["openid"].into_iter().chain(scopes.iter().map(String::as_str));
    let authorization = provider.authorization(&[
        ("response_type", "code"),
        ("client_id", &client),
        ("redirect_uri", &redirect),
        ("scope", &scope.collect::<Vec<_>>().join(" ")),
        ("state", &state),
        ("nonce", &nonce),
        ("code_challenge", &challenge),
        ("code_challenge_method", &method),
    ]);
    eprintln!("{PROMPT} {redirect}");
    let code = code(listener, authorization, &state).await?;
    let verifier = [("code_verifier", verifier.as_str())];
    let token = provider.redeem(&client, &redirect, &code, &verifier).await?;
    let token = token.map_err(Error::Refused)?;
    for (claim, expected) in [("nonce", &nonce), ("iss", &issuer), ("aud", &client)] {
        if token.claims[claim] != **expected {
            return Err(Error::OtherToken(claim));
        }
    }
    Ok(credential(&token))
}

/// Waits for a browser that comes back with a code.
async fn code(listener: TcpListener, authorization: String, state: &str) -> Result<String, Error> {
    let (came, mut coming) = mpsc::channel(1);
    let waiting = std::sync::Arc::new(Waiting { authorization, came });
    let router = Router::new().route("/", get(page)).with_state(waiting);
    let (ended, end) = tokio::sync::oneshot::channel::<()>();
    // The browser gets its page before the server ends.
    let serving = axum::serve(listener, router).with_graceful_shutdown(async {
        let _ = end.await;
    });
    let back = async {
        let query = coming.recv().await.unwrap_or_default();
        drop(ended);
        query
    };
    let (served, query) = tokio::join!(serving, back);
    served?;
    let value = |name: &str| {
        let mut fields = query.split('&').filter_map(|field| field.split_once('='));
        fields.find_map(|(field, value)| (field == name).then(|| value.to_owned()))
    };
    match value("code") {
        Some(code) if value("state").as_deref() == Some(state) => Ok(code),
        _ => Err(Error::Refused(query)),
    }
}

async fn page(State(waiting): State<std::sync::Arc<Waiting>>, uri: Uri) -> Response {
    let Some(query) = uri.query() else {
        return Redirect::to(&waiting.authorization).into_response();
    };
    // A second browser comes too late.
    let _ = waiting.came.try_send(query.to_owned());
    Html(DONE_PAGE).into_response()
}

async fn listen() -> io::Result<TcpListener> {
    let addresses: Vec<SocketAddr> = LISTEN.iter().filter_map(|address| address.parse().ok()).collect();
    TcpListener::bind(addresses.as_slice()).await
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
    let request = http::Request::get(target).body(Body::empty());
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

/// 43 characters from 32 random bytes.
fn random() -> io::Result<String> {
    let mut bytes = [0; 32];
    io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

fn credential(token: &Token) -> String {
    json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": token.text},
    })
    .to_string()
}
