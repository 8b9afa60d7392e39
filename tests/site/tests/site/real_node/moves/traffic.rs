//! Machines that say whose they are, and clients that are never to hear of another tenant's.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams},
};
use sandbox::sip_clusters::holder;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{MissedTickBehavior, timeout},
};

use crate::fixtures::members;

/// Between two requests of a client that makes a connection for each of them.
pub(super) const PAUSE: Duration = Duration::from_millis(2);
/// A client that keeps its connection sends so many requests at once, at this interval, and then makes a new connection.
const BURST: usize = 16;
const INTERVAL: Duration = Duration::from_millis(10);
const BURSTS: usize = 50;
/// A client gives up a request that is not answered in this time.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whose machine each address is: whoever has provisioned it answers there.
pub(super) type Tenants = Arc<Mutex<BTreeMap<Ipv4Addr, String>>>;

/// A machine that answers every byte on a port with its address and the name of its tenant, if it has one.
pub(super) async fn listen(address: Ipv4Addr, port: u16, tenants: Tenants) -> JoinSet<()> {
    let listener = TcpListener::bind((address, port)).await.unwrap();
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut sessions = JoinSet::new();
        loop {
            let Ok((mut stream, _)) = listener.accept().await else {
                continue;
            };
            let tenants = Arc::clone(&tenants);
            sessions.spawn(async move {
                let mut requests = [0; BURST];
                // A health check hangs up at once, which is its right.
                while let Ok(count @ 1..) = stream.read(&mut requests).await {
                    let tenant = tenants.lock().unwrap().get(&address).cloned();
                    let line = format!("{address} {}\n", tenant.unwrap_or_default());
                    if stream.write_all(line.repeat(count).as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
            while sessions.try_join_next().is_some() {}
        }
    });
    serving
}

/// Machines become their tenants' as soon as hosts carry their labels, and nobody's when these are taken off.
pub(super) async fn provision(
    hosts: Api<DynamicObject>,
    addresses: BTreeMap<String, Ipv4Addr>,
    tenants: Tenants,
) {
    loop {
        if let Ok(found) = hosts.list(&ListParams::default()).await {
            let mut tenants = tenants.lock().unwrap();
            for host in found {
                let Some(address) = addresses.get(&host.name_any()) else {
                    continue;
                };
                match holder(&host) {
                    Some((cluster, _)) => tenants.insert(*address, cluster),
                    None => tenants.remove(address),
                };
            }
        }
        tokio::time::sleep(PAUSE * 5).await;
    }
}

/// What clients have seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    answers: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

impl Seen {
    /// How many right answers there were.
    pub(super) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Waits until there were so many.
    pub(super) async fn until(&self, answers: u64) {
        let many = async {
            while self.answers() < answers {
                tokio::time::sleep(PAUSE).await;
            }
        };
        let many = timeout(crate::fixtures::PATIENCE, many).await;
        assert!(many.is_ok(), "{} answers show nothing", self.answers());
    }

    /// The wrong ones.
    pub(super) fn wrong(&self) -> Vec<String> {
        self.wrong.lock().unwrap().clone()
    }
}

/// A tenant whose port is asked.
#[derive(Clone)]
pub(super) struct Tenant {
    clusters: Api<DynamicObject>,
    name: &'static str,
    whole_name: String,
    addresses: Arc<BTreeMap<String, Ipv4Addr>>,
    /// The addresses of the hosts that its status had when it was read last.
    held: Arc<Mutex<BTreeSet<Ipv4Addr>>>,
}

impl Tenant {
    pub(super) fn new(
        clusters: Api<DynamicObject>,
        (namespace, name): (&str, &'static str),
        addresses: Arc<BTreeMap<String, Ipv4Addr>>,
    ) -> Self {
        Self {
            clusters,
            name,
            whole_name: format!("{namespace}/{name}"),
            addresses,
            held: Arc::default(),
        }
    }

    /// Reads the status for as long as it runs.
    pub(super) async fn follow(self) {
        loop {
            self.read().await;
            tokio::time::sleep(PAUSE * 5).await;
        }
    }

    async fn read(&self) {
        if let Ok(object) = self.clusters.get_opt(self.name).await {
            let members = object.as_ref().map(members).unwrap_or_default();
            let addresses = members
                .iter()
                .filter_map(|member| self.addresses.get(&member.name));
            *self.held.lock().unwrap() = addresses.copied().collect();
        }
    }

    fn holds(&self, address: Ipv4Addr) -> bool {
        self.held.lock().unwrap().contains(&address)
    }

    /// Whether an answer is one of its own machines'. One that nobody has provisioned may answer only while the tenant holds it: a
    /// host that joins, or one that left the status since the request.
    async fn is_own(&self, answer: &str) -> bool {
        let Some((address, tenant)) = answer.split_once(' ') else {
            return false;
        };
        if !tenant.is_empty() {
            return tenant == self.whole_name;
        }
        let address = address.parse().unwrap();
        if self.holds(address) {
            return true;
        }
        self.read().await;
        self.holds(address)
    }

    async fn judge(&self, seen: &Seen, at: SocketAddr, answer: &str) {
        if self.is_own(answer).await {
            seen.answers.fetch_add(1, Ordering::Relaxed);
        } else {
            seen.wrong.lock().unwrap().push(format!("{at}: {answer}"));
        }
    }

    /// Sends requests to a port of the tenant's for as long as it runs: some clients make a connection for each, others keep theirs.
    pub(super) async fn send_requests(self, seen: Arc<Seen>, at: SocketAddr, keeps: bool) {
        loop {
            // A load balancer may be gone, or have no member.
            let _ = if keeps {
                self.keep_connection(&seen, at).await
            } else {
                self.one_request(&seen, at).await
            };
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn one_request(&self, seen: &Seen, at: SocketAddr) -> io::Result<()> {
        let mut stream = connect(at).await?;
        stream.write_all(b"?").await?;
        let answer = answer(&mut stream).await?;
        self.judge(seen, at, &answer).await;
        Ok(())
    }

    async fn keep_connection(&self, seen: &Seen, at: SocketAddr) -> io::Result<()> {
        let mut stream = connect(at).await?;
        let mut pace = tokio::time::interval(INTERVAL);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for _ in 0..BURSTS {
            pace.tick().await;
            stream.write_all(&[b'?'; BURST]).await?;
            for _ in 0..BURST {
                let answer = answer(&mut stream).await?;
                self.judge(seen, at, &answer).await;
            }
        }
        Ok(())
    }
}

async fn connect(at: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let stream = timeout(PATIENCE, TcpStream::connect(at)).await??;
    // The second burst of a connection would wait for the acknowledgement of the first one.
    stream.set_nodelay(true)?;
    Ok(BufReader::new(stream))
}

async fn answer(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    match timeout(PATIENCE, stream.read_line(&mut line)).await?? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim_end_matches('\n').to_owned()),
    }
}
