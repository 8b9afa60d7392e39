//! Whether a directory answers, and takes the account that searches.

use std::time::Duration;

use api::{Ldap, host_port};
use kit::tenant::destinations::Destinations;
use render::dex::Secrets;
use rustls_pki_types::ServerName;
use sha2::{Digest as _, Sha256};
use tokio::{
    io::AsyncWriteExt as _,
    net::TcpStream,
    time::{self, Instant},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    https,
    ldap::{self, Request},
};

/// How long connecting to a directory may take, and its answer to the bind.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The result code of a directory for a wrong name or password (RFC 4511).
const INVALID_CREDENTIALS: u32 = 49;
/// The result codes of a directory that fails, or cannot answer now: operationsError, timeLimitExceeded, busy, unavailable and other. They do not
/// depend on the account.
const UNAVAILABLE_CODES: [u32; 5] = [1, 3, 51, 52, 80];

/// A bind at a directory. It holds a password, so it cannot be printed.
#[derive(Clone, Eq, PartialEq)]
pub struct Bind {
    host: String,
    port: u16,
    start_tls: bool,
    /// CA certificates (PEM); `None`: those that the system of the agent trusts.
    authority: Option<String>,
    account: Option<(String, String)>,
}

/// Digests that identify a bind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Digests {
    /// Digest of the account, its password and the directory: what may be locked. At another port of the host may be another directory.
    pub(crate) account: Digest,
    /// Digest of this and of how the agent connects to the directory: equal concurrent binds are one.
    pub(crate) whole: Digest,
}

/// A SHA-256 digest.
pub(crate) type Digest = [u8; 32];

/// Why a directory cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Error {
    /// It does not answer, or its certificate is not right.
    #[error("the directory {address} does not answer: {reason}")]
    Unreachable {
        /// `HOST:PORT` of the directory.
        address: String,
        /// Why it does not answer.
        reason: String,
    },
    /// The agent sent it the password of the account, and it answers that it cannot check it now.
    #[error("the directory {address} cannot check the bind now: {reason}")]
    Failed {
        /// `HOST:PORT` of the directory.
        address: String,
        /// The result code of its answer.
        reason: String,
    },
    /// The agent sent it the password of the account, and it has not answered, so that it may count the bind as a refused one.
    #[error("the directory {address} does not answer the bind as {account}: {reason}")]
    Unanswered {
        /// `HOST:PORT` of the directory.
        address: String,
        /// DN of the account.
        account: String,
        /// Why it does not answer.
        reason: String,
    },
    /// The directory refuses the account or its password.
    #[error("the directory {address} refuses the bind as {account}: {reason}")]
    Refused {
        /// `HOST:PORT` of the directory.
        address: String,
        /// DN of the account.
        account: String,
        /// The result code of its answer.
        reason: String,
    },
}

impl Bind {
    /// The bind that the connector makes.
    #[must_use]
    pub fn new(ldap: &Ldap, secrets: &Secrets) -> Self {
        let account = ldap.bind_dn().as_ref().zip(ldap.bind_password().as_ref());
        Self {
            host: ldap.address().host().to_owned(),
            port: ldap.address().port(),
            start_tls: *ldap.start_tls(),
            authority: ldap.root_ca().as_ref().map(|key| secrets.text(key).to_owned()),
            account: account.map(|(dn, key)| (dn.clone(), secrets.text(key).to_owned())),
        }
    }

    /// A bind of some account with this password.
    #[cfg(test)]
    pub(crate) fn with_password(password: &str) -> Self {
        Self {
            host: "ldap.example.org".to_owned(),
            port: 636,
            start_tls: false,
            authority: None,
            account: Some(("cn=search".to_owned(), password.to_owned())),
        }
    }

    pub(crate) fn digests(&self) -> Digests {
        let Self {
            host,
            port,
            start_tls,
            authority,
            account,
        } = self;
        let (dn, password) = account.as_ref().map(|(dn, password)| (dn, password)).unzip();
        let digest_parts = |parts: &[Option<&String>]| {
            let mut digest = Sha256::new();
            for part in parts {
                // No part can continue another.
                digest.update(part.map_or(u64::MAX, |part| part.len() as u64).to_be_bytes());
                digest.update(part.map(String::as_bytes).unwrap_or_default());
            }
            digest.finalize().into()
        };
        let place = format!("{} {port}", host.to_lowercase());
        let start_tls = start_tls.to_string();
        let whole = digest_parts(&[Some(&place), authority.as_ref(), Some(&start_tls), dn, password]);
        // Attribute types and most values of a DN are the same in any case.
        let name = dn.map(|dn| dn.to_lowercase());
        Digests {
            // Nobody can lock an anonymous one: it waits only for those that are equal to it.
            account: name.map_or(whole, |name| digest_parts(&[Some(&place), Some(&name), password])),
            whole,
        }
    }

