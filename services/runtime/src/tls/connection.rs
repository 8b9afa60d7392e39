//! An accepted connection, as tonic wants it.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
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
    /// The timer of the present pause in reading.
    pause: Option<Pin<Box<Sleep>>>,
    /// Why the connection has ended; `None` while it is open.
    over: Option<&'static str>,
    /// Counts the connection among those of its identity; `None` if connections are not counted.
    held: Option<Held>,
}

/// What ends a connection, whatever its client does.
#[derive(Debug)]
enum End {
    /// The certificate that it was opened with expires.
    Expiry(Pin<Box<Sleep>>),
    /// The server no longer trusts the certificate that it was opened with.
    Withdrawal(Withdrawal),
    /// The server has told the client to end it, and its time for that is over.
    Age(Pin<Box<Sleep>>),
    /// Its identity, or its site, has as many newer ones as it may have.
    Replaced(Pin<Box<WaitForCancellationFutureOwned>>),
    /// The server closes all connections of its round.
    Cut(Pin<Box<WaitForCancellationFutureOwned>>),
    /// Its peer exceeds its limits by far.
    Excess(Pin<Box<WaitForCancellationFutureOwned>>),
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
                "the peer's certificate, or the CA that issued it, is no longer trusted",
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
                "the connection did not close in time after the server sent GOAWAY",
            ),
            Self::Excess(excess) => (
                excess.as_mut().poll(cx),
                "the peer exceeds its limits by far, or does not read its answers",
            ),
        };
        ended.map(|()| why)
    }
}

/// Why a connection is refused after its handshake.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    /// Its certificate is no longer trusted.
    #[error("the certificate is not trusted")]
    Trust(#[from] rustls::Error),
    /// Its certificate cannot be read.
    #[error("the certificate cannot be read")]
    Certificate(#[from] crate::identity::Error),
}

impl Connection {
    pub(super) fn plaintext(stream: TcpStream, address: SocketAddr) -> Self {
        let peer = Peer::new(address, PeerIdentity::PlaintextLoopback);
        Self {
            io: Either::Right(stream),
            ends: vec![End::Excess(Box::pin(peer.throttle().disconnected()))],
            peer,
            pause: None,
            over: None,
            held: None,
        }
    }

    pub(super) fn verified(
        stream: TlsStream<TcpStream>,
        address: SocketAddr,
        tls: &ServerTls,
    ) -> Result<Self, Refused> {
        // Subscribed before the second verification, so that every later change of the trusted files is noticed.
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
        let peer = Peer::new(address, PeerIdentity::Verified(caller));
        let excess = Box::pin(peer.throttle().disconnected());
        Ok(Self {
            peer,
            pause: None,
            io: Either::Left(Box::new(stream)),
            ends: vec![
                End::Expiry(Box::pin(sleep(rest))),
                End::Withdrawal(Withdrawal(withdrawn)),
                End::Excess(excess),
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

    /// The same connection, which is closed at `last`, or earlier when `cut` is cancelled.
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

    /// Completes when bytes of the peer may be read.
    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(until) = self.peer.throttle().paused() {
            let pause = self.pause.get_or_insert_with(|| Box::pin(sleep_until(until)));
            if pause.deadline() != until {
                pause.as_mut().reset(until);
            }
            ready!(pause.as_mut().poll(cx));
        }
        self.pause = None;
        Poll::Ready(())
    }

    /// An error once the connection has ended. Writes check it too: a write that waits for the peer would keep the connection open.
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
        ready!(self.poll_pause(cx));
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

    /// A connection, and its client.
    async fn pair() -> (TcpStream, Connection) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (stream, peer) = accepted.unwrap();
        (client.unwrap(), Connection::plaintext(stream, peer))
    }

    #[tokio::test]
    async fn nothing_is_read_during_a_pause_and_all_is_written() {
        const PAUSE: Duration = Duration::from_millis(500);
        let (mut client, mut connection) = pair().await;
        let begun = Instant::now();
        connection.peer().pause(begun + PAUSE);
        connection.peer().pause(begun + PAUSE / 2);
        client.write_u8(1).await.unwrap();
        connection.write_all(b"written").await.unwrap();
        client.read_exact(&mut [0; 7]).await.unwrap();
        assert!(begun.elapsed() < PAUSE, "{:?}", begun.elapsed());
        // It is longer once somebody waits for it.
        let peer = connection.peer().clone();
        let lengthen = async { peer.pause(begun + 8 * PAUSE) };
        let (read, ()) = tokio::join!(connection.read_u8(), lengthen);
        assert_eq!(read.unwrap(), 1);
        // As long as a pause may be.
        let took = begun.elapsed();
        assert!((2 * PAUSE..7 * PAUSE).contains(&took), "{took:?}");
    }

    #[tokio::test]
    async fn a_connection_of_a_peer_with_too_much_ends() {
        let (_client, mut connection) = pair().await;
        let peer = connection.peer().clone();
        let disconnect = async {
            sleep(Duration::from_millis(20)).await;
            assert!(peer.disconnect() && !peer.disconnect());
        };
        let (read, ()) = tokio::join!(connection.read_u8(), disconnect);
        let error = read.unwrap_err();
        assert!(error.to_string().contains("exceeds its limits"), "{error}");
        connection.write_u8(1).await.unwrap_err();
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
