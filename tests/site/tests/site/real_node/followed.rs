//! Members come and go, and the configuration changes, under connections that never pause: HAProxy follows, and no pod starts.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    core::v1::{ConfigMap, Pod},
    rbac::v1 as rbac,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use sandbox::{
    inventory::Host,
    node,
    region::{AGENTS_NAMESPACE, HOSTS_NAMESPACE},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::{PORT, shop, start_empty, write_template};
use crate::{
    fixtures::{Cluster, Role, Stage, members, set_consumer},
    rights::account_may,
};

const SCENARIO: &str = "followed";
/// Of the cluster: one for each machine.
const HOSTS: usize = 3;
/// Connections at any time.
const CONNECTIONS: usize = 200;
/// One of so many stays for as long as it can; the others renew themselves.
const STAYS: usize = 4;
/// Requests on a connection that renews itself, and the pause between two.
const REQUESTS: usize = 30;
const PAUSE: Duration = Duration::from_millis(100);
/// Connections to a member that leaves have this long to end by themselves. Less a second, by which the clocks of a test and of
/// what it tests may begin apart.
const DRAIN: Duration = Duration::from_secs(29);

/// A machine that answers every byte with a line: its name.
pub(crate) fn machine(address: Ipv4Addr, listener: TcpListener) -> JoinSet<()> {
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut sessions = JoinSet::new();
        loop {
            let Ok((mut stream, _)) = listener.accept().await else {
                continue;
            };
            sessions.spawn(async move {
                let mut byte = [0];
                // A health check hangs up at once, which is its right.
                while stream.read_exact(&mut byte).await.is_ok() {
                    if stream.write_all(format!("{address}\n").as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
            while sessions.try_join_next().is_some() {}
        }
    });
    serving
}

/// What the connections have seen.
#[derive(Debug)]
struct Seen {
    began: Instant,
    /// How many changes have begun.
    changes: AtomicUsize,
    answers: AtomicU64,
    /// When a machine answered last.
    last: Mutex<BTreeMap<Ipv4Addr, Instant>>,
    /// Connections that could not be made, or ended before the first answer: when, and why.
    refused: Mutex<Vec<String>>,
    /// Established ones that ended though nobody on either end wanted it: to which machine, and when.
    cut: Mutex<Vec<(Ipv4Addr, Instant)>>,
}

impl Seen {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            changes: AtomicUsize::default(),
            answers: AtomicU64::default(),
            last: Mutex::default(),
            refused: Mutex::default(),
            cut: Mutex::default(),
        }
    }

    fn refused(&self, why: &std::io::Error) {
        let changes = self.changes.load(Ordering::Relaxed);
        let when = format!("after {:?}, {changes} changes begun: {why}", self.began.elapsed());
        self.refused.lock().unwrap().push(when);
    }

    /// Connections were cut to members only that had left for long enough.
    fn cut_only(&self, left: &[Left]) {
        for (machine, at) in self.cut.lock().unwrap().iter() {
            let allowed = left
                .iter()
                .any(|left| left.machine == *machine && (left.since + DRAIN..=left.until).contains(at));
            assert!(
                allowed,
                "a connection to {machine} was cut, which had not left for {DRAIN:?}, or was a member again"
            );
        }
    }

    /// A host that is released may be anybody's: nobody is led to its machine any more, now and for many requests.
    async fn leads_nowhere(&self, machine: Ipv4Addr) {
        let given_back = Instant::now();
        tokio::time::sleep(PAUSE * 10).await;
        let last = self.last.lock().unwrap().get(&machine).copied();
        assert!(
            last.is_none_or(|last| last <= given_back),
            "{machine} answers though its host was released"
        );
    }

    /// Keeps one connection going, one after the other.
    async fn connections(self: Arc<Self>, to: SocketAddr, stays: bool) {
        loop {
            if let Err(why) = self.connection(to, stays).await {
                self.refused(&why);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// One connection; an error says that it was never served.
    async fn connection(&self, to: SocketAddr, stays: bool) -> std::io::Result<()> {
        let mut stream = BufReader::new(TcpStream::connect(to).await?);
        let mut at = None;
        for _ in 0..if stays { usize::MAX } else { REQUESTS } {
            match (request(&mut stream).await, at) {
                (Ok(machine), _) => {
                    at = Some(machine);
                    self.last.lock().unwrap().insert(machine, Instant::now());
                }
                (Err(_), Some(machine)) => {
                    self.cut.lock().unwrap().push((machine, Instant::now()));
                    return Ok(());
                }
                (Err(error), None) => return Err(error),
            }
            self.answers.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }
}

/// Which machine answers.
pub(crate) async fn request(stream: &mut BufReader<TcpStream>) -> std::io::Result<Ipv4Addr> {
    let asked = async {
        stream.write_all(b"?").await?;
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        line.trim().parse().map_err(std::io::Error::other)
    };
    tokio::time::timeout(Duration::from_secs(10), asked).await?
}

/// Waits until the node leads to the pods: kube-proxy learns that they are ready up to a second after the API server.
pub(super) async fn reached(node: SocketAddr) {
    let started = Instant::now();
    loop {
        let one = async { request(&mut BufReader::new(TcpStream::connect(node).await?)).await };
        let Err(why) = one.await else { return };
        assert!(
            started.elapsed() < crate::fixtures::PATIENCE,
            "nobody answers at the node: {why}"
        );
        tokio::time::sleep(PAUSE).await;
    }
}

/// A member that left: since when that was wanted, and until when it was none. Its host is released once no connection is left, so none is cut
/// later.
struct Left {
    machine: Ipv4Addr,
    since: Instant,
    until: Instant,
}

/// The host of a machine.
fn name(number: usize) -> String {
    format!("{SCENARIO}-w{number}")
}

/// Has the cluster give up this one of its hosts, and returns since when that was wanted. The scheduler takes members that nobody uses first, so the
/// others are used until it has decided; by their names alone the same one would always go.
async fn give_up(stage: &Stage, shop: &Cluster, leaving: usize) -> Instant {
    for number in 0..HOSTS {
        let is_used = number != leaving;
        let machine = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Machine",
            "namespace": SCENARIO, "name": format!("m-{number}"),
        });
        let consumer = if is_used { machine } else { Value::Null };
        set_consumer(stage, &name(number), consumer).await;
        let asked = json!({"site": stage.site.name(), "namespace": HOSTS_NAMESPACE, "name": name(number)});
        stage
            .until_answer("sip.inventory.v1.InventoryService/GetHost", asked, |answer| {
                answer["host"]["host"]["consumer"].is_object() == is_used
            })
            .await;
    }
    let since = Instant::now();
    workers(stage, shop, HOSTS - 1).await;
    let expected: BTreeSet<String> = (0..HOSTS).filter(|number| *number != leaving).map(name).collect();
    assert_eq!(held(stage, shop, HOSTS - 1).await, expected);
    for host in expected {
        set_consumer(stage, &host, Value::Null).await;
    }
    since
}

async fn workers(stage: &Stage, shop: &Cluster, wanted: usize) {
    stage
        .edit(shop, json!({"nodes": {"Worker": {"count": {"active": wanted}}}}))
        .await;
}

/// Hosts of the cluster, by name.
async fn held(stage: &Stage, shop: &Cluster, wanted: usize) -> BTreeSet<String> {
    let object = stage
        .until(shop, "hold as many hosts as are wanted", |object| {
            let members = members(object);
            members.len() == wanted && members.iter().all(|member| member.state == "Bound")
        })
        .await;
    members(&object).into_iter().map(|member| member.name).collect()
}

async fn pods(stage: &Stage) -> BTreeSet<String> {
    let pods: Api<Pod> = Api::namespaced(stage.site.client(), SCENARIO);
    let found = pods
        .list(&ListParams::default().labels("app.kubernetes.io/name=haproxy"))
        .await;
    let pods = found.unwrap().items.into_iter();
    // Checks of templates come and go.
    pods.filter(|pod| {
        pod.owner_references()
            .iter()
            .any(|owner| owner.kind == "ReplicaSet")
    })
    .map(|pod| {
        let restarts: Value = serde_json::to_value(&pod.status.as_ref().unwrap().container_statuses).unwrap();
        format!("{} {}", pod.name_any(), restarts[0]["restartCount"])
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_under_two_hundred_connections_lose_none() {
    if let Some(why) = node::obstacle() {
        println!("not shown here: {why}");
        return;
    }
    let changes: usize = std::env::var("SOAK_CHANGES").map_or(6, |text| text.parse().unwrap());
    let stage = start_empty(SCENARIO).await;
    let node = stage.site.node().unwrap();
    let at_node = SocketAddr::from((node.address(), PORT));
    let machines = node.machines();
    let mut serving = Vec::new();
    for address in machines {
        serving.push(machine(
            address,
            TcpListener::bind((address, PORT)).await.unwrap(),
        ));
    }
    let hosts = machines.iter().enumerate().map(|(number, address)| {
        Host::new(
            &name(number),
            &format!("{SCENARIO}-worker"),
            &format!("r{number}"),
            *address,
        )
    });
    stage.load(&hosts.collect::<Vec<_>>()).await;
    let shop = shop(SCENARIO).role(Role::Worker, 3);
    stage.create(&shop).await;
    stage.ready(&shop).await;
    held(&stage, &shop, HOSTS).await;
    its_pods_may_read_their_config_map_and_nothing_else(&stage).await;
    let before = pods(&stage).await;
    reached(at_node).await;

    let seen = Arc::new(Seen::new());
    let mut connections = JoinSet::new();
    for number in 0..CONNECTIONS {
        connections.spawn(seen.clone().connections(at_node, number % STAYS == 0));
    }
    let mut left: Vec<Left> = Vec::new();
    for change in 0..changes {
        seen.changes.store(change + 1, Ordering::Relaxed);
        match change % 6 {
            0 | 3 => {
                let leaving = change / 3 % HOSTS;
                let machine = machines[leaving];
                let since = give_up(&stage, &shop, leaving).await;
                seen.leads_nowhere(machine).await;
                let until = Instant::now();
                left.push(Left {
                    machine,
                    since,
                    until,
                });
            }
            1 | 4 => {
                workers(&stage, &shop, HOSTS).await;
                held(&stage, &shop, HOSTS).await;
            }
            2 => {
                write_template(&stage, &format!("# change {change}\n")).await;
                config(&stage, &shop, |text| {
                    text.starts_with(&format!("# change {change}\n"))
                })
                .await;
            }
            _ => {
                let maps: Api<ConfigMap> = Api::namespaced(stage.site.client(), AGENTS_NAMESPACE);
                maps.delete("loadbalancerworker", &DeleteParams::default())
                    .await
                    .unwrap();
                config(&stage, &shop, |text| !text.starts_with("# change")).await;
            }
        }
        assert!(
            connections.try_join_next().is_none(),
            "connections are kept going"
        );
    }

    let (namespace, own) = (SCENARIO, "loadbalancer-worker-shop");
    let roles: Api<rbac::Role> = Api::namespaced(stage.site.client(), namespace);
    let bindings: Api<rbac::RoleBinding> = Api::namespaced(stage.site.client(), namespace);
    stage.deleted_comes_back(&roles, own).await;
    stage.deleted_comes_back(&bindings, own).await;
    stage.ready(&shop).await;
    let answers = seen.answers.load(Ordering::Relaxed);
    println!(
        "{changes} changes, {answers} answers, {} cut, {} refused",
        seen.cut.lock().unwrap().len(),
        seen.refused.lock().unwrap().len(),
    );
    nobody_was_refused(&stage, &seen).await;
    seen.cut_only(&left);
    let given_up: BTreeSet<Ipv4Addr> = left.iter().map(|left| left.machine).collect();
    assert!(changes < 6 || given_up.len() > 1, "{given_up:?}");
    assert!(answers > 10_000, "{answers}");
    assert_eq!(pods(&stage).await, before, "no pod was started, and no container");
    stage.nothing_was_forbidden();
}

/// Or it is shown what HAProxy and the sidecars have said so far.
async fn nobody_was_refused(stage: &Stage, seen: &Seen) {
    let refused = seen.refused.lock().unwrap().clone();
    if !refused.is_empty() {
        let of = ["-n", SCENARIO, "-l", "app.kubernetes.io/name=haproxy"];
        let all = ["--all-containers", "--prefix", "--timestamps", "--tail=-1"];
        println!(
            "{}",
            stage.kubectl(&[&["logs"], &of[..], &all[..]].concat()).await
        );
    }
    assert_eq!(refused, Vec::<String>::new());
}

/// Waits until the configuration is such a one. That pods run it is seen by the next member that leaves.
async fn config(stage: &Stage, shop: &Cluster, is: impl Fn(&str) -> bool) {
    let started = Instant::now();
    while !is(&stage.haproxy_config(shop, "worker").await) {
        assert!(
            started.elapsed() < crate::fixtures::PATIENCE,
            "the configuration does not change"
        );
        tokio::time::sleep(PAUSE).await;
    }
}

async fn its_pods_may_read_their_config_map_and_nothing_else(stage: &Stage) {
    let (own, another) = ("loadbalancer-worker-shop", "loadbalancer-worker-other");
    for (verb, resource, name, expected) in [
        ("get", "/configmaps", Some(own), true),
        ("watch", "/configmaps", Some(own), true),
        ("get", "/configmaps", Some(another), false),
        ("get", "/configmaps", None, false),
        ("list", "/configmaps", None, false),
        ("watch", "/configmaps", None, false),
        ("patch", "/configmaps", Some(own), false),
        ("delete", "/configmaps", Some(own), false),
        ("get", "/secrets", Some(own), false),
        ("get", "/pods", None, false),
        ("get", "/services", Some(own), false),
        ("create", "/serviceaccounts/token", Some(own), false),
        ("get", "airship.airshipit.org/sipclusters", Some("shop"), false),
    ] {
        let account = format!("system:serviceaccount:{SCENARIO}:{own}");
        let may = account_may(stage, account, verb, (resource, SCENARIO), name).await;
        assert_eq!(may, expected, "{verb} {resource} {name:?}");
    }
    let containers = Api::<Pod>::namespaced(stage.site.client(), SCENARIO)
        .list(&ListParams::default().labels("app.kubernetes.io/name=haproxy"))
        .await
        .unwrap()
        .items
        .into_iter()
        .flat_map(|pod| pod.spec.unwrap().containers);
    for container in containers {
        let mounts: Vec<_> = container.volume_mounts.unwrap_or_default();
        let paths: Vec<_> = mounts.iter().map(|mount| &*mount.mount_path).collect();
        assert_eq!(paths, ["/run/haproxy"], "the user's image has no token");
    }
}
