//! A whole process: started, asked about itself, told to end. Signals and the log are the process's own, so
//! there is one test in this file.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use axum::{Router, routing};
use clap::Parser;
use runtime::{Process, ProcessArgs};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    process: ProcessArgs,
}

#[tokio::test]
async fn a_process_is_ready_with_its_gates_and_drains_on_sigterm() {
    let args = Args::parse_from([
        "test",
        "--health-listen",
        "127.0.0.1:0",
        "--log",
        "warn",
        "--log-format",
        "json",
    ]);
    let more = Router::new().route("/more", routing::get(|| async { "more\n" }));
    let mut process = Process::start_answering("test", "1.2.3", &args.process, more)
        .await
        .unwrap();
    let health = process.health_address();
    assert_eq!(get(health, "/healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(
        get(health, "/readyz").await,
        (503, "process is starting\n".to_owned())
    );

    let gate = process.readiness.gate("ledger");
    assert_eq!(
        get(health, "/readyz").await,
        (503, "ledger has not started yet\n".to_owned())
    );
    gate.ready();
    assert_eq!(get(health, "/readyz").await, (200, "ok\n".to_owned()));

    let (status, metrics) = get(health, "/metrics").await;
    assert_eq!(status, 200);
    assert!(
        metrics.contains("sip_build_info{name=\"test\",version=\"1.2.3\"} 1\n"),
        "{metrics}"
    );
    assert!(metrics.contains("# TYPE sip_build_info gauge\n"), "{metrics}");
    assert_eq!(get(health, "/nothing").await.0, 404);
    assert_eq!(get(health, "/more").await, (200, "more\n".to_owned()));

    let stop = process.shutdown.clone();
    let (asked, answer) = tokio::sync::oneshot::channel();
    process.tasks.spawn("worker", async move {
        stop.cancelled().await;
        // While it drains the process still answers: alive, but not ready.
        while get(health, "/readyz").await.0 == 200 {
            tokio::task::yield_now().await;
        }
        let _ = asked.send((get(health, "/healthz").await, get(health, "/readyz").await));
        Ok::<_, std::io::Error>(())
    });
    let running = tokio::spawn(process.run());
    let own = std::process::id().to_string();
    assert!(
        std::process::Command::new("kill")
            .args(["-TERM", &own])
            .status()
            .unwrap()
            .success()
    );

    let patience = Duration::from_secs(20);
    let (alive, ready) = tokio::time::timeout(patience, answer).await.unwrap().unwrap();
    assert_eq!(alive, (200, "ok\n".to_owned()));
    assert_eq!(ready, (503, "process is shutting down\n".to_owned()));
    tokio::time::timeout(patience, running)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    TcpStream::connect(health).await.unwrap_err();
    drop(gate);
}

/// Status and body of a GET request.
async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    try_get(address, path)
        .await
        .unwrap_or_else(|error| (0, format!("GET {path}: {error:#}")))
}

async fn try_get(address: SocketAddr, path: &str) -> anyhow::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    let (head, body) = response.split_once("\r\n\r\n").context("no end of the head")?;
    Ok((
        head.split(' ').nth(1).context("no status")?.parse()?,
        body.to_owned(),
    ))
}
