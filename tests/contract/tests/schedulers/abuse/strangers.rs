//! Those without a certificate that counts: silence, garbage, and certificates of the wrong issuer.

use std::{collections::VecDeque, io, sync::Arc, time::Duration};

use rand::Rng as _;
use sandbox::{authority::Caller, strangers};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::{HOSTILE, attack::Attack};
use crate::pki::{Connector, Issuer};

/// Connections that say nothing, at once.
const SILENT: usize = 2_000;
/// What handshakes with forged certificates are counted as.
pub(crate) const FORGED: &str = "forged certificates";
/// The scheduler has said why it ends the connection.
pub(crate) const REFUSED: &str = "refused";
/// It has begun to speak HTTP/2.
pub(crate) const ACCEPTED: &str = "accepted";
/// How long the scheduler may take to end a connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connects from one of many addresses.
async fn connect(address: &str, number: u8) -> Option<TcpStream> {
    let connected = strangers::connect(address.parse().ok()?, number);
    timeout(PATIENCE, connected).await.ok()?.ok()
}

/// Opens some hundred connections a second, and says nothing.
pub(crate) async fn silent(attack: Arc<Attack>) {
    let mut rng = attack.rng("silent", 0);
    let mut open = VecDeque::new();
    attack
        .stop
        .clone()
        .run_until_cancelled(async {
            loop {
                let connected = connect(&attack.address, rng.random()).await;
                attack.count(
                    "silent",
                    if connected.is_some() {
                        "connected"
                    } else {
                        "not connected"
                    },
                );
                open.extend(connected);
                if open.len() > SILENT {
                    open.pop_front();
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
}

/// Says what is no TLS, or half of it, to either port.
pub(crate) async fn garbage(attack: Arc<Attack>) {
    let mut rng = attack.rng("garbage", 0);
    while !attack.stop.is_cancelled() {
        let grpc = rng.random_bool(0.6);
        let address = if grpc { &attack.address } else { &attack.health };
        let Some(mut stream) = connect(address, rng.random()).await else {
            attack.count("garbage", "not connected");
            continue;
        };
        let mut bytes = match rng.random_range(0..5) {
            0 => b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
            1 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            // The beginning of a ClientHello that never goes on.
            2 => vec![0x16, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3],
            3 => b"GET / HTTP/1.1\r\nX: ".to_vec(),
            _ => Vec::new(),
        };
        if bytes.len() < 20 {
            bytes.extend((0..rng.random_range(0..5000)).map(|_| rng.random::<u8>()));
        }
        let _ = stream.write_all(&bytes).await;
        if rng.random_bool(0.5) {
            let mut answer = [0; 4096];
            let _ = timeout(Duration::from_millis(200), stream.read(&mut answer)).await;
        }
        attack.count("garbage", if grpc { "gRPC port" } else { "health port" });
    }
}

/// Shows certificates that prove nothing, or somebody else.
pub(crate) async fn forgers(attack: Arc<Attack>) {
    let victim = attack.victims[0].clone();
    let agent = Caller::Agent {
        site: &victim,
        name: "cluster",
    };
    let forged = [
        ("none", attack.pki.anonymous()),
        (
            "operator by a stranger",
            attack
                .pki
                .certified_by(Issuer::Stranger, &Caller::Operator("root")),
        ),
        (
            "operator by a site",
            attack
                .pki
                .certified_by(Issuer::Site(HOSTILE), &Caller::Operator("root")),
        ),
        (
            "scheduler by a site",
            attack.pki.certified_by(Issuer::Site(HOSTILE), &Caller::Scheduler),
        ),
        (
            "agent by another site",
            attack.pki.certified_by(Issuer::Site(HOSTILE), &agent),
        ),
        (
            "agent by the region",
            attack.pki.certified_by(Issuer::Region, &agent),
        ),
    ];
    let mut next = forged.iter().cycle();
    while !attack.stop.is_cancelled() {
        let Some((_, connector)) = next.next() else { return };
        attack.count(FORGED, attempt(&attack.address, connector).await);
        // Slower than handshakes of one address may fail: the clients that are measured connect from there too.
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
}

/// That a good certificate is accepted, and counts as that.
pub(crate) async fn assert_good_is_accepted(attack: &Attack) {
    let good = attack.pki.connector(&Caller::Reader("control"));
    assert_eq!(attempt(&attack.address, &good).await, ACCEPTED);
}

/// What comes of a connection with such a certificate.
async fn attempt(address: &str, connector: &Connector) -> &'static str {
    let answered = async {
        let mut stream = connector.connect(address).await?;
        // A client of TLS 1.3 learns of its refusal when it reads.
        stream.read_u8().await
    };
    match timeout(PATIENCE, answered).await {
        Ok(Ok(_)) => ACCEPTED,
        Ok(Err(error)) if is_alert(&error) => REFUSED,
        // With so many who say nothing, some handshakes do not come to an end.
        Ok(Err(_)) => "cut",
        Err(_) => "silent",
    }
}

/// Whether the server has said that it does not accept the certificate.
fn is_alert(error: &io::Error) -> bool {
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::AlertReceived(_)))
}
