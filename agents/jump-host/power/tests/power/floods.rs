//! Whoever reaches the port can open connections. None of them keep another tenant out.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::join_all;
use proto::power::v1::{GetHostRequest, ListHostsRequest, power_service_client::PowerServiceClient};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    task::JoinSet,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tonic::{Code, transport::Channel};

use crate::stage::{SERVER_NAME, Stage, with_token};

/// Pods that an attacker has, each with an address of its own, and what each of them opens.
const PODS: u8 = 40;
const CONNECTIONS_OF_POD: usize = 16;
/// A call of somebody else is answered within this time, on a busy machine.
const WITHIN: Duration = Duration::from_secs(10);

fn connector(stage: &Stage) -> TlsConnector {
    let pem = std::fs::read(&stage.authority).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&pem).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsConnector::from(Arc::new(config))
}

/// A connection with its handshake done, from an address of this machine.
async fn connection(stage: &Stage, from: [u8; 4]) -> Option<TlsStream<TcpStream>> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    let stream = socket.connect(stage.address.parse().unwrap()).await.ok()?;
    let name = ServerName::try_from(SERVER_NAME).unwrap();
    connector(stage).connect(name, stream).await.ok()
}

async fn lists(client: &mut PowerServiceClient<Channel>, token: &str) -> Result<(), tonic::Status> {
    let request = with_token(ListHostsRequest::default(), token);
    client.list_hosts(request).await.map(|_| ())
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_keep_no_caller_out() {
    let stage = Stage::start("power-flood", &["a"]).await;
    let billing = stage.cluster("bank", "billing").await;
    let jump_host = stage.jump_host(&billing, "jumphost-billing").await;
    let token = stage.token(&jump_host).await;

    let mut flood = Vec::new();
    for pod in 1..=PODS {
        let opened = (0..CONNECTIONS_OF_POD).map(|_| connection(&stage, [127, 0, 9, pod]));
        flood.extend(join_all(opened).await.into_iter().flatten());
    }
    assert!(flood.len() >= 512, "only {} connections were opened", flood.len());
    let begun = Instant::now();
    lists(&mut stage.grpc(), &token).await.unwrap();
    println!(
        "{} silent connections; another tenant's call was answered after {:?}",
        flood.len(),
        begun.elapsed()
    );
    assert!(begun.elapsed() < WITHIN, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_never_reads_is_disconnected() {
    /// The connection makes no call, so it has 30 s.
    const TIME: Duration = Duration::from_secs(90);
    let stage = Stage::start("power-deaf", &["a"]).await;
    let mut deaf = connection(&stage, [127, 0, 9, 1]).await.unwrap();
    // HTTP/2's preface and empty settings; then PINGs, each of which the server has to answer.
    let begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    deaf.write_all(begin).await.unwrap();
    let pings = b"\0\0\x08\x06\0\0\0\0\0\0\0\0\0\0\0\0\0".repeat(1_000);
    let ended = async { while deaf.write_all(&pings).await.is_ok() {} };
    tokio::time::timeout(TIME, ended)
        .await
        .expect("the server closes the connection");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_without_token_delay_no_other() {
    let stage = Stage::start("power-strangers", &["a"]).await;
    let billing = stage.cluster("bank", "billing").await;
    let jump_host = stage.jump_host(&billing, "jumphost-billing").await;
    let token = stage.token(&jump_host).await;

    let mut flood = JoinSet::new();
    for stranger in 0_u8..32 {
        let mut client = stage.grpc_from([127, 0, 8, 1 + stranger / 8]);
        flood.spawn(async move {
            for call in 0_u32.. {
                let host = GetHostRequest { host: "a".to_owned() };
                let forged = format!("forged.{stranger}.{call}");
                let request = if stranger % 2 == 0 {
                    tonic::Request::new(host)
                } else {
                    with_token(host, &forged)
                };
                let status = client.get_host(request).await.unwrap_err();
                assert!(
                    [Code::Unauthenticated, Code::ResourceExhausted].contains(&status.code()),
                    "{status:?}"
                );
            }
        });
    }
    let mut client = stage.grpc();
    for _ in 0..10 {
        let begun = Instant::now();
        lists(&mut client, &token).await.unwrap();
        assert!(begun.elapsed() < WITHIN, "{:?}", begun.elapsed());
    }
    assert!(flood.try_join_next().is_none(), "a stranger has given up");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_can_make_the_service_keep_little() {
    let stage = Stage::start("power-settings", &["a"]).await;
    let mut stream = connection(&stage, [127, 0, 0, 1]).await.unwrap();
    // The preface of HTTP/2, and an empty frame of settings.
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await
        .unwrap();
    stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    let [a, b, c, 4, ..] = head else {
        panic!("no settings: {head:?}");
    };
    let mut settings = vec![0; usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap()];
    stream.read_exact(&mut settings).await.unwrap();
    let value = |wanted: u16| {
        let mut all = settings.as_chunks::<6>().0.iter();
        let found = all.find(|[a, b, ..]| u16::from_be_bytes([*a, *b]) == wanted);
        found.map(|[_, _, a, b, c, d]| u32::from_be_bytes([*a, *b, *c, *d]))
    };
    let [streams, window, headers] = [3, 4, 6].map(value);
    assert!(streams.is_some_and(|streams| streams <= 16), "{streams:?}");
    // Without this setting it is 64 KiB.
    assert!(window.is_none_or(|window| window <= 1 << 16), "{window:?}");
    assert!(headers.is_some_and(|headers| headers <= 16 << 10), "{headers:?}");
}
