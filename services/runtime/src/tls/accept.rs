//! Accepting connections for tonic.
//!
//! tonic's own TLS can neither reload certificates nor name a peer by its URI, so connections are accepted
//! here and handed over with the handshake done.
//!
//! Until its handshake is done a peer is a stranger. Strangers share the handshake slots ([`ConnectionSlots`]), and each address may fail, and each
//! identity may connect again, so often ([`HandshakeRate`]); identities share the connections ([`Connections`]), each of which belongs to the one
//! that has proven to be it.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::Stream;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::connection::Connection;
use super::connections::Connections;
use super::handshake_rate::HandshakeRate;
use super::refusal::{claimed, is_of_identity, readable};
use super::reload::{Outcome, Reloader, Side, TlsMetrics};
use super::{Error, ServerTls, ServerTlsArgs};
use crate::connection_slots::{ConnectionSlot, ConnectionSlots};
use crate::error_chain::chain;
use crate::identity::Realm;
use crate::quiet::{Quiet, QuietByAddress};
use crate::telemetry::AUDIT;

/// How long a client may take for its handshake: one that takes longer has crashed or is hostile.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the server waits for a refused client to read the refusal and close the connection.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of bytes that the server reads, and drops, from a refused client.
const MAX_REFUSED_BYTES: u64 = 64 * 1024;
/// Pause before the next accept when the system is out of file descriptors or memory.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(500);
/// Idle time before the kernel probes whether the peer is still there, and between its probes.
pub(super) const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// How many connections a port serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Handshakes under way at once. The next connection takes the place of one that is silent.
    pub handshakes: usize,
    /// Connections of one identity. The next one replaces the oldest.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshakes: 256,
            connections: 64,
        }
    }
}

/// An opened gRPC port.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    address: SocketAddr,
    tls: Option<ServerTls>,
    limits: Limits,
}

impl Listener {
    /// Opens the port. The [`Reloader`], which is there unless plaintext was requested, must be run.
    ///
    /// # Errors
    /// When the address cannot be listened on, the certificates are not usable, or plaintext was requested
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
        let listener = Self {
            tcp,
            address,
            tls,
            limits: Limits::default(),
        };
        Ok((listener, reloader))
    }

    /// The same port with other limits.
    #[must_use]
    pub fn limited(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Where it listens; with port 0 given, the port that was chosen.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepted connections with their handshake done, for `serve_with_incoming`. It never ends and never
    /// fails: a peer that is refused is logged and counted.
    pub fn incoming(self) -> impl Stream<Item = Result<Connection, Infallible>> + Send + 'static {
        let Self {
            tcp,
            address: _,
            tls,
            limits: Limits {
                handshakes,
                connections,
            },
        } = self;
        let accepting = Accepting {
            tcp,
            tls,
            slots: ConnectionSlots::new(handshakes),
            connections: Connections::new(connections),
            rate: Arc::default(),
            log: Arc::default(),
            handshakes: JoinSet::new(),
        };
        futures::stream::unfold(accepting, async |mut accepting| {
            let connection = accepting.next().await;
            Some((Ok(connection), accepting))
        })
    }
}

/// What the accept loop logs about strangers: they decide how often it happens.
#[derive(Debug, Default)]
struct Log {
    accept: Quiet,
    failed: Quiet,
    refused: QuietByAddress,
    late: Quiet,
    evicted: Quiet,
    limited: QuietByAddress,
    replaced: Quiet,
}

struct Accepting {
    tcp: TcpListener,
    tls: Option<ServerTls>,
    slots: ConnectionSlots,
    connections: Connections,
    rate: Arc<HandshakeRate>,
    log: Arc<Log>,
    handshakes: JoinSet<Option<Connection>>,
}

impl Accepting {
    async fn next(&mut self) -> Connection {
        loop {
            let connection = tokio::select! {
                Some(done) = self.handshakes.join_next() => match done {
                    Ok(Some(connection)) => connection,
                    Ok(None) => continue,
                    Err(error) => {
                        tracing::error!(%error, "a handshake panicked");
                        continue;
                    }
                },
                (stream, address) = accept(&self.tcp, &self.log) => match &self.tls {
                    None => Connection::plaintext(stream, address),
                    Some(tls) => {
                        let slot = self.slots.take(address.ip());
                        let (tls, rate, log) = (tls.clone(), Arc::clone(&self.rate), Arc::clone(&self.log));
                        self.handshakes
                            .spawn(handshake(tls, stream, address, slot, rate, log));
                        continue;
                    }
                },
            };
            let (held, replaced) = self.connections.hold(connection.peer().identity());
            if replaced && let Some(withheld) = self.log.replaced.line() {
                tracing::warn!(
                    peer = %connection.peer(), limit = "connections", withheld,
                    "closing an older connection of the identity or of its site: it is at its limit"
                );
            }
            return connection.held(held);
        }
    }
}

