//! Accepting connections to the port: TLS without client certificates, since a call proves by its token who makes it.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures::{Stream, stream};
use runtime::quiet::Quiet;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tonic::transport::server::Connected;

use crate::connections::{Connections, Peer};

/// Timeout of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause before the next accept when the system is out of file descriptors or memory.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(500);

struct Accepting {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    connections: Connections,
    handshakes: JoinSet<Option<Connection>>,
    failed: Quiet,
}

/// Connections with their handshake done.
pub(crate) fn incoming(
    listener: TcpListener,
    acceptor: TlsAcceptor,
) -> impl Stream<Item = Result<Connection, Infallible>> + Send {
    let accepting = Accepting {
        listener,
        acceptor,
        connections: Connections::default(),
        handshakes: JoinSet::new(),
        failed: Quiet::default(),
    };
    stream::unfold(accepting, async |mut accepting| {
        let connection = accepting.next().await;
        Some((Ok(connection), accepting))
    })
}

impl Accepting {
    async fn next(&mut self) -> Connection {
        loop {
            tokio::select! {
                Some(done) = self.handshakes.join_next() => if let Ok(Some(connection)) = done {
                    return connection;
                },
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, address)) => self.accepted(stream, address),
                    Err(error) => {
                        if let Some(withheld) = self.failed.line() {
                            tracing::error!(%error, withheld, "connections to PowerService cannot be accepted");
                        }
                        sleep(ACCEPT_BACKOFF).await;
                    }
                },
            }
        }
    }

    fn accepted(&mut self, stream: TcpStream, address: SocketAddr) {
        let canonical = SocketAddr::new(address.ip().to_canonical(), address.port());
        let peer = self.connections.open(canonical);
        let acceptor = self.acceptor.clone();
        self.handshakes.spawn(async move {
            // Small requests are sent at once, without waiting for more bytes.
            let _ = stream.set_nodelay(true);
            let done = tokio::select! {
                done = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)) => done,
                () = peer.evicted() => return None,
            };
            match done {
                Ok(Ok(io)) => Some(Connection::new(io, peer)),
                Ok(Err(error)) => {
                    tracing::debug!(%address, %error, "the TLS handshake failed");
                    None
                }
                Err(_elapsed) => None,
            }
        });
    }
}

/// Completes with the reason when a connection has to be closed.
type CloseReason = Pin<Box<dyn Future<Output = &'static str> + Send>>;

/// A connection, as tonic wants it.
pub(crate) struct Connection {
    io: Box<TlsStream<TcpStream>>,
    peer: Peer,
    over: Option<CloseReason>,
}

impl Connection {
    fn new(io: TlsStream<TcpStream>, peer: Peer) -> Self {
        Self {
            io: Box::new(io),
            over: Some(Box::pin(peer.clone().close_reason())),
            peer,
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl Connection {
    /// An error once the connection is over, also for writes: while a write waits for a peer that does not read, HTTP/2 reads nothing either.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(over) = self.over.as_mut() else {
            return Err(io::ErrorKind::TimedOut.into());
        };
        let Poll::Ready(why) = over.as_mut().poll(cx) else {
            return Ok(());
        };
        tracing::debug!(address = %self.peer.address(), why, "closing a connection to PowerService");
        self.over = None;
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