    /// Binds once, in bounded time.
    ///
    /// # Errors
    /// When the directory cannot be used.
    pub async fn check(&self, destinations: &Destinations) -> Result<(), Error> {
        let late = || format!("no answer within {} s", ANSWER_TIMEOUT.as_secs());
        let connected = time::timeout(ANSWER_TIMEOUT, self.connect(destinations)).await;
        let mut stream = connected.unwrap_or_else(|_| Err(self.unreachable(late())))?;
        let (account, password) = self.account.clone().unwrap_or_default();
        // However long the connection took.
        let until = Instant::now() + ANSWER_TIMEOUT;
        let request = Request::bind(&account, &password);
        let reason = match time::timeout_at(until, request.send(&mut stream)).await {
            Ok(Ok(code)) => {
                let unbound = async {
                    if stream.write_all(&ldap::unbind()).await.is_ok() {
                        let _ = stream.shutdown().await;
                    }
                };
                // The connection ends with this in any case.
                let _ = time::timeout_at(until, unbound).await;
                return self.bind_result(account, code);
            }
            Ok(Err(error)) => runtime::error_chain::chain(&error),
            Err(_) => late(),
        };
        Err(self.unanswered(reason))
    }

    /// The error of a bind that has no answer after the password was sent, if there is one.
    pub(crate) fn unanswered(&self, reason: String) -> Error {
        let Some((account, _)) = &self.account else {
            return self.unreachable(reason);
        };
        Error::Unanswered {
            address: self.address(),
            account: account.clone(),
            reason,
        }
    }

    /// The result of a bind that the directory answered with this result code.
    pub(crate) fn bind_result(&self, account: String, code: u32) -> Result<(), Error> {
        match code {
            0 => Ok(()),
            code if UNAVAILABLE_CODES.contains(&code) => Err(Error::Failed {
                address: self.address(),
                reason: format!("result code {code}"),
            }),
            // The rest of the answer is text of the directory's choice, which no condition shows.
            code => Err(Error::Refused {
                address: self.address(),
                account: if account.is_empty() {
                    "anonymous".to_owned()
                } else {
                    account
                },
                reason: match code {
                    INVALID_CREDENTIALS => "invalid credentials".to_owned(),
                    code => format!("result code {code}"),
                },
            }),
        }
    }

    /// A connection on which no password was sent yet.
    async fn connect(&self, destinations: &Destinations) -> Result<TlsStream<TcpStream>, Error> {
        let unreachable =
            |error: &dyn std::error::Error| self.unreachable(runtime::error_chain::chain(error));
        let tls = match &self.authority {
            Some(authority) => https::tls_config(authority),
            None => https::system_tls_config(),
        };
        let tls = tls.map_err(|error| unreachable(&error))?;
        let name = ServerName::try_from(self.host.clone()).map_err(|error| unreachable(&error))?;
        let mut stream = destinations
            .connect(&self.host, self.port)
            .await
            .map_err(|error| unreachable(&error))?;
        if self.start_tls {
            let code = Request::start_tls().send(&mut stream).await;
            match code.map_err(|error| unreachable(&error))? {
                0 => {}
                code => {
                    return Err(
                        self.unreachable(format!("the directory refuses StartTLS: result code {code}"))
                    );
                }
            }
        }
        let connected = TlsConnector::from(tls).connect(name, stream).await;
        connected.map_err(|error| unreachable(&error))
    }

    fn address(&self) -> String {
        host_port(&self.host, self.port)
    }

