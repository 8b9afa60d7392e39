//! An accepted connection, as tonic wants it.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use super::ServerTls;
use super::connections::Held;
use super::material::Validity;
use super::peer::{Peer, PeerIdentity};

/// An accepted connection. It ends, at the latest, when the certificate that it was opened with expires.
#[derive(Debug)]
pub struct Connection {
    io: Either<Box<TlsStream<TcpStream>>, TcpStream>,
    peer: Peer,
    ends: Vec<End>,
    /// Why it is over.
    over: Option<&'static str>,
    /// Among the connections of its identity; `None` where nobody counts them.
    held: Option<Held>,
}

/// What ends a connection, whatever its client does.
#[derive(Debug)]
enum End {
    /// The certificate that it was opened with expires.
    Expiry(Pin<Box<Sleep>>),
    /// The certificate that it was opened with is not believed any more.
    Withdrawal(Withdrawal),
    /// It has been told to end before, and had its time.
    Age(Pin<Box<Sleep>>),
    /// Its identity, or its site, has as many newer ones as it may have.
    Replaced(Pin<Box<WaitForCancellationFutureOwned>>),
    /// The same, for a cause that concerns all connections.
    Cut(Pin<Box<WaitForCancellationFutureOwned>>),
}

struct Withdrawal(Pin<Box<dyn Future<Output = ()> + Send + Sync>>);

impl std::fmt::Debug for Withdrawal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Withdrawal").finish_non_exhaustive()
    }
}

impl End {
    /// Why the connection is over, once it is.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<&'static str> {
        let (ended, why) = match self {
            Self::Expiry(expiry) => (expiry.as_mut().poll(cx), "the peer's certificate has expired"),
            Self::Withdrawal(Withdrawal(withdrawn)) => (
                withdrawn.as_mut().poll(cx),
                "the peer's certificate, or who issued it, is not trusted any more",
            ),
            Self::Age(age) => (
                age.as_mut().poll(cx),
                "the connection has reached its maximum age",
            ),
            Self::Replaced(replaced) => (
                replaced.as_mut().poll(cx),
                "newer connections of the identity, or of its site, have reached their limit",
            ),
            Self::Cut(cut) => (
                cut.as_mut().poll(cx),
                "the connection did not close in time after the server had asked for it",
            ),
        };
        ended.map(|()| why)
    }
}

/// Why a connection with its handshake done is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    /// It is not believed any more.
    #[error("the certificate is not trusted")]
    Trust(#[from] rustls::Error),
    /// It cannot be read.
    #[error("the certificate cannot be read")]
    Certificate(#[from] crate::identity::Error),
}

impl Connection {
    pub(super) fn plaintext(stream: TcpStream, address: SocketAddr) -> Self {
        let peer = Peer::new(address, PeerIdentity::PlaintextLoopback);
        Self {
            io: Either::Right(stream),
            peer,
            ends: Vec::new(),
            over: None,
            held: None,
        }
    }

    pub(super) fn verified(
        stream: TlsStream<TcpStream>,
        address: SocketAddr,
        tls: &ServerTls,
    ) -> Result<Self, Refused> {
        // Watched before it is verified again: whatever comes after is noticed.
        let changes = tls.0.changes();
        let (_, session) = stream.get_ref();
        // The handshake demands a certificate; without one this refuses like any unreadable one.
        let chain: Vec<_> = session.peer_certificates().unwrap_or_default().to_vec();
        let caller = Arc::new(tls.verify(&chain)?);
        let leaf = chain.first().cloned().unwrap_or_else(|| Vec::new().into());
        let Validity {
            not_before: _,
            not_after,
        } = Validity::parse(&leaf)?;
        let rest = not_after.duration_since(SystemTime::now()).unwrap_or_default();
        let withdrawn = Box::pin(tls.clone().withdrawn(changes, chain));
        Ok(Self {
            peer: Peer::new(address, PeerIdentity::Verified(caller)),
            io: Either::Left(Box::new(stream)),
            ends: vec![
                End::Expiry(Box::pin(sleep(rest))),
                End::Withdrawal(Withdrawal(withdrawn)),
            ],
            over: None,
            held: None,
        })
    }

    /// Who is at the other end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The same connection, which is cut at `last` or when `cut` is cancelled at the latest.
    pub(crate) fn ending(mut self, last: Instant, cut: CancellationToken) -> Self {
        let cut = Box::pin(cut.cancelled_owned());
        self.ends
            .extend([End::Age(Box::pin(sleep_until(last))), End::Cut(cut)]);
        self
    }

    /// The same connection, counted among those of its identity.
    pub(super) fn held(mut self, held: Held) -> Self {
        self.ends.push(End::Replaced(Box::pin(held.replaced())));
        Self {
            held: Some(held),
            ..self
        }
    }

    /// An error once the connection is over. It counts for writes too: of a peer that does not read, HTTP/2 reads nothing either
    /// while a write waits.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.over.is_none() {
            self.over = self.ends.iter_mut().find_map(|end| match end.poll(cx) {
                Poll::Ready(why) => Some(why),
                Poll::Pending => None,
            });
            if let Some(why) = self.over {
                // Polled once more they would panic.
                self.ends.clear();
                let line = |held: &Held| held.line(self.peer.address().ip());
                if let Some(withheld) = self.held.as_ref().map_or(Some(0), line) {
                    tracing::info!(peer = %self.peer, why, withheld, "closing");
                }
            }
        }
        match self.over {
            Some(why) => Err(io::Error::new(io::ErrorKind::TimedOut, why)),
            None => Ok(()),
        }
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

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_connection_ends_at_its_age_whatever_its_client_does() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (soon, never) = (Duration::from_millis(20), Duration::from_hours(1));
        for (last, cut, why) in [
            (soon, never, "maximum age"),
            (never, soon, "did not close in time"),
        ] {
            let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
            let (client, (stream, peer)) = (client.unwrap(), accepted.unwrap());
            let token = CancellationToken::new();
            let connection = Connection::plaintext(stream, peer);
            let mut connection = connection.ending(Instant::now() + last, token.clone());
            let (read, ()) = tokio::join!(connection.read_u8(), async {
                sleep(cut.min(2 * soon)).await;
                if cut == soon {
                    token.cancel();
                }
            });
            let error = read.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert!(error.to_string().contains(why), "{error}");
            drop(client);
        }
    }
    #[tokio::test]
    async fn a_connection_ends_while_its_peer_does_not_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (client, (stream, peer)) = (client.unwrap(), accepted.unwrap());
        let (never, cut) = (Duration::from_hours(1), CancellationToken::new());
        let connection = Connection::plaintext(stream, peer);
        let mut connection = connection.ending(Instant::now() + never, cut.clone());
        let much = vec![0; 1 << 16];
        let writing = async {
            loop {
                if let Err(error) = connection.write_all(&much).await {
                    return error;
                }
            }
        };
        // By then the buffers of both ends are full.
        let cutting = async {
            sleep(Duration::from_millis(300)).await;
            cut.cancel();
        };
        let ended = async { tokio::join!(writing, cutting).0 };
        let ended = tokio::time::timeout(Duration::from_secs(10), ended).await;
        assert_eq!(ended.unwrap().kind(), io::ErrorKind::TimedOut);
        connection.flush().await.unwrap_err();
        connection.shutdown().await.unwrap_err();
        connection.read_u8().await.unwrap_err();
        drop(client);
    }
}
