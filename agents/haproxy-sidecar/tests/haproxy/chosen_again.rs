//! Clients whose member does not answer, in a worker that was replaced meanwhile: it chooses another one for them, which may have left.

use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::configuration::{Configuration, PORT};
use crate::rig::{PATIENCE, Pod};

const DRAIN: Duration = Duration::from_secs(1);
/// A member that answers does so within this time.
const SOON: Duration = Duration::from_millis(500);

/// A machine that answers no attempt to connect, as one that starts anew.
struct Silent {
    _listener: TcpListener,
    _waiting: Vec<TcpStream>,
}

impl Silent {
    async fn at(address: Ipv4Addr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((address, PORT).into()).unwrap();
        let listener = socket.listen(0).unwrap();
        let mut waiting = Vec::new();
        // Nobody accepts them, and the queue is short.
        while let Ok(connected) = timeout(SOON, TcpStream::connect((address, PORT))).await {
            waiting.push(connected.unwrap());
        }
        Self {
            _listener: listener,
            _waiting: waiting,
        }
    }
}

/// A client that no member has answered.
async fn unanswered(front: Ipv4Addr) -> BufReader<TcpStream> {
    for _ in 0..4 {
        let mut client = BufReader::new(TcpStream::connect((front, PORT)).await.unwrap());
        if timeout(SOON, client.read_line(&mut String::new())).await.is_err() {
            return client;
        }
    }
    panic!("no client was led to the machine that does not answer");
}

/// Neither before nor after another member is chosen for the client the configuration runs, until it has left that one.
async fn waits_for_the_choice(template: bool) {
    let mut pod = Pod::empty(DRAIN);
    let [front, a, b, c] = [0, 1, 2, 3].map(|which| pod.addresses.get(which));
    pod.member("a", a).await;
    pod.member("c", c).await;
    let _silent = Silent::at(b).await;
    let before = Configuration {
        retries: "retries 1\n  option redispatch 1".to_owned(),
        keywords: "weight 1".to_owned(),
        template,
        ..Configuration::new(front).with("a", a).with("b", b)
    };
    pod.want(&before);
    pod.until("a configuration is written", |report| report.started)
        .await;
    pod.start_haproxy();
    pod.runs(&before).await;
    let mut client = unanswered(front).await;

    let after = before.without("a").with("c", c).noting("# second");
    pod.want(&after);
    let mut greeting = String::new();
    let chosen = timeout(PATIENCE, client.read_line(&mut greeting)).await;
    let reported = pod.report().running.running;
    chosen.unwrap().unwrap();
    assert_eq!(greeting.trim_end(), format!("a@{a}"));
    assert_ne!(
        reported,
        Some(after.digest()),
        "the old worker could choose \"a\""
    );
    pod.runs(&after).await;
    let end = timeout(PATIENCE, client.read(&mut [0])).await.unwrap();
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
}

#[tokio::test]
async fn a_client_that_a_leaver_may_still_get_is_waited_for() {
    waits_for_the_choice(false).await;
}

#[tokio::test]
async fn so_is_one_of_a_template() {
    waits_for_the_choice(true).await;
}