    pub(crate) fn unreachable(&self, reason: String) -> Error {
        Error::Unreachable {
            address: self.address(),
            reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::SystemTime};

    use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
    use tokio::{io::AsyncReadExt as _, net::TcpListener};
    use tokio_rustls::TlsAcceptor;

    use runtime::resolver::Resolver;

    use super::*;
    use crate::certificates::{self, CertificateSet, Names};

    fn destinations() -> Destinations {
        let loopback = ["127.0.0.0/8".parse().unwrap()];
        Destinations::new(Resolver::from_system().unwrap(), Some(&loopback), [])
    }

    #[tokio::test]
    async fn a_directory_that_is_not_available_refuses_no_account() {
        let names = Names::from_hosts(["127.0.0.1"]);
        let made = certificates::renew(CertificateSet::default(), None, &names, SystemTime::now());
        let certificate = made.unwrap().1;
        let chain = CertificateDer::pem_slice_iter(certificate.chain.as_bytes());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                chain.map(Result::unwrap).collect(),
                PrivateKeyDer::from_pem_slice(certificate.key.as_bytes()).unwrap(),
            )
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let bind = Bind {
            host: "127.0.0.1".to_owned(),
            port: listener.local_addr().unwrap().port(),
            start_tls: false,
            authority: Some(certificate.bundle),
            account: Some(("cn=search".to_owned(), "secret".to_owned())),
        };
        let result = |code| vec![0x30, 12, 2, 1, 2, 0x61, 7, 10, 1, code, 4, 0, 4, 0];
        for (answer, expected) in [
            (result(52), "cannot check the bind now: result code 52"),
            (result(49), "refuses the bind as cn=search: invalid credentials"),
            // It has the password.
            (
                vec![],
                "does not answer the bind as cn=search: the directory closed the connection",
            ),
        ] {
            let serving = async {
                let (stream, _) = listener.accept().await.unwrap();
                let mut stream = acceptor.accept(stream).await.unwrap();
                let mut request = [0; 29];
                stream.read_exact(&mut request).await.unwrap();
                stream.write_all(&answer).await.unwrap();
                stream.shutdown().await.unwrap();
                stream
            };
            let destinations = destinations();
            let (checked, _stream) = tokio::join!(bind.check(&destinations), serving);
            let why = checked.unwrap_err().to_string();
            assert!(why.ends_with(expected), "{why}");
        }
    }

    #[test]
    fn binds_are_told_apart_by_account_and_by_connection() {
        let bind = Bind::with_password("secret");
        let with = |change: &dyn Fn(&mut Bind)| {
            let mut other = bind.clone();
            change(&mut other);
            other.digests()
        };
        let account = |dn: &str, password: &str| Some((dn.to_owned(), password.to_owned()));
        let spelled = with(&|bind| "LDAP.example.org".clone_into(&mut bind.host));
        assert_eq!(spelled, bind.digests());
        let same_account = [
            bind.digests(),
            with(&|bind| bind.start_tls = true),
            with(&|bind| bind.authority = Some(String::new())),
            with(&|bind| bind.account = account("CN=Search", "secret")),
        ];
        let others = [
            with(&|bind| "ldap.example.com".clone_into(&mut bind.host)),
            with(&|bind| bind.port = 389),
            with(&|bind| bind.account = None),
            with(&|bind| (bind.account, bind.start_tls) = (None, true)),
            with(&|bind| bind.account = account("cn=search", "")),
            with(&|bind| bind.account = account("cn=searchs", "ecret")),
        ];
        let count = |digests: &mut dyn Iterator<Item = Digest>| {
            let different: std::collections::BTreeSet<_> = digests.collect();
            different.len()
        };
        let all = || same_account.iter().chain(&others);
        assert_eq!(count(&mut same_account.iter().map(|bind| bind.account)), 1);
        assert_eq!(count(&mut all().map(|bind| bind.account)), 1 + others.len());
        assert_eq!(count(&mut all().map(|bind| bind.whole)), all().count());
        assert_eq!(bind.digests(), bind.clone().digests());
    }

    #[tokio::test]
    async fn a_directory_with_malformed_answers_is_unreachable() {
        let made = certificates::renew(
            CertificateSet::default(),
            None,
            &Names::default(),
            SystemTime::now(),
        );
        let authority = made.unwrap().1.bundle;
        for (answer, expected) in [
            (&[0x30, 0x00][..], "the answer is not LDAP"),
            (&[0x30, 0x80, 0x30, 0x80][..], "the answer is not LDAP"),
            (
                &[
                    0x30, 15, 2, 1, 1, 0x78, 10, 10, 1, 2, 4, 0, 4, 3, b'a', 0x1b, b'[',
                ][..],
                "the directory refuses StartTLS: result code 2",
            ),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let serving = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 31];
                stream.read_exact(&mut request).await.unwrap();
                stream.write_all(answer).await.unwrap();
                stream
            };
            let bind = Bind {
                host: "127.0.0.1".to_owned(),
                port,
                start_tls: true,
                authority: Some(authority.clone()),
                account: None,
            };
            let destinations = destinations();
            let (checked, _stream) = tokio::join!(bind.check(&destinations), serving);
            let Err(Error::Unreachable { reason, .. }) = checked else {
                panic!("{checked:?}");
            };
            assert_eq!(reason, expected);
        }
    }
}
