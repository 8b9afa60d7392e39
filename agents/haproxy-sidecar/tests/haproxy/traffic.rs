//! Connections through haproxy, and what becomes of them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// A connection to some member.
pub(crate) struct Connection {
    /// Whom it leads to.
    pub(crate) member: String,
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub(crate) async fn open(front: SocketAddr) -> Result<Self, String> {
        let opening = async {
            let mut stream = BufReader::new(TcpStream::connect(front).await?);
            let mut member = String::new();
            stream.read_line(&mut member).await?;
            Ok::<_, std::io::Error>((member, stream))
        };
        match timeout(Duration::from_secs(10), opening).await {
            Ok(Ok((member, stream))) if member.ends_with('\n') => Ok(Self {
                member: member.trim_end().to_owned(),
                stream,
            }),
            other => Err(format!(
                "{:?}",
                other.map(|opened| opened.map(|(member, _)| member))
            )),
        }
    }

    /// Connects until it leads to this member.
    pub(crate) async fn to(front: SocketAddr, member: &str) -> Self {
        let deadline = Instant::now() + crate::rig::PATIENCE;
        loop {
            match Self::open(front).await {
                Ok(connection) if connection.member == member => return connection,
                other => assert!(
                    Instant::now() < deadline,
                    "no connection to {member}: {:?}",
                    other.map(|connection| connection.member)
                ),
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Whether it still leads there and back.
    pub(crate) async fn echoes(&mut self) -> bool {
        let mut heard = [0; 5];
        let there_and_back = async {
            self.stream.write_all(b"hello").await?;
            self.stream.read_exact(&mut heard).await
        };
        matches!(timeout(Duration::from_secs(10), there_and_back).await, Ok(Ok(_))) && &heard == b"hello"
    }

    /// Waits until somebody ends it.
    pub(crate) async fn ended(&mut self) {
        let mut heard = [0; 1];
        let end = timeout(crate::rig::PATIENCE, self.stream.read(&mut heard)).await;
        assert!(matches!(end, Ok(Ok(0) | Err(_))), "{end:?}");
    }
}

/// What went wrong.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// New connections that led nowhere.
    pub(crate) refused: Vec<String>,
    /// Connections that ended, and whom they led to.
    pub(crate) cut: Vec<(String, Instant)>,
    /// Connections that were opened.
    pub(crate) opened: u64,
    /// Words that were heard again.
    pub(crate) echoed: u64,
}

/// Steady connections and new ones, until it is dropped.
pub(crate) struct Traffic {
    seen: Arc<Mutex<Seen>>,
    tasks: JoinSet<()>,
}

impl Traffic {
    pub(crate) fn start(front: SocketAddr, steady: usize) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let mut tasks = JoinSet::new();
        for _ in 0..steady {
            tasks.spawn(stay(front, Arc::clone(&seen)));
        }
        for _ in 0..2 {
            tasks.spawn(come_and_go(front, Arc::clone(&seen)));
        }
        Self { seen, tasks }
    }

    pub(crate) fn opened(&self) -> u64 {
        self.seen.lock().unwrap().opened
    }

    pub(crate) async fn end(mut self) -> Seen {
        self.tasks.shutdown().await;
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

async fn stay(front: SocketAddr, seen: Arc<Mutex<Seen>>) {
    loop {
        let opened = Connection::open(front).await;
        let mut connection = match opened {
            Ok(connection) => connection,
            Err(error) => {
                seen.lock().unwrap().refused.push(error);
                continue;
            }
        };
        seen.lock().unwrap().opened += 1;
        while connection.echoes().await {
            seen.lock().unwrap().echoed += 1;
            sleep(Duration::from_millis(50)).await;
        }
        seen.lock().unwrap().cut.push((connection.member, Instant::now()));
    }
}

async fn come_and_go(front: SocketAddr, seen: Arc<Mutex<Seen>>) {
    loop {
        match Connection::open(front).await {
            Ok(mut connection) => {
                let echoed = connection.echoes().await;
                let mut seen = seen.lock().unwrap();
                seen.opened += 1;
                if !echoed {
                    seen.refused
                        .push(format!("{} does not answer", connection.member));
                }
            }
            Err(error) => seen.lock().unwrap().refused.push(error),
        }
        sleep(Duration::from_millis(5)).await;
    }
}

/// When members were not wanted.
#[derive(Debug, Default)]
pub(crate) struct Absences(BTreeMap<String, Vec<(Instant, Option<Instant>)>>);

impl Absences {
    pub(crate) fn left(&mut self, member: &str) {
        let times = self.0.entry(member.to_owned()).or_default();
        times.push((Instant::now(), None));
    }

    pub(crate) fn came(&mut self, member: &str) {
        let open = self.0.get_mut(member).and_then(|times| times.last_mut());
        if let Some((_, until)) = open {
            until.get_or_insert_with(Instant::now);
        }
    }

    /// Whether a connection may have been cut at that time, after the drain time. It is noticed a little later.
    pub(crate) fn explains(&self, member: &str, cut: Instant, drain: Duration) -> bool {
        let noticed = Duration::from_secs(1);
        self.0.get(member).is_some_and(|times| {
            times
                .iter()
                .any(|(from, until)| *from + drain <= cut && until.is_none_or(|until| cut < until + noticed))
        })
    }
}
