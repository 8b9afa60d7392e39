//! An accepted connection, as tonic wants it.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tonic::transport::server::Connected;

use super::material::Validity;
use super::peer::{Peer, PeerIdentity};
use crate::identity::Realm;

/// An accepted connection. It ends, at the latest, when the certificate that it was opened with expires.
#[derive(Debug)]
pub struct Connection {
    io: Either<Box<TlsStream<TcpStream>>, TcpStream>,
    peer: Peer,
    expiry: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    pub(super) fn plaintext(stream: TcpStream, address: SocketAddr) -> Self {
        let peer = Peer::new(address, PeerIdentity::PlaintextLoopback);
        Self {
            io: Either::Right(stream),
            peer,
            expiry: None,
        }
    }

    pub(super) fn verified(
        stream: TlsStream<TcpStream>,
        address: SocketAddr,
        realm: &Realm,
    ) -> Result<Self, crate::identity::Error> {
        let (_, session) = stream.get_ref();
        // The handshake demands a certificate; without one this refuses like any unreadable one.
        let leaf = session
            .peer_certificates()
            .and_then(<[_]>::first)
            .cloned()
            .unwrap_or_else(|| Vec::new().into());
        let caller = Arc::new(realm.caller_of(&leaf)?);
        let Validity {
            not_before: _,
            not_after,
        } = Validity::of(&leaf)?;
        let rest = not_after.duration_since(SystemTime::now()).unwrap_or_default();
        Ok(Self {
            peer: Peer::new(address, PeerIdentity::Verified(caller)),
            io: Either::Left(Box::new(stream)),
            expiry: Some(Box::pin(sleep(rest))),
        })
    }

    /// Who is at the other end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    fn expired(&mut self, cx: &mut Context<'_>) -> bool {
        self.expiry
            .as_mut()
            .is_some_and(|expiry| expiry.as_mut().poll(cx).is_ready())
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.expired(cx) {
            tracing::info!(peer = %self.peer, "closing: the certificate of the connection has expired");
            // Polled once more it would panic.
            self.expiry = None;
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the peer's certificate has expired",
            )));
        }
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
