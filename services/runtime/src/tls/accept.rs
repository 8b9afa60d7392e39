//! Accepting connections for tonic.
//!
//! tonic's own TLS can neither reload certificates nor name a peer by its URI, so connections are accepted
//! here and handed over with the handshake done.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures::Stream;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::connection::Connection;
use super::reload::{Outcome, Reloader, Side, TlsMetrics};
use super::server::readable;
use super::{Error, ServerTls, ServerTlsArgs};
use crate::identity::Realm;

/// Handshakes under way at once. More wait in the kernel's backlog, which costs them little and us nothing.
const MAX_HANDSHAKES: usize = 256;
/// A client that takes longer is gone or means harm.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a refused client may take to read why and hang up, and how much of what it says is listened to.
const PARTING_TIMEOUT: Duration = Duration::from_secs(1);
const PARTING_BYTES: u64 = 64 * 1024;
/// How long to leave the listener alone when the system is out of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);
/// Idle time before the kernel probes whether the peer is still there, and between its probes.
pub(super) const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// An opened gRPC port.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    address: SocketAddr,
    tls: Option<ServerTls>,
}

impl Listener {
    /// Opens the port. The [`Reloader`], which is there unless plaintext was asked for, must be run.
    ///
    /// # Errors
    /// When the address cannot be listened on, the certificates are not usable, or plaintext was asked for
    /// on an address that is not loopback.
    pub async fn bind(
        address: SocketAddr,
        args: &ServerTlsArgs,
        realm: &Realm,
        metrics: &TlsMetrics,
    ) -> Result<(Self, Option<Reloader>), Error> {
        if args.plaintext_loopback && !address.ip().to_canonical().is_loopback() {
            return Err(Error::PlaintextNotLoopback {
                address: address.to_string(),
            });
        }
        let (tls, reloader) = ServerTls::load(args, realm, metrics)?.unzip();
        let fail = |source| Error::Listen { address, source };
        let tcp = TcpListener::bind(address).await.map_err(fail)?;
        let address = tcp.local_addr().map_err(fail)?;
        Ok((Self { tcp, address, tls }, reloader))
    }

    /// Where it listens; with port 0 given, the port that was chosen.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepted connections with their handshake done, for `serve_with_incoming`. It never ends and never
    /// fails: a peer that is refused is logged and counted.
    pub fn incoming(self) -> impl Stream<Item = Result<Connection, Infallible>> + Send + 'static {
        let Self { tcp, address: _, tls } = self;
        let accepting = Accepting {
            tcp,
            tls,
            handshakes: JoinSet::new(),
        };
        futures::stream::unfold(accepting, async |mut accepting| {
            let connection = accepting.next().await;
            Some((Ok(connection), accepting))
        })
    }
}

struct Accepting {
    tcp: TcpListener,
    tls: Option<ServerTls>,
    handshakes: JoinSet<Option<Connection>>,
}

impl Accepting {
    async fn next(&mut self) -> Connection {
        loop {
            let room = self.handshakes.len() < MAX_HANDSHAKES;
            tokio::select! {
                Some(done) = self.handshakes.join_next() => match done {
                    Ok(Some(connection)) => return connection,
                    Ok(None) => {}
                    Err(error) => tracing::error!(%error, "a handshake panicked"),
                },
                (stream, address) = accept(&self.tcp), if room => match &self.tls {
                    None => return Connection::plaintext(stream, address),
                    Some(tls) => {
                        self.handshakes.spawn(handshake(tls.clone(), stream, address));
                    }
                },
            }
        }
    }
}

/// The next connection, however long the system refuses to give one.
async fn accept(tcp: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match tcp.accept().await {
            Ok((stream, address)) => match tune(&stream) {
                Ok(()) => return (stream, address),
                Err(error) => tracing::debug!(%address, %error, "gone before it was accepted"),
            },
            // These are about one connection, which is gone.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionAborted
                        | io::ErrorKind::ConnectionReset
                        | io::ErrorKind::ConnectionRefused
                        | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => {
                tracing::error!(%error, "connections cannot be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// tonic leaves sockets that it did not accept itself as they are.
fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(TCP_KEEPALIVE)
        .with_interval(TCP_KEEPALIVE);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

async fn handshake(tls: ServerTls, stream: TcpStream, address: SocketAddr) -> Option<Connection> {
    let accepting = TlsAcceptor::from(tls.0.config()).accept(stream).into_fallible();
    let (outcome, connection) = match timeout(HANDSHAKE_TIMEOUT, accepting).await {
        Ok(Ok(stream)) => match Connection::verified(stream, address, tls.0.realm()) {
            Ok(connection) => (Outcome::Ok, Some(connection)),
            Err(error) => {
                tracing::warn!(%address, error = &error as &dyn StdError, "refused");
                (Outcome::Failed, None)
            }
        },
        Ok(Err((error, stream))) => {
            let error = readable(error);
            tracing::warn!(%address, error = &error as &dyn StdError, "the TLS handshake failed");
            part(stream).await;
            (Outcome::Failed, None)
        }
        Err(_elapsed) => {
            tracing::warn!(%address, after = ?HANDSHAKE_TIMEOUT, "the TLS handshake took too long");
            (Outcome::TimedOut, None)
        }
    };
    tls.0.metrics().handshake(Side::Server, outcome);
    connection
}

/// Lets a refused client read the alert that says why.
///
/// A client in TLS 1.3 may have sent its first request before it hears of the refusal; closing a socket with
/// unread bytes resets the connection, and a reset discards the alert.
async fn part(mut stream: TcpStream) {
    let draining = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut (&mut stream).take(PARTING_BYTES), &mut tokio::io::sink()).await
    };
    // Whether it worked is of no use to anyone: the connection is over.
    let _ = timeout(PARTING_TIMEOUT, draining).await;
}
