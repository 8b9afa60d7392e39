//! Peers that connect and prove nothing.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, SanType};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, timeout};

use super::handshakes::raw_client_over;
use super::{call, dial, scheduler};
use crate::fixtures::{Disk, Issued, Subject, agent, name, realm};
use crate::identity::Caller;

/// How long an agent may take to connect and to be answered.
const GOAL: Duration = Duration::from_secs(2);
/// Addresses that strangers connect from.
const ADDRESSES: u8 = 50;

/// Connects from `127.0.1.x` and says nothing.
async fn silent(to: SocketAddr, from: u8) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 1, from)), 0))?;
    socket.connect(to).await
}

/// Opens connections that this end keeps open until the set is dropped. All of them have to be open within `patience`.
async fn hold(to: SocketAddr, count: usize, addresses: u8, patience: Duration) -> JoinSet<()> {
    let mut held = JoinSet::new();
    let (opened, mut open) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..count {
        let opened = opened.clone();
        let from = 1 + u8::try_from(number % usize::from(addresses)).unwrap();
        held.spawn(async move {
            let connection = silent(to, from).await;
            let _ = opened.send(connection.as_ref().map(drop).map_err(ToString::to_string));
            std::future::pending::<()>().await;
        });
    }
    let mut number = 0;
    let all = async {
        while number < count {
            let connection = open.recv().await.unwrap();
            connection.unwrap_or_else(|error| panic!("connection {number} of {count}: {error}"));
            number += 1;
        }
    };
    let _ = timeout(patience, all).await;
    assert_eq!(number, count, "so many connections were opened");
    held
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_do_not_delay_an_agent() {
    let (authority, _disk, served) = scheduler().await;
    let disk = Disk::new(
        &authority.issue(&Subject::of_caller(&agent("cluster"))),
        &authority,
    );
    let _silent = hold(served.address, 2_000, 1, Duration::from_mins(1)).await;

    let started = Instant::now();
    let called = timeout(5 * GOAL, call(&dial(&served, &disk.client_args()))).await;
    let elapsed = started.elapsed();
    println!("2,000 silent connections: a call took {elapsed:?}");
    called.expect("the call is answered").unwrap();
    assert!(elapsed < GOAL, "{elapsed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_of_silent_connections_do_not_delay_an_agent() {
    let (authority, _disk, served) = scheduler().await;
    let disk = Disk::new(
        &authority.issue(&Subject::of_caller(&agent("cluster"))),
        &authority,
    );
    let address = served.address;
    let _silent = hold(address, 10_000, ADDRESSES, Duration::from_mins(1)).await;
    // 500 new ones a second, each held for as long as the test runs.
    let mut flood = JoinSet::new();
    flood.spawn(async move {
        let mut held = JoinSet::new();
        let mut pace = interval(Duration::from_millis(20));
        for number in 0_usize.. {
            if number.is_multiple_of(10) {
                pace.tick().await;
            }
            let from = 1 + u8::try_from(number % usize::from(ADDRESSES)).unwrap();
            held.spawn(async move {
                let _connection = silent(address, from).await;
                std::future::pending::<()>().await;
            });
        }
    });
    for _ in 0..5 {
        sleep(Duration::from_millis(200)).await;
        let started = Instant::now();
        let called = timeout(5 * GOAL, call(&dial(&served, &disk.client_args()))).await;
        let elapsed = started.elapsed();
        println!("10,000 silent connections and 500 new ones a second: a call took {elapsed:?}");
        called.expect("the call is answered").unwrap();
        assert!(elapsed < GOAL, "{elapsed:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_handshakes_are_limited_by_address() {
    const LIMITED: &str = r#"sip_tls_handshakes_total{side="server",outcome="limited"}"#;
    let (authority, _disk, served) = scheduler().await;
    let disk = Disk::new(
        &authority.issue(&Subject::of_caller(&agent("cluster"))),
        &authority,
    );
    for _ in 0..400 {
        let mut stranger = silent(served.address, 1).await.unwrap();
        stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        // Ends when the server closes the connection, with or without an alert.
        let _ = stranger.read_to_end(&mut Vec::new()).await;
    }
    served.until(LIMITED, |limited| limited > 0).await;
    call(&dial(&served, &disk.client_args())).await.unwrap();
}

/// What an authority of a layer is called; who has issued it is called as those of the next layer are.
fn of_layer(layer: usize) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, format!("layer {layer}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

/// A certificate of an operator, and as many of authorities as a handshake takes, between which there are very many paths, none of which
/// leads anywhere. Nobody has to have issued any of them.
fn maze(layers: usize, each: usize, all: usize) -> Issued {
    let issuer = |layer: usize| Issuer::new(of_layer(layer), KeyPair::generate().unwrap());
    let key = KeyPair::generate().unwrap();
    let mut leaf = CertificateParams::default();
    let uri = realm().uri(&Caller::Operator { name: name("eve") });
    leaf.subject_alt_names = vec![SanType::URI(uri.as_str().try_into().unwrap())];
    let mut certificate = leaf.signed_by(&key, &issuer(1)).unwrap().pem();
    let mut add = |params: CertificateParams, above: &Issuer<'_, KeyPair>| {
        let made = params.signed_by(&KeyPair::generate().unwrap(), above).unwrap();
        certificate.push_str(&made.pem());
    };
    for layer in 1..=layers {
        let above = issuer(layer + 1);
        (0..each).for_each(|_| add(of_layer(layer), &above));
    }
    let elsewhere = issuer(100);
    (layers * each..all).for_each(|number| add(of_layer(200 + number), &elsewhere));
    Issued {
        certificate,
        key: key.serialize_pem(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mazes_of_certificates_do_not_delay_an_agent() {
    let (authority, _disk, served) = scheduler().await;
    let served = Arc::new(served);
    let disk = Disk::new(
        &authority.issue(&Subject::of_caller(&agent("cluster"))),
        &authority,
    );
    let (authority, issued) = (Arc::new(authority), Arc::new(maze(6, 8, 150)));
    let mut mazes = JoinSet::new();
    for _ in 0..4 {
        let (served, authority, issued) = (Arc::clone(&served), Arc::clone(&authority), Arc::clone(&issued));
        mazes.spawn(async move {
            for number in (0..ADDRESSES).cycle() {
                let tcp = silent(served.address, 1 + number).await.unwrap();
                let tls13 = &rustls::version::TLS13;
                raw_client_over(tcp, &authority, Some(&issued), tls13)
                    .await
                    .unwrap_err();
            }
        });
    }
    sleep(Duration::from_millis(500)).await;
    for _ in 0..5 {
        let started = Instant::now();
        let called = timeout(5 * GOAL, call(&dial(&served, &disk.client_args()))).await;
        called.expect("the call is answered").unwrap();
        assert!(started.elapsed() < GOAL, "{:?}", started.elapsed());
    }
    mazes.shutdown().await;
}
