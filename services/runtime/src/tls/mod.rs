//! TLS 1.3 both ways, with SPIFFE identities and certificates that are reloaded while running.
//!
//! - [`Listener`] accepts for tonic's `serve_with_incoming`; handlers find a [`Peer`] in the request's extensions.
//! - [`channel`] connects to a server that must prove a given identity.
//! - [`Reloader`] keeps either of them supplied with the newest good files.
//!
//! Sessions are never resumed: resumption would skip the verification of a certificate that has expired, or
//! whose CA has been withdrawn, since.

mod accept;
mod args;
mod client;
mod connection;
mod connections;
mod deny_list;
mod faults;
mod handshake_rate;
mod material;
mod paths;
mod peer;
mod refusal;
mod reload;
mod server;
mod server_verifier;
mod throttle;
mod trust;

#[cfg(test)]
pub(crate) mod tests;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::SystemTime;

use crate::identity;

pub use accept::{Limits, Listener};
pub use args::{ClientTlsArgs, ServerTlsArgs};
pub use client::{Channel, ClientTls, ConnectError, channel};
pub use connection::Connection;
pub use material::Validity;
pub use peer::{Peer, PeerIdentity};
pub use reload::{Reloader, TlsMetrics};
pub use server::ServerTls;

/// HTTP/2, the only protocol spoken over these connections.
const ALPN: &[u8] = b"h2";

/// Why TLS could not be set up, at the start or at a reload.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Neither certificates nor the plaintext flag were given.
    #[error("certificates are required: set {missing}, or --plaintext-loopback for a loopback address")]
    NoCertificates {
        /// The options that are missing.
        missing: &'static str,
    },
    /// Plaintext was requested on an address that others can reach.
    #[error(
        "--plaintext-loopback is refused for `{address}`: without TLS anyone who reaches it could act as anyone; only loopback addresses may be used"
    )]
    PlaintextNotLoopback {
        /// The address or URL as given.
        address: String,
    },
    /// A URL whose scheme does not say what the other options say.
    #[error("`{endpoint}` must begin with `{expected}://`{because}")]
    Scheme {
        /// As given.
        endpoint: String,
        /// The right scheme.
        expected: &'static str,
        /// The option that requires this scheme, as an addition to the sentence.
        because: &'static str,
    },
    /// A URL without a usable host.
    #[error("`{endpoint}` does not name a host to connect to")]
    Host {
        /// As given.
        endpoint: String,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// As given.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A file cannot be read.
    #[error("cannot read {what} from {}", path.display())]
    Read {
        /// The file's purpose.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A file has no usable PEM block of the kind that is needed.
    #[error("{} does not hold {what} in PEM form", path.display())]
    Pem {
        /// The file's purpose.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    /// The own certificate names nobody in this realm.
    #[error("the certificate in {} has no valid identity", path.display())]
    Identity {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: identity::Error,
    },
    /// The own certificate is not valid at this time.
    #[error(
        "the certificate in {} is valid from {} to {}, not now",
        path.display(), rfc3339(*not_before), rfc3339(*not_after)
    )]
    NotValidNow {
        /// The file.
        path: PathBuf,
        /// Start of its validity.
        not_before: SystemTime,
        /// End of its validity.
        not_after: SystemTime,
    },
    /// A certificate among the trusted ones is not usable as a trust anchor.
    #[error("{} holds a certificate that cannot be trusted as a CA", path.display())]
    Anchor {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: rustls::Error,
    },
    /// Certificate and key do not belong together, or the key is of a kind that is not supported.
    #[error("the key in {} does not serve for the certificate in {}", key.display(), certificate.display())]
    KeyPair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why not.
        #[source]
        source: rustls::Error,
    },
    /// No verifier for peers can be built from the trusted certificates.
    #[error("peers cannot be verified with {}", path.display())]
    Verifier {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: rustls::client::VerifierBuilderError,
    },
    /// An authority of a site could certify anybody.
    #[error(
        "{} holds a CA certificate that is among those of --tls-client-ca: its site could certify operators and other sites",
        path.display()
    )]
    SharedAuthority {
        /// The file.
        path: PathBuf,
    },
    /// A site has more authorities than a handshake should try.
    #[error("{} holds {found} CA certificates of different names or keys: at most {most} are allowed", path.display())]
    ManyAuthorities {
        /// The file.
        path: PathBuf,
        /// How many it holds.
        found: usize,
        /// How many it may hold.
        most: usize,
    },
    /// Which of two files counts is not said.
    #[error("{}: --tls-site-ca-dir has another file with CA certificates of this site; remove one", path.display())]
    TwoAuthorities {
        /// One of the files.
        path: PathBuf,
    },
    /// A line that denies nobody would be taken for one that does.
    #[error(
        "line {line} of {}: neither `sha256:` and 64 hexadecimal digits, nor an identity that begins with `spiffe://`",
        path.display()
    )]
    DenyList {
        /// The file.
        path: PathBuf,
        /// Number of the line.
        line: usize,
    },
    /// The cryptography lacks TLS 1.3.
    #[error("TLS 1.3 is not available")]
    Protocol(#[source] rustls::Error),
}

/// Seconds suffice for a validity, and an error's text should not need a calendar to be read.
#[must_use]
pub fn rfc3339(time: SystemTime) -> String {
    let seconds = material::unix_seconds(time);
    x509_parser::time::ASN1Time::from_timestamp(seconds)
        .map_or_else(|_| format!("{seconds} s after 1970"), |time| time.to_string())
}
