//! Random edits under connections that stay: an entry that an edit does not change loses none, whatever becomes of the other entries, of
//! the members that are not its own, and of the agents.
//!
//! `SOAK_EDITS` is the number of edits (without it a few), `SOAK_SEED` the seed.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use kube::api::DynamicObject;
use sandbox::{inventory::Host, node};
use tokio::{
    io::BufReader,
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinSet},
};

use super::{
    followed::{machine, request},
    start_empty,
};
use crate::{
    balancers::edits::{Entry, Most, Wish, Wishes, restart_one},
    fixtures::{Cluster, PATIENCE, Role, Stage, cluster, members, requested},
};

const SCENARIO: &str = "kept";
const NAMESPACES: [&str; 2] = ["kept-a", "kept-b"];
/// Machines of the first cluster; the other one has the rest.
const FIRST: usize = 2;
const PORTS: std::ops::RangeInclusive<u16> = 31_600..=31_611;
/// Connections to each entry.
const CONNECTIONS: usize = 4;
const SHORT: u64 = 6;
const PAUSE: Duration = Duration::from_millis(100);

/// A connection that is kept going for as long as it can.
struct Connection {
    cluster: usize,
    entry: Entry,
    machine: Ipv4Addr,
    /// Why it has ended.
    cut: Arc<Mutex<Option<String>>>,
    /// Its machine has left the cluster since.
    left: bool,
    task: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Connection {
    /// Opens one as soon as the node leads to the entry: kube-proxy learns of pods after the API server.
    async fn open(tasks: &mut JoinSet<()>, at: Ipv4Addr, cluster: usize, entry: &Entry) -> Self {
        let to = SocketAddr::from((at, entry.port));
        let started = Instant::now();
        let (mut stream, machine) = loop {
            let opened = async {
                let mut stream = BufReader::new(TcpStream::connect(to).await?);
                let machine = request(&mut stream).await?;
                std::io::Result::Ok((stream, machine))
            };
            match opened.await {
                Ok(opened) => break opened,
                Err(why) => assert!(
                    started.elapsed() < PATIENCE,
                    "nobody answers for {entry:?}: {why}"
                ),
            }
            tokio::time::sleep(PAUSE).await;
        };
        let cut = Arc::new(Mutex::new(None));
        let ended = Arc::clone(&cut);
        let task = tasks.spawn(async move {
            let why = loop {
                match request(&mut stream).await {
                    Ok(answered) if answered == machine => tokio::time::sleep(PAUSE).await,
                    Ok(other) => break format!("{other} answers"),
                    Err(why) => break why.to_string(),
                }
            };
            *ended.lock().unwrap() = Some(why);
        });
        Self {
            cluster,
            entry: entry.clone(),
            machine,
            cut,
            left: false,
            task,
        }
    }

    /// Why it was cut, if nothing that was edited allows that.
    fn lost(&self, [before, after]: [&Wish; 2]) -> Option<String> {
        let stays = |wish: &Wish| wish.entries.contains(&self.entry);
        if self.left || !stays(before) || !stays(after) {
            return None;
        }
        let why = self.cut.lock().unwrap().clone()?;
        Some(format!("{:?} to {}: {why}", self.entry, self.machine))
    }
}

/// Waits until a cluster has what is wished; returns the numbers of its machines.
async fn settled(stage: &Stage, of: &Cluster, wish: &Wish) -> BTreeSet<usize> {
    let holds = |object: &DynamicObject| {
        let members = members(object);
        members.len() == wish.members() && members.iter().all(|member| member.state == "Bound")
    };
    stage.until(of, "hold what it wants", holds).await;
    let object = stage.ready(of).await;
    let names = members(&object).into_iter().map(|member| member.name);
    names
        .map(|name| name[SCENARIO.len() + 2..].parse().unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_no_edit_changes_loses_no_connection() {
    if let Some(why) = node::obstacle() {
        println!("not shown here: {why}");
        return;
    }
    let mut stage = start_empty(SCENARIO).await;
    let node = stage.site.node().unwrap();
    let (at_node, machines) = (node.address(), node.machines());
    let mut serving = Vec::new();
    let mut hosts = Vec::new();
    for (index, address) in machines.into_iter().enumerate() {
        let of = NAMESPACES[usize::from(index >= FIRST)];
        let (name, flavor) = (format!("{SCENARIO}-w{index}"), format!("{of}-worker"));
        hosts.push(Host::new(&name, &flavor, &format!("r{index}"), address));
        for port in PORTS {
            let listener = TcpListener::bind((address, port)).await.unwrap();
            serving.push(machine(address, listener));
        }
    }
    stage.load(&hosts).await;
    let seed = requested("SOAK_SEED").unwrap_or(1);
    let rest = u32::try_from(machines.len() - FIRST).unwrap();
    let most = Most {
        workers: [u32::try_from(FIRST).unwrap(), rest],
        entries: 3,
        ports: PORTS,
        control_planes: false,
        images: &["haproxy:2.8"],
        made_again: false,
        replicas: 2,
    };
    let mut wishes = Wishes::new(seed, most);
    let clusters = NAMESPACES.map(|namespace| cluster(namespace, "shop").role(Role::Worker, 1));
    for (shop, wish) in clusters.iter().zip(&wishes.now) {
        stage.site.create_tenant_namespace(&shop.namespace).await.unwrap();
        stage.create(shop).await;
        stage.edit(shop, wish.spec(shop)).await;
    }

    let mut tasks = JoinSet::new();
    let mut kept: Vec<Connection> = Vec::new();
    let (mut judged, mut closed) = (0, 0);
    let edits = requested("SOAK_EDITS").unwrap_or(SHORT);
    for turn in 0..=edits {
        for (index, (shop, wish)) in clusters.iter().zip(&wishes.now).enumerate() {
            settled(&stage, shop, wish).await;
            for entry in wish.entries.iter().filter(|_| wish.workers > 0) {
                let open = |kept: &&Connection| kept.cluster == index && kept.entry == *entry;
                for _ in kept.iter().filter(open).count()..CONNECTIONS {
                    kept.push(Connection::open(&mut tasks, at_node, index, entry).await);
                }
            }
        }
        if turn == edits {
            break;
        }

        let before = wishes.now.clone();
        let what = format!("seed {seed}, edit {turn}: {}", wishes.edit());
        println!("{what}");
        for (shop, wish) in clusters.iter().zip(&wishes.now) {
            stage.edit(shop, wish.spec(shop)).await;
        }
        restart_one(&mut stage, &mut wishes.random).await;
        for (index, (shop, wish)) in clusters.iter().zip(&wishes.now).enumerate() {
            let held = settled(&stage, shop, wish).await;
            let holds = |address| held.iter().any(|number| machines[*number] == address);
            for kept in kept.iter_mut().filter(|kept| kept.cluster == index) {
                kept.left |= !holds(kept.machine);
            }
            let of_it = kept.iter().filter(|kept| kept.cluster == index);
            let lost: Vec<String> = of_it
                .filter_map(|kept| kept.lost([&before[index], wish]))
                .collect();
            assert_eq!(lost, Vec::<String>::new(), "{what}");
        }
        let count = kept.len();
        judged += count;
        kept.retain(|kept| {
            kept.cut.lock().unwrap().is_none() && wishes.now[kept.cluster].entries.contains(&kept.entry)
        });
        closed += count - kept.len();
    }
    println!(
        "{edits} edits, connections: {judged} judged, {closed} of them ended with their entry or member"
    );
    assert!(
        judged > closed,
        "{judged} connections of which {closed} ended show nothing"
    );
    stage.nothing_was_forbidden();
}
