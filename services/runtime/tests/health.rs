//! The health port, and peers that want nothing of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its fixtures too")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use runtime::health::{HealthArgs, Server};
use runtime::metrics::Metrics;
use runtime::readiness::Readiness;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long a probe may take.
const GOAL: Duration = Duration::from_secs(2);
/// More than the port serves at once.
const SILENT: usize = 200;

async fn served() -> (SocketAddr, JoinSet<std::io::Result<()>>) {
    let args = HealthArgs {
        health_listen: SocketAddr::from(([127, 0, 0, 1], 0)),
    };
    let server = Server::bind(&args, Readiness::default(), Metrics::default()).await;
    let server = server.unwrap();
    let address = server.address();
    let mut serving = JoinSet::new();
    serving.spawn(server.serve(CancellationToken::new()));
    (address, serving)
}

async fn probe(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = b"GET /healthz HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn silent_connections_are_bounded_and_probes_answered() {
    let (address, _serving) = served().await;
    let mut silent = Vec::new();
    for _ in 0..SILENT {
        silent.push(TcpStream::connect(address).await.unwrap());
    }

    let started = Instant::now();
    assert!(probe(address).await.starts_with("HTTP/1.1 200"));
    assert!(started.elapsed() < GOAL, "{:?}", started.elapsed());

    let mut open = 0;
    for mut stream in silent {
        let read = tokio::time::timeout(Duration::from_millis(10), stream.read_u8()).await;
        open += usize::from(read.is_err());
    }
    println!("{open} of {SILENT} silent connections are open");
    assert!(open <= 64, "{open}");
}

#[tokio::test]
async fn a_request_that_never_ends_is_cut() {
    let (address, _serving) = served().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: ")
        .await
        .unwrap();
    let mut rest = Vec::new();
    let cut = tokio::time::timeout(Duration::from_secs(15), stream.read_to_end(&mut rest)).await;
    assert!(cut.is_ok(), "it is still open");
}
