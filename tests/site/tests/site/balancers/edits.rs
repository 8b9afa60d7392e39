//! Any order of edits converges: what a spec names is there and nothing else, and an entry that an edit does not change keeps its
//! objects. Agents are restarted between any two edits. Where nothing changes, nothing is written.
//!
//! `SOAK_EDITS` is the number of edits (without it a few), `SOAK_SEED` the seed.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    time::Duration,
};

use k8s_openapi::{NamespaceResourceScope, api::core::v1::ConfigMap};
use kube::{Api, Resource, ResourceExt as _, api::ListParams};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::SliceRandom as _};
use sandbox::{inventory::NETWORK, region::Agent};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::{objects, workers};
use crate::{
    fixtures::{AGENTS, Cluster, PATIENCE, Role, Stage, cluster, fleet, members, requested},
    steady_state::{quiet_for, writes},
};

const NAMESPACES: [&str; 2] = ["edits-a", "edits-b"];
const FIRST_PORT: u16 = 31_600;
const LAST_PORT: u16 = 31_659;
const MOST_WORKERS: u32 = 3;
/// Kinds of edits.
const KINDS: u8 = 9;
const SHORT: u64 = 10;
/// For how long nobody may write at rest, after nobody has written for a moment.
const REST: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(5));
const PAUSE: Duration = Duration::from_millis(100);

/// A load balancer that a spec names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: Option<String>,
    pub(crate) port: u16,
}

/// What the spec of one cluster asks for.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) workers: u32,
    pub(crate) entries: Vec<Entry>,
    /// A role of one host behind a load balancer of its own.
    control_plane: Option<Entry>,
}

impl Wish {
    fn all(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().chain(&self.control_plane)
    }

    /// Two named entries of one cluster, of one kind or not, get each other's ports. Returns whether there are two.
    fn exchange_ports(&mut self) -> bool {
        let Wish {
            workers: _,
            entries,
            control_plane,
        } = self;
        let all = entries.iter_mut().chain(control_plane);
        let mut named = all.filter(|entry| entry.name.is_some());
        let (Some(first), Some(second)) = (named.next(), named.next_back()) else {
            return false;
        };
        std::mem::swap(&mut first.port, &mut second.port);
        true
    }

    pub(crate) fn members(&self) -> usize {
        self.workers as usize + usize::from(self.control_plane.is_some())
    }

    pub(crate) fn spec(&self, of: &Cluster) -> Value {
        let entries = self.entries.iter();
        let entries: Vec<Value> = entries
            .map(|entry| workers(entry.port, entry.port, &json!({"name": entry.name})))
            .collect();
        let control_plane = self.control_plane.as_ref().map(|entry| {
            json!([{"image": "haproxy:2.8", "nodeInterfaceId": NETWORK, "nodePort": entry.port, "name": entry.name}])
        });
        let role = of.clone().role(Role::ControlPlane, 1).spec()["nodes"]["ControlPlane"].clone();
        json!({
            "nodes": {
                "Worker": {"count": {"active": self.workers}},
                "ControlPlane": self.control_plane.as_ref().map(|_| role),
            },
            "services": {"loadBalancerWorker": entries, "loadBalancerControlPlane": control_plane},
        })
    }
}

/// How much may be wished of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Most {
    /// Of each cluster.
    pub(crate) workers: [u32; 2],
    pub(crate) entries: usize,
    pub(crate) ports: RangeInclusive<u16>,
    /// Whether there may be a role of one host with a load balancer of its own.
    pub(crate) control_planes: bool,
}

/// What is wished of the clusters, and names and ports that no entry has had.
pub(crate) struct Wishes {
    pub(crate) random: StdRng,
    pub(crate) now: [Wish; 2],
    most: Most,
    names: u32,
    /// The kinds of edits that are to come before any comes again.
    kinds: Vec<u8>,
}

impl Wishes {
    /// Two entries of each cluster.
    pub(crate) fn new(seed: u64, most: Most) -> Self {
        let empty = Wish {
            workers: 1,
            entries: Vec::new(),
            control_plane: None,
        };
        let mut wishes = Self {
            random: StdRng::seed_from_u64(seed),
            now: [empty.clone(), empty],
            most,
            names: 0,
            kinds: Vec::new(),
        };
        for index in [0, 0, 1, 1] {
            let entry = wishes.new_entry();
            wishes.now[index].entries.push(entry);
        }
        wishes
    }

