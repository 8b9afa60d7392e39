//! How to reach etcd.

use std::{path::PathBuf, time::Duration};

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use tonic::transport::Endpoint;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use runtime::error_chain::chain;

use crate::ledger::Error;

/// Silence after which the client pings etcd, and how long the answer to the ping may take.
const KEEPALIVE: Duration = Duration::from_secs(2);

/// Options of an etcd cluster.
#[derive(Clone, Debug, clap::Args)]
pub struct EtcdArgs {
    /// Prefix of the ledger's keys in etcd; each region needs its own
    #[arg(
        long,
        env = "SIP_ETCD_PREFIX",
        value_name = "PREFIX",
        default_value = "/sip/ledger"
    )]
    pub etcd_prefix: String,
    /// CA certificates that the certificate of etcd must chain to (PEM)
    #[arg(long, env = "SIP_ETCD_CACERT", value_name = "FILE")]
    pub etcd_cacert: Option<PathBuf>,
    /// Client certificate chain for etcd (PEM, leaf first)
    #[arg(long, env = "SIP_ETCD_CERT", value_name = "FILE", requires = "etcd_key")]
    pub etcd_cert: Option<PathBuf>,
    /// Private key of the client certificate for etcd (PEM)
    #[arg(long, env = "SIP_ETCD_KEY", value_name = "FILE", requires = "etcd_cert")]
    pub etcd_key: Option<PathBuf>,
    /// Seconds without a renewal of its lease after which another replica replaces the leader
    #[arg(
        long,
        env = "SIP_ETCD_LEASE_SECONDS",
        value_name = "SECONDS",
        default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(2..=60)
    )]
    pub etcd_lease_seconds: u16,
    /// Value of etcd's own option --max-request-bytes; it also limits the size of one cluster's record
    #[arg(
        long,
        env = "SIP_ETCD_MAX_REQUEST_BYTES",
        value_name = "BYTES",
        default_value_t = 1_572_864,
        value_parser = clap::value_parser!(u32).range(65_536..=1_073_741_824)
    )]
    pub etcd_max_request_bytes: u32,
    /// Value of etcd's own option --max-txn-ops: operations in one transaction
    #[arg(
        long,
        env = "SIP_ETCD_MAX_TXN_OPS",
        value_name = "NUMBER",
        default_value_t = 128,
        value_parser = clap::value_parser!(u32).range(16..=65_536)
    )]
    pub etcd_max_txn_ops: u32,
}

/// The certificates that a client uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Certificates {
    anchors: Vec<u8>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Certificates {
    /// Reads the files; `None` where etcd is spoken to in plaintext.
    ///
    /// # Errors
    /// When the options contradict the endpoints, or a file cannot be read.
    pub(super) async fn read(endpoints: &[String], args: &EtcdArgs) -> Result<Option<Self>, Error> {
        let EtcdArgs {
            etcd_prefix: _,
            etcd_cacert,
            etcd_cert,
            etcd_key,
            etcd_lease_seconds: _,
            etcd_max_request_bytes: _,
            etcd_max_txn_ops: _,
        } = args;
        let is_https = |endpoint: &&String| endpoint.starts_with("https://");
        let wrong = |text: String| Err(Error::storage("connect to etcd")(text));
        let Some(anchors) = etcd_cacert else {
            return match endpoints.iter().find(is_https) {
                Some(endpoint) => wrong(format!("--etcd-cacert is needed for {endpoint}")),
                None if etcd_cert.is_some() => wrong("--etcd-cert requires --etcd-cacert".to_owned()),
                None => Ok(None),
            };
        };
        if let Some(endpoint) = endpoints.iter().find(|endpoint| !is_https(endpoint)) {
            return wrong(format!(
                "with --etcd-cacert every endpoint must begin with https://, which {endpoint} does not"
            ));
        }
        let identity = match (etcd_cert, etcd_key) {
            (Some(certificate), Some(key)) => Some((read(certificate).await?, read(key).await?)),
            _ => None,
        };
        Ok(Some(Self {
            anchors: read(anchors).await?,
            identity,
        }))
    }

    fn options(&self) -> TlsOptions {
        let Self { anchors, identity } = self;
        let options = TlsOptions::new().ca_certificate(Certificate::from_pem(anchors));
        match identity {
            Some((certificate, key)) => options.identity(Identity::from_pem(certificate, key)),
            None => options,
        }
    }
}

/// A client of these endpoints. Whether anybody answers there shows only when it is used.
///
/// # Errors
/// When a certificate is not usable, or an endpoint is no URL.
pub(super) async fn connect(
    endpoints: &[String],
    certificates: Option<&Certificates>,
) -> Result<Client, Error> {
    let mut options = ConnectOptions::new()
        .with_keep_alive(KEEPALIVE, KEEPALIVE)
        .with_keep_alive_while_idle(true)
        .with_connect_timeout(KEEPALIVE)
        .with_require_leader(true);
    if let Some(certificates) = certificates {
        options = options.with_tls(certificates.options());
    }
    Client::connect(endpoints, Some(options))
        .await
        .map_err(Error::storage("connect to etcd"))
}

/// Why none of these endpoints can be connected to; `None` when one can. The client itself only says that there was no answer.
pub(super) async fn unreachable(endpoints: &[String], certificates: Option<&Certificates>) -> Option<Error> {
    let mut first = None;
    for url in endpoints {
        match reach(url, certificates).await {
            Ok(()) => return None,
            Err(error) => {
                let why = std::io::Error::other(format!("{url}: {}", chain(&*error)));
                first = first.or(Some(Error::storage("connect to etcd")(why)));
            }
        }
    }
    first
}

/// A server that refuses a certificate says so only after the client's part of the handshake is done, so something is asked.
async fn reach(
    url: &str,
    certificates: Option<&Certificates>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut endpoint = Endpoint::from_shared(url.to_owned())?
        .connect_timeout(KEEPALIVE)
        .timeout(KEEPALIVE);
    if let Some(certificates) = certificates {
        endpoint = endpoint.tls_config(certificates.options())?;
    }
    let mut health = HealthClient::new(endpoint.connect().await?);
    let answer = health.check(HealthCheckRequest::default()).await;
    match answer.as_ref().err().and_then(std::error::Error::source) {
        Some(cut_off) => Err(format!(
            "it has ended the connection, as when it does not accept the certificate of --etcd-cert, or misses one: {}",
            chain(cut_off)
        )
        .into()),
        // Whatever it says, it has answered.
        None => Ok(()),
    }
}

async fn read(path: &PathBuf) -> Result<Vec<u8>, Error> {
    tokio::fs::read(path)
        .await
        .map_err(|source| std::io::Error::new(source.kind(), format!("{}: {source}", path.display())))
        .map_err(Error::storage("read a file of TLS"))
}
