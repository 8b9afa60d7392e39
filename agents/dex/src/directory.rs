//! Whether a directory answers, and takes the account that searches.

use std::time::Duration;

use api::Ldap;
use render::dex::Secrets;
use rustls_pki_types::ServerName;
use tokio::{io::AsyncWriteExt as _, time};
use tokio_rustls::TlsConnector;

use crate::{
    destinations::Destinations,
    https,
    ldap::{self, Request},
};

/// Within this time a directory has answered.
const ANSWER: Duration = Duration::from_secs(5);
/// The result code of a directory for a wrong name or password (RFC 4511).
const INVALID_CREDENTIALS: u32 = 49;

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
        match self.code(&account, &password, destinations).await? {
            0 => Ok(()),
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
    use std::time::SystemTime;

    use tokio::{io::AsyncReadExt as _, net::TcpListener};

    use runtime::resolver::Resolver;

    use super::*;
    use crate::certificates::{self, Names, Stored};

    #[tokio::test]
    async fn a_directory_that_answers_nonsense_is_unreachable() {
        let made = certificates::renewed(Stored::default(), None, &Names::default(), SystemTime::now());
        let authority = made.unwrap().1.bundle;
        for (answer, expected) in [
            (&[0x30, 0x00][..], "it answers nonsense"),
            (&[0x30, 0x80, 0x30, 0x80][..], "it answers nonsense"),
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
            let loopback = ["127.0.0.0/8".parse().unwrap()];
            let destinations = Destinations::new(Resolver::from_system().unwrap(), Some(&loopback), []);
            let (checked, _stream) = tokio::join!(bind.check(&destinations), serving);
            let Err(Error::Unreachable { reason, .. }) = checked else {
                panic!("{checked:?}");
            };
            assert_eq!(reason, expected);
        }
    }
}