    /// A port that no entry has.
    fn port(&mut self) -> u16 {
        let used: BTreeSet<u16> = self
            .now
            .iter()
            .flat_map(Wish::all)
            .map(|entry| entry.port)
            .collect();
        loop {
            let port = self.random.random_range(self.most.ports.clone());
            if !used.contains(&port) {
                return port;
            }
        }
    }

    fn name(&mut self) -> Option<String> {
        self.names += 1;
        self.random.random::<bool>().then(|| format!("n{}", self.names))
    }

    fn new_entry(&mut self) -> Entry {
        Entry {
            port: self.port(),
            name: self.name(),
        }
    }

    /// Changes what is wished by one edit of one cluster, or of both; returns what was done.
    pub(crate) fn edit(&mut self) -> String {
        loop {
            let one = self.random.random_range(0..2);
            let count = self.now[one].entries.len();
            let at = self.random.random_range(0..count.max(1));
            if self.kinds.is_empty() {
                self.kinds = (0..KINDS).collect();
                self.kinds.shuffle(&mut self.random);
            }
            let done = match self.kinds.pop().unwrap() {
                0 if count < self.most.entries => {
                    let entry = self.new_entry();
                    self.now[one].entries.insert(at.min(count), entry);
                    "adds an entry"
                }
                1 if count > 0 => {
                    self.now[one].entries.remove(at);
                    "drops an entry"
                }
                2 if count > 1 => {
                    self.now[one].entries.swap(at, (at + 1) % count);
                    "swaps two entries"
                }
                3 if count > 0 => {
                    self.names += 1;
                    self.now[one].entries[at].name = Some(format!("n{}", self.names));
                    "renames an entry"
                }
                4 if count > 0 => {
                    let port = self.port();
                    self.now[one].entries[at].port = port;
                    "moves the port of an entry"
                }
                5 => {
                    let most = self.most.workers[one];
                    let more = self.random.random_range(1..=most);
                    self.now[one].workers = (self.now[one].workers + more) % (most + 1);
                    "wants another number of workers"
                }
                6 if self.most.control_planes => {
                    let entry = self.new_entry();
                    let role = &mut self.now[one].control_plane;
                    *role = role.is_none().then_some(entry);
                    "gets or loses a role with its load balancer"
                }
                7 if count > 0 && self.now[1 - one].entries.len() < self.most.entries => {
                    let entry = self.now[one].entries.remove(at);
                    self.now[1 - one].entries.push(entry);
                    "gives an entry to the cluster of the other namespace"
                }
                8 if self.now[one].exchange_ports() => "has two named entries exchange their ports",
                _ => continue,
            };
            return format!("{} {done}: {:?}", NAMESPACES[one], self.now);
        }
    }
}

/// The Services of a namespace by their node port: name, uid, and how often the Deployment's spec has changed.
type Made = BTreeMap<u16, (String, String, Option<i64>)>;

async fn names<K>(api: &Api<K>) -> BTreeSet<String>
where
    K: Resource<Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let found = api.list(&ListParams::default()).await.unwrap();
    let names = found.iter().map(kube::ResourceExt::name_any);
    names.filter(|name| name.starts_with("loadbalancer-")).collect()
}

/// What there is in a namespace, if it is complete and nothing else is there.
async fn made(stage: &Stage, namespace: &str) -> Result<Made, String> {
    let of = objects(stage, namespace);
    let mut made = Made::new();
    for service in of.services.list(&ListParams::default()).await.unwrap() {
        let port = service.spec.as_ref().unwrap().ports.as_ref().unwrap()[0]
            .node_port
            .unwrap();
        let name = service.name_any();
        let deployment = of.deployments.get_opt(&name).await.unwrap();
        let generation = deployment.and_then(|deployment| deployment.metadata.generation);
        let port = u16::try_from(port).unwrap();
        made.insert(port, (name, service.uid().unwrap(), generation));
    }
    let services: BTreeSet<String> = made.values().map(|(name, _, _)| name.clone()).collect();
    let config_maps: Api<ConfigMap> = Api::namespaced(stage.site.client(), namespace);
    let pods = of.pods.list(&ListParams::default()).await.unwrap();
    let instance = |pod: &k8s_openapi::api::core::v1::Pod| {
        pod.labels()
            .get("app.kubernetes.io/instance")
            .cloned()
            .unwrap_or_default()
    };
    for (what, found) in [
        ("Deployments", names(&of.deployments).await),
        ("ConfigMaps", names(&config_maps).await),
        ("NetworkPolicies", names(&of.policies).await),
        ("PodDisruptionBudgets", names(&of.budgets).await),
        ("pods", pods.iter().map(instance).collect()),
    ] {
        if found != services {
            return Err(format!("{what} {found:?}, Services {services:?}"));
        }
    }
    Ok(made)
}

