//! The client's side: a channel to a server that must prove a given identity.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Endpoint;
use tower::ServiceExt as _;

use super::accept::TCP_KEEPALIVE;
use super::material::Files;
use super::refusal::readable;
use super::reload::{Outcome, Reloader, Reloading, Side, Sources, TlsMetrics};
use super::server_verifier::ServerVerifier;
use super::trust::TrustFiles;
use super::{ALPN, ClientTlsArgs, Error};
use crate::identity::{Caller, Realm};
use crate::telemetry::InjectTrace;

/// Name resolution, TCP and TLS together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Silence after which the client pings the server, and how long the answer to the ping may take. A server whose machine has lost its power
/// sends nothing, and another one leads after a few seconds.
const HTTP2_KEEPALIVE: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(5)];

/// A gRPC channel that sends the trace context along; what generated clients take in `new`.
pub type Channel = InterceptedService<tonic::transport::Channel, InjectTrace>;

/// A client's certificates, following their files. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ClientTls(Arc<Reloading<ClientConfig>>);

impl ClientTls {
    /// Loads the files, for connections to `server` only; `None` where the arguments ask for plaintext.
    /// The [`Reloader`] must be run.
    ///
    /// # Errors
    /// When the files are not usable or not given.
    pub fn load(
        args: &ClientTlsArgs,
        realm: &Realm,
        server: Caller,
        metrics: &TlsMetrics,
    ) -> Result<Option<(Self, Reloader)>, Error> {
        let ClientTlsArgs {
            tls_cert,
            tls_key,
            tls_ca,
            plaintext_loopback,
            tls_reload_seconds,
        } = args;
        if *plaintext_loopback {
            return Ok(None);
        }
        let (Some(certificate), Some(key), Some(anchors)) = (tls_cert, tls_key, tls_ca) else {
            return Err(Error::NoCertificates {
                missing: "--tls-cert, --tls-key and --tls-ca",
            });
        };
        let files = Files {
            certificate: certificate.clone(),
            key: key.clone(),
            anchors: anchors.clone(),
            trust: TrustFiles::default(),
        };
        let build = move |sources: Sources<'_, ClientConfig>| config(&sources, &server);
        let reloading = Reloading::load(files, realm.clone(), Side::Client, metrics.clone(), build)?;
        let reloader = Reloader::new(Arc::clone(&reloading), *tls_reload_seconds);
        Ok(Some((Self(reloading), reloader)))
    }

    /// Who this client is, by its current certificate.
    #[must_use]
    pub fn identity(&self) -> Caller {
        self.0.identity()
    }
}

/// A channel to `endpoint`, connected when it is first used and again whenever the connection was lost.
///
/// Every connection uses the certificates that are current when it begins. Without `tls` the endpoint must be
/// `http://` and loopback, with it `https://`.
///
/// # Errors
/// When the endpoint does not fit that; whether anyone answers there shows only when the channel is used.
pub fn channel(endpoint: &Uri, tls: Option<ClientTls>) -> Result<Channel, Error> {
    let name = endpoint.to_string();
    let host = endpoint.host().ok_or_else(|| Error::Host {
        endpoint: name.clone(),
    })?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let server_name = ServerName::try_from(host.to_owned()).map_err(|_| Error::Host {
        endpoint: name.clone(),
    })?;
    match (&tls, endpoint.scheme_str()) {
        (Some(_), Some("https")) => {}
        (Some(_), _) => {
            return Err(Error::Scheme {
                endpoint: name,
                expected: "https",
                because: "",
            });
        }
        (None, Some("http")) => {
            let loopback = host == "localhost"
                || host
                    .parse::<IpAddr>()
                    .is_ok_and(|ip| ip.to_canonical().is_loopback());
            if !loopback {
                return Err(Error::PlaintextNotLoopback { address: name });
            }
        }
        (None, _) => {
            let because = " because of --plaintext-loopback";
            return Err(Error::Scheme {
                endpoint: name,
                expected: "http",
                because,
            });
        }
    }

    // To tonic every endpoint is plain: TLS is the connector's work, and requests still say `https`.
    let mut parts = endpoint.clone().into_parts();
    parts.scheme = Some(Scheme::HTTP);
    let dialled = Uri::from_parts(parts).map_err(|_| Error::Host {
        endpoint: name.clone(),
    })?;
    let dialled_endpoint = Endpoint::from(dialled)
        .origin(endpoint.clone())
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(HTTP2_KEEPALIVE[0])
        .keep_alive_timeout(HTTP2_KEEPALIVE[1])
        .keep_alive_while_idle(true);

    let mut http = HttpConnector::new();
    http.set_nodelay(true);
    http.set_keepalive(Some(TCP_KEEPALIVE));
    let connector = Connector {
        http,
        tls,
        server_name,
        endpoint: name.into(),
    };
    let channel = dialled_endpoint.connect_with_connector_lazy(tower::service_fn(move |uri: Uri| {
        let connector = connector.clone();
        async move { connector.connect(uri).await.map(TokioIo::new) }
    }));
    Ok(InterceptedService::new(channel, InjectTrace))
}

