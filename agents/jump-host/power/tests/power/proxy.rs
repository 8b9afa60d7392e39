//! An HTTP proxy that counts what it is asked for.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_util::task::AbortOnDropHandle;

/// A running proxy.
pub(crate) struct Proxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    _serving: AbortOnDropHandle<()>,
}

impl Proxy {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let record = Arc::clone(&asked);
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let record = Arc::clone(&record);
                connections.spawn(async move {
                    // A client that goes away is no concern of the proxy's.
                    let _ = serve(stream, &record).await;
                });
            }
        });
        Self {
            address,
            asked,
            _serving: AbortOnDropHandle::new(serving),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The first line of each connection.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve(mut client: TcpStream, asked: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut buffer = Vec::new();
    while !buffer.ends_with(b"\r\n\r\n") {
        if client.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
    }
    let head = String::from_utf8_lossy(&buffer).into_owned();
    let line = head.lines().next().unwrap_or_default().to_owned();
    asked.lock().unwrap().push(line.clone());
    let target = line.split(' ').nth(1).unwrap_or_default();
    if line.starts_with("CONNECT ") {
        let mut server = TcpStream::connect(target).await?;
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
        copy_bidirectional(&mut client, &mut server).await?;
        return Ok(());
    }
    // One request, whose answer ends the connection.
    let uri: http::Uri = target.parse().map_err(std::io::Error::other)?;
    let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
    let mut server = TcpStream::connect(&authority).await?;
    let own = head.replacen(target, uri.path(), 1);
    server.write_all(own.as_bytes()).await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