/// Waits until exactly the entries of a wish have objects, and the cluster holds what it wants.
async fn until_made(stage: &Stage, of: &Cluster, wish: &Wish) -> Made {
    let holds = |object: &kube::api::DynamicObject| {
        let members = members(object);
        members.len() == wish.members() && members.iter().all(|member| member.state == "Bound")
    };
    stage.until(of, "hold what it wants", holds).await;
    stage.ready(of).await;
    // Deployments follow when hosts have their labels, which come first.
    timeout(PATIENCE, quiet_for(stage, REST.0)).await.unwrap();
    let ports: BTreeSet<u16> = wish.all().map(|entry| entry.port).collect();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let made = made(stage, &of.namespace).await;
        if let Ok(made) = &made
            && made.keys().copied().collect::<BTreeSet<_>>() == ports
        {
            return made.clone();
        }
        assert!(Instant::now() < deadline, "{ports:?} are asked for: {made:?}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// An entry that an edit did not change has the objects that it had.
fn assert_kept((before, after): (&Wish, &Wish), (had, has): (&Made, &Made), what: &str) {
    let members = (before.workers, after.workers);
    for entry in after
        .all()
        .filter(|entry| before.all().any(|known| known == *entry))
    {
        let ((_, uid, generation), (_, now_uid, now_generation)) = (&had[&entry.port], &has[&entry.port]);
        assert_eq!(now_uid, uid, "{what}: {entry:?} has another Service");
        // Without a sidecar another member is another configuration.
        if members.0 == members.1 {
            assert_eq!(now_generation, generation, "{what}: {entry:?} has other pods");
        }
    }
}

/// An agent is restarted a moment later, or none.
pub(crate) async fn restart_one(stage: &mut Stage, random: &mut StdRng) {
    let restarts = [None, Some(Agent::LoadBalancer), Some(Agent::Cluster)];
    if let Some(agent) = restarts[random.random_range(0..restarts.len())] {
        let after = Duration::from_millis(random.random_range(0..1_000));
        println!("{agent:?} is restarted after {after:?}");
        tokio::time::sleep(after).await;
        stage.agent(agent).restart().await.unwrap();
    }
}

#[tokio::test]
async fn any_order_of_edits_converges() {
    let seed = requested("SOAK_SEED").unwrap_or(1);
    let mut stage = Stage::start("edits", &AGENTS).await;
    let most = Most {
        workers: [MOST_WORKERS; 2],
        entries: 4,
        ports: FIRST_PORT..=LAST_PORT,
        control_planes: true,
    };
    let mut wishes = Wishes::new(seed, most);
    let mut has = Vec::new();
    let clusters = NAMESPACES.map(|namespace| cluster(namespace, "shop").role(Role::Worker, 1));
    for (index, shop) in clusters.iter().enumerate() {
        stage.site.create_tenant_namespace(&shop.namespace).await.unwrap();
        stage.load(&fleet(&shop.namespace, MOST_WORKERS, 1, 1)).await;
        stage.create(shop).await;
        stage.edit(shop, wishes.now[index].spec(shop)).await;
        has.push(until_made(&stage, shop, &wishes.now[index]).await);
    }
    for turn in 0..requested("SOAK_EDITS").unwrap_or(SHORT) {
        let before = wishes.now.clone();
        let what = format!("seed {seed}, edit {turn}: {}", wishes.edit());
        println!("{what}");
        for (shop, wish) in clusters.iter().zip(&wishes.now) {
            stage.edit(shop, wish.spec(shop)).await;
        }
        restart_one(&mut stage, &mut wishes.random).await;
        for (index, shop) in clusters.iter().enumerate() {
            let made = until_made(&stage, shop, &wishes.now[index]).await;
            let edit = (&before[index], &wishes.now[index]);
            assert_kept(edit, (&has[index], &made), &what);
            has[index] = made;
        }
    }

    let at_rest = timeout(PATIENCE, quiet_for(&stage, REST.0)).await.unwrap();
    tokio::time::sleep(REST.1).await;
    let now = writes(&stage);
    assert_eq!(now.len(), at_rest.len(), "{:#?}", &now[at_rest.len()..]);
    for (index, shop) in clusters.iter().enumerate() {
        let made = until_made(&stage, shop, &wishes.now[index]).await;
        assert_eq!(made, has[index], "nothing has changed at rest");
    }
    stage.nothing_was_forbidden();
}
