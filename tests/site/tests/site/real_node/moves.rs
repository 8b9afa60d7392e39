//! A host moves from one tenant to another while both are asked all the time: nobody is answered by a machine of the other.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::Service;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, PostParams},
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use sandbox::{
    inventory::{Host, NETWORK},
    node,
    region::Agent,
    sip_clusters::holder,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::start_empty;
use crate::fixtures::{Cluster, Role, Stage, cluster, members, set_consumer};

const SCENARIO: &str = "moves";
/// Of the first tenant's two load balancers, and of the other tenant's one.
const SHOP: [u16; 2] = [31_500, 31_501];
const BANK: u16 = 31_502;
/// The first tenant asks for it when it is somebody else's.
const TAKEN: u16 = 31_503;
const CLIENTS: usize = 8;
const PAUSE: Duration = Duration::from_millis(2);
/// A host that waits for pods stays for so long at least.
const STAYS: Duration = Duration::from_secs(3);

/// Whose machine each address is: whoever has provisioned it answers there.
type Tenants = Arc<Mutex<BTreeMap<Ipv4Addr, String>>>;

/// A machine that answers every byte on a port with the name of its tenant.
async fn listen(address: Ipv4Addr, port: u16, tenants: Tenants) -> JoinSet<()> {
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
                let mut byte = [0];
                // A health check hangs up at once, which is its right.
                while stream.read_exact(&mut byte).await.is_ok() {
                    let tenant = tenants.lock().unwrap().get(&address).cloned();
                    let line = format!("{}\n", tenant.unwrap_or_default());
                    if stream.write_all(line.as_bytes()).await.is_err() {
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
async fn provision(hosts: Api<DynamicObject>, addresses: BTreeMap<String, Ipv4Addr>, tenants: Tenants) {
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
struct Seen {
    answers: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

/// Asks a tenant's port, one connection for each request.
async fn client(seen: Arc<Seen>, at: SocketAddr, own: &'static str) {
    loop {
        match request(at).await {
            // Nobody has provisioned a machine that joins.
            Ok(answer) if answer == own || answer.is_empty() => {
                seen.answers.fetch_add(1, Ordering::Relaxed);
            }
            Ok(answer) => seen.wrong.lock().unwrap().push(format!("{at}: {answer}")),
            // A load balancer may be gone, or have no member.
            Err(_) => {}
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn request(at: SocketAddr) -> std::io::Result<String> {
    let asked = async {
        let mut stream = BufReader::new(TcpStream::connect(at).await?);
        stream.write_all(b"?").await?;
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim().to_owned())
    };
    tokio::time::timeout(Duration::from_secs(2), asked).await?
}

fn entries(ports: &[u16]) -> Value {
    let entry = |port: &u16| {
        json!({
            "image": "haproxy:2.8", "nodeInterfaceId": NETWORK, "replicas": 1,
            "nodePortRange": {"start": port, "end": port},
        })
    };
    ports.iter().map(entry).collect()
}

fn tenant(name: &str, workers: u32, ports: &[u16]) -> Cluster {
    cluster(SCENARIO, name)
        .role(Role::Worker, workers)
        .with("/services/loadBalancerWorker", entries(ports))
}

/// The ways in which a host leaves a tenant.
#[derive(Clone, Copy, Debug)]
enum Move {
    /// It wants one less.
    Shrink,
    /// The same edit drops a load balancer.
    Drop,
    /// The same edit asks for a port that is taken, and the port becomes free later.
    Refuse,
    /// It is deleted while one of its hosts is in use.
    Delete,
}

const MOVES: [Move; 4] = [Move::Delete, Move::Shrink, Move::Drop, Move::Refuse];

async fn wants(stage: &Stage, of: &Cluster, workers: u32, ports: &[u16]) {
    let edit = json!({
        "nodes": {"Worker": {"count": {"active": workers}}},
        "services": {"loadBalancerWorker": entries(ports)},
    });
    stage.edit(of, edit).await;
}

async fn holds(stage: &Stage, of: &Cluster, wanted: usize) {
    let bound = |object: &DynamicObject| {
        let members = members(object);
        members.len() == wanted && members.iter().all(|member| member.state == "Bound")
    };
    stage.until(of, &format!("hold {wanted} hosts"), bound).await;
}

/// An agent that is killed a moment after what began last, and started again.
async fn kill(stage: &mut Stage, killed: Option<(Agent, Duration)>) {
    if let Some((agent, after)) = killed {
        tokio::time::sleep(after).await;
        stage.agent(agent).restart().await.unwrap();
    }
}

/// Moves one host from the shop, which has two, to the bank.
async fn depart(
    stage: &mut Stage,
    (shop, bank): (&Cluster, &Cluster),
    how: Move,
    killed: Option<(Agent, Duration)>,
) {
    wants(stage, bank, 2, &[BANK]).await;
    match how {
        Move::Shrink => {
            wants(stage, shop, 1, &SHOP).await;
            kill(stage, killed).await;
        }
        Move::Drop => {
            wants(stage, shop, 1, &SHOP[..1]).await;
            kill(stage, killed).await;
        }
        Move::Refuse => {
            let services: Api<Service> = Api::namespaced(stage.site.client(), SCENARIO);
            let theirs = json!({
                "metadata": {"name": "theirs"},
                "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": TAKEN}]},
            });
            let theirs = serde_json::from_value(theirs).unwrap();
            services.create(&PostParams::default(), &theirs).await.unwrap();
            wants(stage, shop, 1, &[SHOP[0], TAKEN]).await;
            kill(stage, killed).await;
            stage
                .condition_is(shop, "LoadBalancerReady", "False", "PortConflict")
                .await;
            tokio::time::sleep(STAYS).await;
            let held = stage.clusters(SCENARIO).get("shop").await.unwrap();
            assert_eq!(
                members(&held).len(),
                2,
                "the refused load balancer still routes there"
            );
            services.delete("theirs", &DeleteParams::default()).await.unwrap();
        }
        Move::Delete => {
            let held = stage.clusters(SCENARIO).get("shop").await.unwrap();
            let used = members(&held)[0].name.clone();
            let machine =
                json!({"apiVersion": "v1", "kind": "Metal3Machine", "namespace": SCENARIO, "name": "m-0"});
            set_consumer(stage, &used, machine).await;
            stage.delete(shop).await;
            kill(stage, killed).await;
            holds(stage, bank, 2).await;
            tokio::time::sleep(STAYS).await;
            set_consumer(stage, &used, Value::Null).await;
            stage.gone(shop).await;
            return;
        }
    }
    holds(stage, bank, 2).await;
    holds(stage, shop, 1).await;
}

/// Moves it back.
async fn come_back(stage: &mut Stage, (shop, bank): (&Cluster, &Cluster), how: Move) {
    match how {
        Move::Delete => {
            stage.create(shop).await;
        }
        Move::Shrink | Move::Drop | Move::Refuse => wants(stage, shop, 2, &SHOP).await,
    }
    wants(stage, bank, 1, &[BANK]).await;
    holds(stage, bank, 1).await;
    holds(stage, shop, 2).await;
    stage.ready(shop).await;
    stage.ready(bank).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_tenant_is_answered_by_a_machine_of_another() {
    if let Some(why) = node::obstacle() {
        println!("not shown here: {why}");
        return;
    }
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let mut stage = start_empty(SCENARIO).await;
    let node = stage.site.node().unwrap();
    let (at_node, machines) = (node.address(), node.machines());
    let tenants = Tenants::default();
    let mut running: JoinSet<()> = JoinSet::new();
    let mut addresses = BTreeMap::new();
    let mut hosts = Vec::new();
    let mut serving = Vec::new();
    for (index, address) in machines.into_iter().enumerate() {
        let name = format!("{SCENARIO}-w{index}");
        let flavor = format!("{SCENARIO}-worker");
        hosts.push(Host::new(&name, &flavor, &format!("r{index}"), address));
        addresses.insert(name, address);
        for port in [SHOP[0], SHOP[1], BANK, TAKEN] {
            serving.push(listen(address, port, Arc::clone(&tenants)).await);
        }
    }
    stage.load(&hosts).await;
    let (shop, bank) = (tenant("shop", 2, &SHOP), tenant("bank", 1, &[BANK]));
    for cluster in [&shop, &bank] {
        stage.create(cluster).await;
        stage.ready(cluster).await;
    }
    running.spawn(provision(stage.hosts(), addresses, Arc::clone(&tenants)));
    let seen = Arc::new(Seen::default());
    let asked = [
        (SHOP[0], "moves/shop"),
        (SHOP[1], "moves/shop"),
        (BANK, "moves/bank"),
    ];
    for (port, own) in asked.iter().cycle().take(CLIENTS * asked.len()) {
        running.spawn(client(Arc::clone(&seen), SocketAddr::from((at_node, *port)), own));
    }

    let seed = number("SOAK_SEED").unwrap_or(1);
    let mut random = StdRng::seed_from_u64(seed);
    let moves = number("SOAK_MOVES");
    let count = moves.unwrap_or(MOVES.len() as u64);
    for (turn, how) in (0..count).zip(MOVES.into_iter().cycle()) {
        // Every second move in the short form, and every move in the long one, kills an agent somewhere in it.
        let kills = moves.is_some() || turn % 2 == 1;
        let agents = [Agent::LoadBalancer, Agent::Cluster];
        let killed = kills.then(|| {
            let agent = agents[random.random_range(0..agents.len())];
            (agent, Duration::from_millis(random.random_range(0..3_000)))
        });
        depart(&mut stage, (&shop, &bank), how, killed).await;
        come_back(&mut stage, (&shop, &bank), how).await;
        let wrong = seen.wrong.lock().unwrap().clone();
        let answers = seen.answers.load(Ordering::Relaxed);
        println!("seed {seed}, move {turn}: {how:?}, killed {killed:?}, {answers} answers");
        assert_eq!(
            wrong,
            Vec::<String>::new(),
            "{how:?}: {} wrong answers",
            wrong.len()
        );
        assert!(running.try_join_next().is_none(), "clients go on");
    }
    let answers = seen.answers.load(Ordering::Relaxed);
    assert!(answers > 5_000, "{answers} answers show nothing");
    stage.nothing_was_forbidden();
}
