//! A host moves from one tenant to another while both are asked all the time, and agents, the scheduler and containers of load balancers
//! are killed: nobody is answered by a machine of the other.

mod kills;
mod traffic;

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::Service;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use rand::{SeedableRng as _, rngs::StdRng, seq::SliceRandom as _};
use sandbox::{
    inventory::{FLAVOR, Host, NETWORK},
    node,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::kills::{Kill, Kills, kill};
use self::traffic::{Seen, Tenant, Tenants, listen, provision};
use super::start_empty;
use crate::{
    balancers::releases::may_list_pods,
    fixtures::{Cluster, Role, Stage, cluster, make_again, members, requested, set_consumer},
};

const SCENARIO: &str = "moves";
/// Of the first tenant's two load balancers, and of the other tenant's one.
const SHOP: [u16; 2] = [31_500, 31_501];
const BANK: u16 = 31_502;
/// The first tenant asks for it when it is somebody else's.
const TAKEN: u16 = 31_503;
const CLIENTS: usize = 8;
/// A host that waits for pods stays for so long at least.
const STAYS: Duration = Duration::from_secs(3);
/// The clients of all ports together have so many answers in every move at least.
const ANSWERS: u64 = 500;
/// Hosts that the first tenant may have too.
const SHOPS: &str = "example.org/shops";

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

fn shops(label: Option<&str>) -> Value {
    json!({"metadata": {"labels": {SHOPS: label}}})
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
    /// The same edit asks for a port that is taken, and a later one drops that load balancer.
    RefuseThenDrop,
    /// It is deleted while one of its hosts is in use.
    Delete,
    /// It wants one less while the load-balancer agent may not list pods.
    Unlisted,
    /// The `BareMetalHost` is deleted and made again, and does not fit the tenant any more; only then it wants one less.
    MadeAgain,
}

const MOVES: [Move; 7] = [
    Move::Delete,
    Move::Shrink,
    Move::Drop,
    Move::Refuse,
    Move::RefuseThenDrop,
    Move::Unlisted,
    Move::MadeAgain,
];

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

/// Somebody has the port that the shop asks for; it is told so, and its hosts stay.
async fn refuse(stage: &mut Stage, shop: &Cluster, killed: Option<Kill>) {
    let services: Api<Service> = Api::namespaced(stage.site.client(), SCENARIO);
    let theirs = json!({
        "metadata": {"name": "theirs"},
        "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": TAKEN}]},
    });
    let theirs = serde_json::from_value(theirs).unwrap();
    services.create(&PostParams::default(), &theirs).await.unwrap();
    wants(stage, shop, 1, &[SHOP[0], TAKEN]).await;
    kill(stage, SCENARIO, killed).await;
    stage
        .condition_is(shop, "LoadBalancerReady", "False", "PortConflict")
        .await;
    stays(stage, "the refused load balancer still routes there").await;
}

/// The shop has both hosts, and has them after a while.
async fn stays(stage: &Stage, why: &str) {
    tokio::time::sleep(STAYS).await;
    let held = stage.clusters(SCENARIO).get("shop").await.unwrap();
    assert_eq!(members(&held).len(), 2, "{why}");
}

/// Moves one host from the shop, which has two, to the bank.
async fn depart(
    stage: &mut Stage,
    (shop, bank): (&Cluster, &Cluster),
    hosts: &[Host],
    how: Move,
    killed: Option<Kill>,
) {
    wants(stage, bank, 2, &[BANK]).await;
    match how {
        Move::Shrink => {
            wants(stage, shop, 1, &SHOP).await;
            kill(stage, SCENARIO, killed).await;
        }
        Move::Drop => {
            wants(stage, shop, 1, &SHOP[..1]).await;
            kill(stage, SCENARIO, killed).await;
        }
        Move::Refuse | Move::RefuseThenDrop => {
            refuse(stage, shop, killed).await;
            let services: Api<Service> = Api::namespaced(stage.site.client(), SCENARIO);
            if matches!(how, Move::RefuseThenDrop) {
                wants(stage, shop, 1, &SHOP[..1]).await;
                holds(stage, bank, 2).await;
            }
            services.delete("theirs", &DeleteParams::default()).await.unwrap();
        }
        Move::Delete => {
            let held = stage.clusters(SCENARIO).get("shop").await.unwrap();
            let used = members(&held)[0].name.clone();
            let machine =
                json!({"apiVersion": "v1", "kind": "Metal3Machine", "namespace": SCENARIO, "name": "m-0"});
            set_consumer(stage, &used, machine).await;
            stage.delete(shop).await;
            kill(stage, SCENARIO, killed).await;
            holds(stage, bank, 2).await;
            tokio::time::sleep(STAYS).await;
            set_consumer(stage, &used, Value::Null).await;
            stage.gone(shop).await;
            return;
        }
        Move::Unlisted => {
            may_list_pods(stage, false).await;
            wants(stage, shop, 1, &SHOP).await;
            kill(stage, SCENARIO, killed).await;
            stays(stage, "what is not listed may route there").await;
            may_list_pods(stage, true).await;
        }
        Move::MadeAgain => {
            let held = stage.clusters(SCENARIO).get("shop").await.unwrap();
            let again = members(&held)[0].name.clone();
            let host = hosts.iter().find(|host| host.name == again).unwrap();
            make_again(stage, host).await;
            kill(stage, SCENARIO, killed).await;
            stays(stage, "its load balancers still route to the machine").await;
            wants(stage, shop, 1, &SHOP).await;
        }
    }
    holds(stage, bank, 2).await;
    holds(stage, shop, 1).await;
}