/// Why a connection could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address does not answer.
    #[error("cannot reach {endpoint}")]
    Tcp {
        /// Where to.
        endpoint: Arc<str>,
        /// Why not.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// `localhost` is some other machine.
    #[error("{endpoint} is at {address}, which is not a loopback address and needs TLS")]
    NotLoopback {
        /// Where to.
        endpoint: Arc<str>,
        /// Its address.
        address: IpAddr,
    },
    /// The peer is not the scheduler that is expected, or does not complete a handshake with this caller.
    #[error("TLS handshake with {endpoint} failed: {}", handshake_failure(source))]
    Handshake {
        /// Where to.
        endpoint: Arc<str>,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// What a failed handshake means. A server that refuses a certificate says so; one that has too many handshakes closes the connection.
fn handshake_failure(source: &io::Error) -> &'static str {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    match source.kind() {
        BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof => {
            "the server closed the connection; it may have too many handshakes of this address or identity"
        }
        _ => "one side does not trust the certificate of the other",
    }
}

#[derive(Debug, Clone)]
struct Connector {
    http: HttpConnector,
    tls: Option<ClientTls>,
    server_name: ServerName<'static>,
    endpoint: Arc<str>,
}

impl Connector {
    async fn connect(self, uri: Uri) -> Result<Either<Box<TlsStream<TcpStream>>, TcpStream>, ConnectError> {
        let Self {
            http,
            tls,
            server_name,
            endpoint,
        } = self;
        let unreachable = |source| ConnectError::Tcp {
            endpoint: Arc::clone(&endpoint),
            source,
        };
        let tcp = http
            .oneshot(uri)
            .await
            .map_err(|error| unreachable(error.into()))?
            .into_inner();
        let Some(ClientTls(tls)) = tls else {
            let address = tcp.peer_addr().map_err(|error| unreachable(error.into()))?.ip();
            return if address.to_canonical().is_loopback() {
                Ok(Either::Right(tcp))
            } else {
                Err(ConnectError::NotLoopback { endpoint, address })
            };
        };
        let shaken = TlsConnector::from(tls.config()).connect(server_name, tcp).await;
        let outcome = if shaken.is_ok() {
            Outcome::Ok
        } else {
            Outcome::Failed
        };
        tls.metrics().handshake(Side::Client, outcome);
        shaken
            .map(|stream| Either::Left(Box::new(stream)))
            .map_err(|error| ConnectError::Handshake {
                endpoint,
                source: readable(error),
            })
    }
}

fn config(sources: &Sources<'_, ClientConfig>, server: &Caller) -> Result<Arc<ClientConfig>, Error> {
    let (provider, material) = (sources.provider, sources.material);
    let (anchors, realm) = (Arc::clone(&material.anchors), sources.realm.clone());
    let verifier = ServerVerifier::new(anchors, provider, realm, server.clone());
    let verifier = verifier.map_err(|source| Error::Verifier {
        path: sources.files.anchors.clone(),
        source,
    })?;
    let mut config = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(Error::Protocol)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&material.own.key))));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}
