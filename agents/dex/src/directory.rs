//! Whether a directory answers, and takes the account that searches.

use std::time::Duration;

use api::Ldap;
use kit::tenant::destinations::Destinations;
use render::dex::Secrets;
use rustls_pki_types::ServerName;
use tokio::{io::AsyncWriteExt as _, time};
use tokio_rustls::TlsConnector;

use crate::{
    https,
    ldap::{self, Request},
};

/// Within this time a directory has answered.
const ANSWER: Duration = Duration::from_secs(5);
/// The result code of a directory for a wrong name or password (RFC 4511).
const INVALID_CREDENTIALS: u32 = 49;
/// Those of a directory that fails, or cannot answer now: operationsError, timeLimitExceeded, busy, unavailable and other. They say
/// nothing of the account.
const FAILS: [u32; 5] = [1, 3, 51, 52, 80];

/// What is asked of a directory. It holds a password, so it cannot be printed.
#[derive(Clone, Eq, PartialEq)]
pub struct Bind {
    host: String,
    port: u16,
    start_tls: bool,
    /// CA certificates (PEM); `None`: those that the machine trusts.
    authority: Option<String>,
    account: Option<(String, String)>,
}

/// Why a directory cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Error {
    /// It does not answer, or its certificate is not right.
    #[error("the directory {address} does not answer: {reason}")]
    Unreachable {
        /// Where it is.
        address: String,
        /// Why not.
        reason: String,
    },
    /// It refuses the account.
    #[error("the directory {address} refuses the bind as {account}: {reason}")]
    Refused {
        /// Where it is.
        address: String,
        /// Name of the account.
        account: String,
        /// What it answered.
        reason: String,
    },
}

impl Bind {
    /// As the connector binds.
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

    /// One of an account with this password.
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

    /// Binds once, in bounded time.
    ///
    /// # Errors
    /// When the directory cannot be used.
    pub async fn check(&self, destinations: &Destinations) -> Result<(), Error> {
        match time::timeout(ANSWER, self.bind(destinations)).await {
            Ok(checked) => checked,
            Err(_) => Err(self.unreachable(format!("no answer within {} s", ANSWER.as_secs()))),
        }
    }

    async fn bind(&self, destinations: &Destinations) -> Result<(), Error> {
        let (account, password) = self.account.clone().unwrap_or_default();
        let code = self.code(&account, &password, destinations).await?;
        self.judged(account, code)
    }

    /// What a result code means for the account.
    pub(crate) fn judged(&self, account: String, code: u32) -> Result<(), Error> {
        match code {
            0 => Ok(()),
            code if FAILS.contains(&code) => Err(self.unreachable(format!("result code {code}"))),
            // What else the directory answers is its own text, and nobody's to show.
            code => Err(Error::Refused {
                address: self.address(),
                account,
                reason: match code {
                    INVALID_CREDENTIALS => "invalid credentials".to_owned(),
                    code => format!("result code {code}"),
                },
            }),
        }
    }

    /// The result code of a bind.
    async fn code(&self, account: &str, password: &str, destinations: &Destinations) -> Result<u32, Error> {
        let unreachable =
            |error: &dyn std::error::Error| self.unreachable(runtime::error_chain::chain(error));
        let tls = match &self.authority {
            Some(authority) => https::trusting(authority),
            None => https::trusting_as_the_machine(),
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
                code => return Err(self.unreachable(format!("it refuses StartTLS: result code {code}"))),
            }
        }
        let mut stream = TlsConnector::from(tls)
            .connect(name, stream)
            .await
            .map_err(|error| unreachable(&error))?;
        let code = Request::bind(account, password).send(&mut stream).await;
        let code = code.map_err(|error| unreachable(&error))?;
        // The connection ends with this in any case.
        if stream.write_all(&ldap::unbind()).await.is_ok() {
            let _ = stream.shutdown().await;
        }
        Ok(code)
    }

    fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    fn unreachable(&self, reason: String) -> Error {
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
    use crate::certificates::{self, Names, Stored};

    fn destinations() -> Destinations {
        let loopback = ["127.0.0.0/8".parse().unwrap()];
        Destinations::new(Resolver::from_system().unwrap(), Some(&loopback), [])
    }

    #[tokio::test]
    async fn a_directory_that_is_not_available_refuses_no_account() {
        let names = Names::from_hosts(["127.0.0.1"]);
        let made = certificates::renewed(Stored::default(), None, &names, SystemTime::now());
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
        for (code, is_refused) in [(52, false), (49, true)] {
            let serving = async {
                let (stream, _) = listener.accept().await.unwrap();
                let mut stream = acceptor.accept(stream).await.unwrap();
                let mut request = [0; 29];
                stream.read_exact(&mut request).await.unwrap();
                let answer = [0x30, 12, 2, 1, 2, 0x61, 7, 10, 1, code, 4, 0, 4, 0];
                stream.write_all(&answer).await.unwrap();
                stream
            };
            let destinations = destinations();
            let (checked, _stream) = tokio::join!(bind.check(&destinations), serving);
            match checked.unwrap_err() {
                Error::Refused { reason, .. } if is_refused => assert_eq!(reason, "invalid credentials"),
                Error::Unreachable { reason, .. } if !is_refused => assert_eq!(reason, "result code 52"),
                other => panic!("{code}: {other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn a_directory_that_answers_nonsense_is_unreachable() {
        let made = certificates::renewed(Stored::default(), None, &Names::default(), SystemTime::now());
        let authority = made.unwrap().1.bundle;
        for (answer, expected) in [
            (&[0x30, 0x00][..], "its answer is not LDAP"),
            (&[0x30, 0x80, 0x30, 0x80][..], "its answer is not LDAP"),
            (
                &[
                    0x30, 15, 2, 1, 1, 0x78, 10, 10, 1, 2, 4, 0, 4, 3, b'a', 0x1b, b'[',
                ][..],
                "it refuses StartTLS: result code 2",
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