/// Moves it back.
async fn come_back(stage: &mut Stage, (shop, bank): (&Cluster, &Cluster), how: Move, killed: Option<Kill>) {
    match how {
        Move::Delete => {
            stage.create(shop).await;
        }
        Move::MadeAgain => {
            for host in &stage.hosts_of(SCENARIO).await {
                let patch = Patch::Merge(shops(Some("yes")));
                let name = host.metadata.name.as_deref().unwrap();
                let patched = stage.hosts().patch(name, &PatchParams::default(), &patch).await;
                patched.unwrap();
            }
            wants(stage, shop, 2, &SHOP).await;
        }
        Move::Shrink | Move::Drop | Move::Refuse | Move::RefuseThenDrop | Move::Unlisted => {
            wants(stage, shop, 2, &SHOP).await;
        }
    }
    wants(stage, bank, 1, &[BANK]).await;
    kill(stage, SCENARIO, killed).await;
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
    let mut stage = start_empty(SCENARIO).await;
    let node = stage.site.node().unwrap();
    let (at_node, machines) = (node.address(), node.machines());
    let tenants = Tenants::default();
    let mut running: JoinSet<()> = JoinSet::new();
    let mut addresses = BTreeMap::<String, Ipv4Addr>::new();
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
    for host in &hosts {
        let patch = Patch::Merge(shops(Some("yes")));
        let patched = stage
            .hosts()
            .patch(&host.name, &PatchParams::default(), &patch)
            .await;
        patched.unwrap();
    }
    let flavor = format!("{SCENARIO}-worker");
    let (shop, bank) = (
        tenant("shop", 2, &SHOP).with(
            "/nodes/Worker/labelSelector/matchLabels",
            json!({FLAVOR: flavor, SHOPS: "yes"}),
        ),
        tenant("bank", 1, &[BANK]),
    );
    for cluster in [&shop, &bank] {
        stage.create(cluster).await;
        stage.ready(cluster).await;
    }
    running.spawn(provision(stage.hosts(), addresses.clone(), Arc::clone(&tenants)));
    let addresses = Arc::new(addresses);
    let seen = Arc::new(Seen::default());
    let of = |name| Tenant::new(stage.clusters(SCENARIO), (SCENARIO, name), Arc::clone(&addresses));
    let (of_shop, of_bank) = (of("shop"), of("bank"));
    for tenant in [&of_shop, &of_bank] {
        running.spawn(tenant.clone().follow());
    }
    let asked = [(SHOP[0], &of_shop), (SHOP[1], &of_shop), (BANK, &of_bank)];
    for (port, tenant) in asked.iter().cycle().take(CLIENTS * asked.len()) {
        let at = SocketAddr::from((at_node, *port));
        running.spawn((*tenant).clone().send_requests(Arc::clone(&seen), at));
    }

    let seed = requested("SOAK_SEED").unwrap_or(1);
    let mut random = StdRng::seed_from_u64(seed);
    let moves = requested("SOAK_MOVES");
    let count = moves.unwrap_or(MOVES.len() as u64);
    let mut order = Vec::new();
    let mut victims = Kills::default();
    for turn in 0..count {
        if order.is_empty() {
            order = MOVES.to_vec();
            order.shuffle(&mut random);
        }
        let how = order.remove(0);
        // Every second move in the short form, and every move in the long one, kills something on the way there and something on the
        // way back.
        let kills = moves.is_some() || turn % 2 == 1;
        let mut next = || kills.then(|| victims.next(&mut random));
        let killed = [next(), next()];
        println!("seed {seed}, move {turn}: {how:?}, killed {killed:?}");
        let before = seen.answers();
        let [there, back] = killed;
        depart(&mut stage, (&shop, &bank), &hosts, how, there).await;
        come_back(&mut stage, (&shop, &bank), how, back).await;
        let answers = seen.answers() - before;
        let wrong = seen.wrong();
        println!("{answers} answers, {} of them wrong", wrong.len());
        assert_eq!(
            wrong,
            Vec::<String>::new(),
            "{how:?}: {} wrong answers",
            wrong.len()
        );
        assert!(answers > ANSWERS, "{how:?}: {answers} answers show nothing");
        assert!(running.try_join_next().is_none(), "clients go on");
    }
}
