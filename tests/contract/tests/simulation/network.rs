//! gRPC over the simulated network.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use runtime::tls::{Peer, PeerIdentity};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::{Channel, Endpoint, Uri, server::Connected};
use turmoil::net::{TcpListener, TcpStream};

pub(crate) const PORT: u16 = 9000;

/// A connection that the scheduler has accepted.
pub(crate) struct Accepted {
    stream: TcpStream,
    peer: Peer,
}

impl Connected for Accepted {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Accepted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Connections as they come.
pub(crate) async fn listen() -> io::Result<impl futures::Stream<Item = io::Result<Accepted>>> {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
    Ok(futures::stream::unfold(listener, |listener| async move {
        let accepted = listener.accept().await.map(|(stream, address)| Accepted {
            stream,
            peer: Peer::new(address, PeerIdentity::PlaintextLoopback),
        });
        Some((accepted, listener))
    }))
}

/// A channel to the scheduler that connects again whenever it must, and does not wait long for answers.
pub(crate) fn channel() -> Channel {
    let connect = |_: Uri| async {
        let stream = TcpStream::connect(("scheduler", PORT)).await?;
        Ok::<_, io::Error>(TokioIo::new(stream))
    };
    Endpoint::from_static("http://scheduler:9000")
        .connect_timeout(Duration::from_millis(500))
        .http2_keep_alive_interval(Duration::from_millis(500))
        .keep_alive_timeout(Duration::from_millis(500))
        .keep_alive_while_idle(true)
        .connect_with_connector_lazy(tower::service_fn(connect))
}