/// The next connection, however long the system refuses to give one.
async fn accept(tcp: &TcpListener, log: &Log) -> (TcpStream, SocketAddr) {
    loop {
        match tcp.accept().await {
            Ok((stream, address)) => match tune(&stream) {
                Ok(()) => return (stream, address),
                Err(error) => {
                    tracing::debug!(%address, %error, "the peer closed the connection before it was accepted");
                }
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
                if let Some(withheld) = log.accept.line() {
                    tracing::error!(%error, withheld, "connections cannot be accepted");
                }
                sleep(ACCEPT_BACKOFF).await;
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

async fn handshake(
    tls: ServerTls,
    stream: TcpStream,
    address: SocketAddr,
    slot: ConnectionSlot,
    rate: Arc<HandshakeRate>,
    log: Arc<Log>,
) -> Option<Connection> {
    let finished = async {
        // Until it says something it costs nothing but the socket. An error, or an end, is found again by the handshake.
        if let Ok(1..) = stream.peek(&mut [0]).await {
            slot.spoke();
            if !rate.begin(address.ip(), Instant::now()) {
                if let Some(withheld) = log.limited.line(address.ip()) {
                    tracing::warn!(%address, withheld, "closed without a handshake: too many from this address have failed, or too many are of one identity or site");
                }
                return (Outcome::Limited, None);
            }
        }
        let (outcome, connection) = finish(&tls, stream, address, &log).await;
        if let Some(connection) = &connection {
            rate.succeeded(address.ip(), connection.peer().identity(), Instant::now());
        }
        (outcome, connection)
    };
    let (outcome, connection) = tokio::select! {
        biased;
        () = slot.evicted() => {
            if let Some(withheld) = log.evicted.line() {
                tracing::info!(%address, withheld, "closed in favor of a newer connection: no handshake was in progress");
            }
            (Outcome::Evicted, None)
        }
        finished = timeout(HANDSHAKE_TIMEOUT, finished) => finished.unwrap_or_else(|_elapsed| {
            if let Some(withheld) = log.late.line() {
                tracing::warn!(%address, after = ?HANDSHAKE_TIMEOUT, withheld, "the TLS handshake took too long");
            }
            (Outcome::TimedOut, None)
        }),
    };
    tls.0.metrics().handshake(Side::Server, outcome);
    connection
}

async fn finish(
    tls: &ServerTls,
    stream: TcpStream,
    address: SocketAddr,
    log: &Log,
) -> (Outcome, Option<Connection>) {
    let accepted = TlsAcceptor::from(tls.config()).accept(stream).into_fallible();
    let (accepted, identity) = claimed(accepted).await;
    match accepted {
        Ok(stream) => match Connection::verified(stream, address, tls) {
            Ok(connection) => (Outcome::Ok, Some(connection)),
            Err(error) => {
                audit(address, identity.as_deref(), &error, log);
                (Outcome::Failed, None)
            }
        },
        Err((error, stream)) => {
            if is_of_identity(&error) {
                audit(address, identity.as_deref(), &readable(error), log);
            } else if let Some(withheld) = log.failed.line() {
                tracing::warn!(%address, error = &error as &dyn StdError, withheld, "the TLS handshake failed");
            }
            part(stream).await;
            (Outcome::Failed, None)
        }
    }
}

/// Records in the audit log who was refused, and why. The identity is what the certificate names; nothing proves it.
fn audit(address: SocketAddr, identity: Option<&str>, error: &dyn StdError, log: &Log) {
    if let Some(withheld) = log.refused.line(address.ip()) {
        tracing::info!(
            target: AUDIT,
            identity = identity.unwrap_or("none"),
            address = %address,
            call = "TLS handshake",
            outcome = "UNAUTHENTICATED",
            why = chain(error),
            withheld,
            "denied",
        );
    }
}

/// Lets a refused client read the alert that says why.
///
/// A client in TLS 1.3 may have sent its first request before it hears of the refusal; closing a socket with
/// unread bytes resets the connection, and a reset discards the alert.
async fn part(mut stream: TcpStream) {
    let draining = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut (&mut stream).take(MAX_REFUSED_BYTES), &mut tokio::io::sink()).await
    };
    // Whether it worked is of no use to anyone: the connection is over.
    let _ = timeout(REFUSAL_TIMEOUT, draining).await;
}
