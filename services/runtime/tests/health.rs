//! The health port, and peers that want nothing of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its fixtures too")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
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
    served_with(Metrics::default()).await
}

async fn served_with(metrics: Metrics) -> (SocketAddr, JoinSet<std::io::Result<()>>) {
    let args = HealthArgs {
        health_listen: SocketAddr::from(([127, 0, 0, 1], 0)),
    };
    let server = Server::bind(&args, Readiness::default(), metrics).await;
    let server = server.unwrap();
    let address = server.address();
    let mut serving = JoinSet::new();
    serving.spawn(server.serve(CancellationToken::new()));
    (address, serving)
}

async fn probe(address: SocketAddr) -> String {
    get(address, "/healthz").await.unwrap()
}

async fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    get_as(address, path, "*/*").await
}

async fn get_as(address: SocketAddr, path: &str, accept: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: test\r\naccept: {accept}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
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

#[tokio::test]
async fn a_scraper_gets_the_format_that_it_names() {
    let (address, _serving) = served().await;
    for (accept, kind, ends) in [
        ("*/*", "text/plain; version=0.0.4; charset=utf-8", false),
        (
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.3",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            true,
        ),
    ] {
        let answer = get_as(address, "/metrics", accept).await.unwrap();
        assert!(
            answer.contains(&format!("content-type: {kind}\r\n")),
            "{accept}: {answer}"
        );
        assert_eq!(answer.ends_with("# EOF\n"), ends, "{accept}: {answer}");
    }
}

/// Counts how often it is encoded, which takes a while.
#[derive(Clone, Debug, Default)]
struct Counting(Arc<AtomicU64>);

impl Collector for Counting {
    fn encode(&self, _: DescriptorEncoder<'_>) -> std::fmt::Result {
        self.0.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(20));
        Ok(())
    }
}

/// Scrapers at once: as many connections as the port serves.
const SCRAPERS: usize = 64;

#[tokio::test]
async fn scrapers_share_one_encoding_a_second() {
    let (counting, metrics) = (Counting::default(), Metrics::default());
    metrics.collect(counting.clone());
    let (address, _serving) = served_with(metrics).await;
    let started = Instant::now();
    let mut answers = 0_u64;
    while started.elapsed() < Duration::from_millis(1500) {
        let mut scraping = JoinSet::new();
        for _ in 0..SCRAPERS {
            scraping.spawn(async move { get(address, "/metrics").await });
        }
        // Some leave as soon as they have asked.
        scraping.spawn(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = b"GET /metrics HTTP/1.1\r\nhost: test\r\n\r\n";
            stream.write_all(request).await.unwrap();
            Ok(String::new())
        });
        for answer in scraping.join_all().await {
            // A connection more than there are places for is closed.
            answers += u64::from(answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")));
        }
    }
    let (encoded, seconds) = (counting.0.load(Ordering::Relaxed), started.elapsed().as_secs());
    println!("{answers} scrapes in {seconds} s, {encoded} encodings");
    assert!(answers > 0);
    assert!(encoded <= seconds + 1, "{encoded} in {seconds} s");
}
