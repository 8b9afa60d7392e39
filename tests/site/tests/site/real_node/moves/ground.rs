//! A real node on which two tenants are served, and clients that ask both all the time.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use kube::api::{Patch, PatchParams};
use sandbox::{
    inventory::{FLAVOR, Host},
    region::HOSTS_NAMESPACE,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{
    kills::{Kill, Killer},
    traffic::{Seen, Tenant, Tenants, listen, provision},
    ways::{Move, come_back, depart, entries},
};
use crate::{
    fixtures::{AGENTS, Cluster, Role, Stage, cluster},
    real_node::start_with,
};

pub(super) const SCENARIO: &str = "moves";
/// Of the first tenant's two load balancers, and of the other tenant's one.
pub(super) const SHOP: [u16; 2] = [31_500, 31_501];
pub(super) const BANK: u16 = 31_502;
/// The first tenant asks for it when it is somebody else's.
pub(super) const TAKEN: u16 = 31_503;
/// Hosts that the first tenant may have too.
const SHOPS: &str = "example.org/shops";
/// Clients of each port that keep their connections, and others.
const CLIENTS: [(usize, bool); 2] = [(8, true), (4, false)];
/// In every move so many answers are judged at least.
const ANSWERS: u64 = 10_000;

/// The label of hosts that the first tenant may have too.
pub(super) fn shops(label: Option<&str>) -> Value {
    json!({"metadata": {"labels": {SHOPS: label}}})
}

fn tenant(name: &str, workers: u32, ports: &[u16]) -> Cluster {
    cluster(SCENARIO, name)
        .role(Role::Worker, workers)
        .with("/services/loadBalancerWorker", entries(ports))
}

/// What the clients of a time were answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    pub(super) answers: u64,
    pub(super) time: Duration,
}

impl Judged {
    /// Answers in a second.
    pub(super) fn rate(self) -> u64 {
        self.answers * 1_000 / u64::try_from(self.time.as_millis()).unwrap().max(1)
    }
}

/// The node, its tenants, and their clients.
pub(super) struct Ground {
    stage: Stage,
    killer: Killer,
    tenants: [Cluster; 2],
    hosts: Vec<Host>,
    seen: Arc<Seen>,
    running: JoinSet<()>,
    _serving: Vec<JoinSet<()>>,
}

impl Ground {
    /// On a site of this name, of which pods may have a sidecar.
    pub(super) async fn start(site: &str, have_sidecars: bool) -> Self {
        let mut stage = start_with(site, SCENARIO, &[]).await;
        let mut config = stage.config(&[HOSTS_NAMESPACE]);
        if !have_sidecars {
            config.haproxy_sidecar_image = None;
        }
        let proxies = stage.start_proxied(&AGENTS, &config).await;
        let tenants = Tenants::default();
        let mut addresses = BTreeMap::<String, Ipv4Addr>::new();
        let mut hosts = Vec::new();
        let mut serving = Vec::new();
        for (index, address) in stage.site.node().unwrap().machines().into_iter().enumerate() {
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
            let hosts = stage.hosts();
            let patched = hosts.patch(&host.name, &PatchParams::default(), &patch).await;
            patched.unwrap();
        }
        let flavor = format!("{SCENARIO}-worker");
        let of_shops = json!({FLAVOR: flavor, SHOPS: "yes"});
        let clusters = [
            tenant("shop", 2, &SHOP).with("/nodes/Worker/labelSelector/matchLabels", of_shops),
            tenant("bank", 1, &[BANK]),
        ];
        for cluster in &clusters {
            stage.create(cluster).await;
            stage.ready(cluster).await;
        }
        let mut running = JoinSet::new();
        running.spawn(provision(stage.hosts(), addresses.clone(), Arc::clone(&tenants)));
        let agents = stage.take_agents();
        let mut ground = Self {
            stage,
            killer: Killer {
                agents,
                proxies,
                namespace: SCENARIO,
            },
            tenants: clusters,
            hosts,
            seen: Arc::default(),
            running,
            _serving: serving,
        };
        ground.send_requests(&Arc::new(addresses));
        ground
    }

    fn send_requests(&mut self, addresses: &Arc<BTreeMap<String, Ipv4Addr>>) {
        let node = self.stage.site.node().unwrap().address();
        let of = |name| {
            let clusters = self.stage.clusters(SCENARIO);
            Tenant::new(clusters, (SCENARIO, name), Arc::clone(addresses))
        };
        let (shop, bank) = (of("shop"), of("bank"));
        for tenant in [&shop, &bank] {
            self.running.spawn(tenant.clone().follow());
        }
        for (port, tenant) in [(SHOP[0], &shop), (SHOP[1], &shop), (BANK, &bank)] {
            for (count, keeps) in CLIENTS {
                for _ in 0..count {
                    let (tenant, seen) = (tenant.clone(), Arc::clone(&self.seen));
                    let at = SocketAddr::from((node, port));
                    self.running.spawn(tenant.send_requests(seen, at, keeps));
                }
            }
        }
    }

    /// A host moves from the first tenant to the other, and back, and something is killed on either way. Returns how many answers were
    /// judged and whether the kills' times came before the end of their ways. None of the answers is of another tenant's machine.
    pub(super) async fn round(&mut self, how: Move, [there, back]: [Option<Kill>; 2]) -> (Judged, [bool; 2]) {
        let (before, began) = (self.seen.answers(), Instant::now());
        let Self {
            stage,
            killer,
            tenants: [shop, bank],
            hosts,
            ..
        } = self;
        let both = (&*shop, &*bank);
        let moving = Box::pin(depart(stage, both, hosts, how));
        let there = Box::pin(killer.kill_during(stage, there, moving)).await;
        let moving = Box::pin(come_back(stage, both, how));
        let back = Box::pin(killer.kill_during(stage, back, moving)).await;
        let judged = Judged {
            answers: self.seen.answers() - before,
            time: began.elapsed(),
        };
        self.seen.until(before + ANSWERS).await;
        let wrong = self.seen.wrong();
        println!(
            "{} answers, {} in a second, {} of them wrong",
            judged.answers,
            judged.rate(),
            wrong.len()
        );
        assert_eq!(wrong, Vec::<String>::new(), "{how:?}");
        assert!(self.running.try_join_next().is_none(), "clients go on");
        (judged, [there, back])
    }
}
