//! The command line's side of TLS.

use std::path::PathBuf;
use std::time::Duration;

/// TLS options of a process that serves gRPC.
#[derive(Debug, Clone, clap::Args)]
pub struct ServerTlsArgs {
    /// Certificate chain of this server (PEM, leaf first)
    #[arg(
        long,
        env = "SIP_TLS_CERT",
        value_name = "FILE",
        required_unless_present = "plaintext_loopback"
    )]
    pub tls_cert: Option<PathBuf>,
    /// Private key of this server (PEM)
    #[arg(
        long,
        env = "SIP_TLS_KEY",
        value_name = "FILE",
        required_unless_present = "plaintext_loopback"
    )]
    pub tls_key: Option<PathBuf>,
    /// CA certificates that clients must chain to (PEM)
    #[arg(
        long,
        env = "SIP_TLS_CLIENT_CA",
        value_name = "FILE",
        required_unless_present = "plaintext_loopback"
    )]
    pub tls_client_ca: Option<PathBuf>,
    /// Directory with one file SITE.crt for each site: the CA certificates (PEM) of that site. The certificate of an agent must chain to the
    /// CA of its site; every other certificate must be issued directly by a CA in --tls-client-ca. Without this option, certificates of
    /// agents chain to --tls-client-ca too
    #[arg(long, env = "SIP_TLS_SITE_CA_DIR", value_name = "DIR")]
    pub tls_site_ca_dir: Option<PathBuf>,
    /// File with denied callers, one per line: `sha256:` and the digest of a certificate, or an identity (URI). Their open
    /// connections are closed
    #[arg(long, env = "SIP_TLS_DENY", value_name = "FILE")]
    pub tls_deny: Option<PathBuf>,
    /// Serve without TLS; the address must be a loopback address
    #[arg(long, conflicts_with_all = ["tls_cert", "tls_key", "tls_client_ca", "tls_site_ca_dir", "tls_deny"])]
    pub plaintext_loopback: bool,
    /// Seconds between checks of the certificate files for changes
    #[arg(long, env = "SIP_TLS_RELOAD_SECONDS", value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub tls_reload_seconds: Duration,
}

/// TLS options of a process that calls the scheduler.
#[derive(Debug, Clone, clap::Args)]
pub struct ClientTlsArgs {
    /// Certificate chain of this client (PEM, leaf first)
    #[arg(
        long,
        env = "SIP_TLS_CERT",
        value_name = "FILE",
        required_unless_present = "plaintext_loopback"
    )]
    pub tls_cert: Option<PathBuf>,
    /// Private key of this client (PEM)
    #[arg(
        long,
        env = "SIP_TLS_KEY",
        value_name = "FILE",
        required_unless_present = "plaintext_loopback"
    )]
    pub tls_key: Option<PathBuf>,
    /// CA certificates that the server must chain to (PEM)
    #[arg(
        long,
        env = "SIP_TLS_CA",
        value_name = "FILE",
        required_unless_present = "plaintext_loopback"
    )]
    pub tls_ca: Option<PathBuf>,
    /// Connect without TLS; the address of the server must be a loopback address
    #[arg(long, conflicts_with_all = ["tls_cert", "tls_key", "tls_ca"])]
    pub plaintext_loopback: bool,
    /// Seconds between checks of the certificate files for changes
    #[arg(long, env = "SIP_TLS_RELOAD_SECONDS", value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub tls_reload_seconds: Duration,
}

/// Whole seconds from 1 to one day.
fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<u64>() {
        Ok(seconds @ 1..=86_400) => Ok(Duration::from_secs(seconds)),
        Ok(_) | Err(_) => Err("expected a whole number of seconds from 1 to 86400".to_owned()),
    }
}
