//! How to reach etcd.

use std::{path::PathBuf, time::Duration};

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};

use crate::ledger::Error;

/// Silence after which etcd is asked for a sign of life, and how long it may take to give one.
const KEEPALIVE: Duration = Duration::from_secs(2);

/// Options of an etcd cluster.
#[derive(Clone, Debug, clap::Args)]
pub struct EtcdArgs {
    /// Under which the ledger's keys are: a region's own
    #[arg(
        long,
        env = "SIP_ETCD_PREFIX",
        value_name = "PREFIX",
        default_value = "/sip/ledger"
    )]
    pub etcd_prefix: String,
    /// CA certificates that etcd's must chain to (PEM)
    #[arg(long, env = "SIP_ETCD_CACERT", value_name = "FILE")]
    pub etcd_cacert: Option<PathBuf>,
    /// Certificate chain to show to etcd (PEM)
    #[arg(long, env = "SIP_ETCD_CERT", value_name = "FILE", requires = "etcd_key")]
    pub etcd_cert: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(long, env = "SIP_ETCD_KEY", value_name = "FILE", requires = "etcd_cert")]
    pub etcd_key: Option<PathBuf>,
    /// Seconds after which a leader that is not heard of is replaced
    #[arg(
        long,
        env = "SIP_ETCD_LEASE_SECONDS",
        value_name = "SECONDS",
        default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(2..=60)
    )]
    pub etcd_lease_seconds: u16,
    /// What etcd was told by its own option of this name: how large a request may be, so also how large a cluster
    #[arg(
        long,
        env = "SIP_ETCD_MAX_REQUEST_BYTES",
        value_name = "BYTES",
        default_value_t = 1_572_864,
        value_parser = clap::value_parser!(u32).range(65_536..=1_073_741_824)
    )]
    pub etcd_max_request_bytes: u32,
    /// What etcd was told by its own option of this name: operations in one transaction
    #[arg(
        long,
        env = "SIP_ETCD_MAX_TXN_OPS",
        value_name = "NUMBER",
        default_value_t = 128,
        value_parser = clap::value_parser!(u32).range(16..=65_536)
    )]
    pub etcd_max_txn_ops: u32,
}

/// A client of these endpoints. Whether anybody answers there shows only when it is used.
///
/// # Errors
/// When a file cannot be read, or an endpoint is no URL.
pub(super) async fn connect(endpoints: &[String], args: &EtcdArgs) -> Result<Client, Error> {
    let EtcdArgs {
        etcd_prefix: _,
        etcd_cacert,
        etcd_cert,
        etcd_key,
        etcd_lease_seconds: _,
        etcd_max_request_bytes: _,
        etcd_max_txn_ops: _,
    } = args;
    let mut options = ConnectOptions::new()
        .with_keep_alive(KEEPALIVE, KEEPALIVE)
        .with_keep_alive_while_idle(true)
        .with_connect_timeout(KEEPALIVE)
        .with_require_leader(true);
    if endpoints.iter().any(|endpoint| endpoint.starts_with("https://")) {
        let mut tls = TlsOptions::new();
        if let Some(anchors) = etcd_cacert {
            tls = tls.ca_certificate(Certificate::from_pem(read(anchors).await?));
        }
        if let (Some(certificate), Some(key)) = (etcd_cert, etcd_key) {
            tls = tls.identity(Identity::from_pem(read(certificate).await?, read(key).await?));
        }
        options = options.with_tls(tls);
    }
    Client::connect(endpoints, Some(options))
        .await
        .map_err(Error::storage("connect to etcd"))
}

async fn read(path: &PathBuf) -> Result<Vec<u8>, Error> {
    tokio::fs::read(path)
        .await
        .map_err(|source| std::io::Error::new(source.kind(), format!("{}: {source}", path.display())))
        .map_err(Error::storage("read a file of TLS"))
}
