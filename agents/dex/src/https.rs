//! Requests over TLS to one server, whose certificate chains to certain CAs.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use api::HttpsUrl;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use kit::tenant::destinations::{self, Destinations};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio::time;
use tokio_rustls::TlsConnector;

/// How long a request may take, from connecting to the end of the answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of the body of an answer, in bytes.
const MAX_BODY_BYTES: usize = 256 * 1024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The CA certificates cannot be read.
    #[error("the CA certificates are not PEM: {0}")]
    Authority(String),
    /// The system of the agent trusts no CA.
    #[error("the system of the agent trusts no CA: name one in the spec")]
    NoAuthority,
    /// The TLS library refuses the configuration.
    #[error("the agent cannot make a TLS client: {0}")]
    Tls(#[from] rustls::Error),
    /// The agent cannot connect to the server.
    #[error(transparent)]
    Connect(#[from] destinations::Error),
    /// The TLS handshake fails, such as for a certificate that is not trusted.
    #[error("{0}")]
    Handshake(#[from] std::io::Error),
    /// The server does not answer in HTTP.
    #[error("{0}")]
    Http(String),
    /// The server takes too long.
    #[error("no answer within {} s", ANSWER_TIMEOUT.as_secs())]
    Timeout,
}

/// The answer of a server, with its whole body.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status code.
    pub status: StatusCode,
    /// HTTP headers.
    pub headers: HeaderMap,
    /// The body; bytes that are not UTF-8 are replaced.
    pub body: String,
}

/// A TLS configuration with these CA certificates (PEM) as roots.
///
/// # Errors
/// When there is none, or one cannot be parsed.
pub fn tls_config(bundle: &str) -> Result<Arc<ClientConfig>, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        let certificate = certificate.map_err(|error| Error::Authority(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| Error::Authority(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(Error::Authority("there is no certificate".to_owned()));
    }
    config_with_roots(roots)
}

/// A TLS configuration with the CA certificates that the system of the agent trusts as roots.
///
/// # Errors
/// When it trusts none.
pub fn system_tls_config() -> Result<Arc<ClientConfig>, Error> {
    let mut roots = RootCertStore::empty();
    // Those that cannot be read are not needed as long as others can.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(Error::NoAuthority);
    }
    config_with_roots(roots)
}

fn config_with_roots(roots: RootCertStore) -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Sends one request to the server of a URL, and reads the answer. `target`: path and query; `form`: the body of a POST, `None` for a GET; `at`:
/// the address of the server, `None` to resolve its name; `destinations`: the addresses that it may have.
///
/// # Errors
/// When there is no answer.
pub async fn request(
    url: &HttpsUrl,
    target: &str,
    form: Option<&str>,
    tls: &Arc<ClientConfig>,
    at: Option<SocketAddr>,
    destinations: &Destinations,
) -> Result<Answer, Error> {
    time::timeout(ANSWER_TIMEOUT, exchange(url, target, form, tls, at, destinations))
        .await
        .map_err(|_| Error::Timeout)?
}

async fn exchange(
    url: &HttpsUrl,
    target: &str,
    form: Option<&str>,
    tls: &Arc<ClientConfig>,
    at: Option<SocketAddr>,
    destinations: &Destinations,
) -> Result<Answer, Error> {
    let http = |error: &dyn std::fmt::Display| Error::Http(error.to_string());
    let stream = match at {
        Some(address) => {
            let host = address.ip().to_string();
            destinations.connect(&host, address.port()).await?
        }
        None => destinations.connect(url.host(), url.port()).await?,
    };
    let name = ServerName::try_from(url.host().to_owned()).map_err(|error| http(&error))?;
    let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| http(&error))?;
    let host = url.as_str().trim_start_matches("https://");
    let host = host.split('/').next().unwrap_or_default();
    let method = if form.is_some() { Method::POST } else { Method::GET };
    let mut request = Request::builder()
        .method(method)
        .uri(target)
        .header(header::HOST, host);
    if form.is_some() {
        request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    }
    let body = Full::new(Bytes::copy_from_slice(form.unwrap_or_default().as_bytes()));
    let request = request.body(body).map_err(|error| http(&error))?;
    let answered = async {
        let (parts, body) = sender
            .send_request(request)
            .await
            .map_err(|error| http(&error))?
            .into_parts();
        let body = Limited::new(body, MAX_BODY_BYTES)
            .collect()
            .await
            .map_err(|error| http(&error))?;
        Ok(Answer {
            status: parts.status,
            headers: parts.headers,
            body: String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        })
    };
    tokio::pin!(connection);
    let mut answered = std::pin::pin!(answered);
    tokio::select! {
        biased;
        answer = &mut answered => return answer,
        ended = &mut connection => ended.map_err(|error| http(&error))?,
    }
    // The server has closed the connection; what it sent before may be a whole answer.
    answered.await
}
