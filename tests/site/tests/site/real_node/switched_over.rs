//! A site that the Airship SIP operator has served, with pods that run: clients that never pause are served while the agents adopt it, and no
//! host is written.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use futures::TryStreamExt as _;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret, Service},
};
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams, PostParams},
    runtime::{WatchStreamExt as _, watcher},
};
use sandbox::{
    inventory::{self, NETWORK},
    node::{self, Image},
    region::Region,
    sip_clusters::{CLUSTER_NAME, CLUSTER_NAMESPACE, NODE_TYPE},
    site::{Nodes, Site},
    wait,
};
use serde_json::{Value, json};
use tokio::{
    io::BufReader,
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::followed::{machine, reached, request};
use crate::{
    adoption::{is_taken_over, objects, restore},
    fixtures::{PATIENCE, Stage, cluster},
};

/// Of the sample.
const NAMESPACE: &str = "freight";
const YARD: &str = "yard";
const HOSTS: [&str; 5] = ["y1-n01", "y1-n02", "y2-n01", "y2-n02", "y3-n01"];
const WORKER_BALANCER: &str = "loadbalancer-worker-depot";
const BALANCERS: [&str; 2] = ["loadbalancer-controlplane-depot", WORKER_BALANCER];
const WORKER_ADDRESSES: [&str; 3] = ["192.0.2.22", "192.0.2.38", "192.0.2.46"];
const WORKER_PORTS: std::ops::RangeInclusive<u16> = 30_002..=30_004;
const IMAGE: &str = "haproxy:2.3.2";

const CLIENTS: usize = 4;
/// Between two connections of a client.
const PAUSE: Duration = Duration::from_millis(20);
/// A client gives up a request that is not answered in this time.
const TIMEOUT: Duration = Duration::from_secs(5);
/// So many answers show that clients are served.
const ANSWERS: u64 = 200;

/// What clients and watches have seen.
#[derive(Debug, Default)]
struct Seen {
    answers: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

impl Seen {
    fn wrong(&self, what: String) {
        self.wrong.lock().unwrap().push(what);
    }

    /// Makes a connection for each request, for as long as it runs.
    async fn send_requests(self: Arc<Self>, to: SocketAddr) {
        let began = Instant::now();
        loop {
            let asked = async { request(&mut BufReader::new(TcpStream::connect(to).await?)).await };
            match tokio::time::timeout(TIMEOUT, asked).await {
                Ok(Ok(_)) => {
                    self.answers.fetch_add(1, Ordering::Relaxed);
                }
                Ok(Err(why)) => self.wrong(format!("after {:?}: {why}", began.elapsed())),
                Err(_) => self.wrong(format!("after {:?}: no answer", began.elapsed())),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Waits until clients have been answered for some time from now on.
    async fn are_served(&self) {
        let (before, since) = (self.answers.load(Ordering::Relaxed), Instant::now());
        while self.answers.load(Ordering::Relaxed) < before + ANSWERS {
            assert!(since.elapsed() < PATIENCE, "clients are not answered: {self:?}");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Compares the labels of every state of every host with those of now.
    async fn watch_labels(
        self: Arc<Self>,
        hosts: Api<DynamicObject>,
        now: BTreeMap<String, BTreeMap<String, String>>,
    ) {
        let mut states = pin!(watcher(hosts, watcher::Config::default()).applied_objects());
        while let Some(state) = states.try_next().await.unwrap() {
            if now.get(&state.name_any()) != Some(state.labels()) {
                self.wrong(format!(
                    "{} has the labels {:?}",
                    state.name_any(),
                    state.labels()
                ));
            }
        }
    }

    /// Observes `Ready` in every state of the cluster.
    async fn watch_ready(self: Arc<Self>, clusters: Api<DynamicObject>) {
        let mut states = pin!(watcher(clusters, watcher::Config::default()).applied_objects());
        while let Some(state) = states.try_next().await.unwrap() {
            let ready = wait::condition(&state, "Ready");
            if ready.is_none_or(|(is, ..)| is != "True") {
                self.wrong(format!("Ready is {ready:?}"));
            }
        }
    }
}

/// A site with a real node that has the image of the sample, without agents. As in the official image, HAProxy starts with this file.
async fn start() -> Stage {
    let haproxy = Image::new(IMAGE, node::system_program("haproxy").unwrap());
    let arguments = ["-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"];
    let haproxy = arguments.into_iter().fold(haproxy, Image::arg);
    let site = Site::builder("switched-over").nodes(Nodes::Real).image(haproxy);
    let region = Arc::new(Region::start("north").await.unwrap());
    let stage = Stage::start_with(region, site, &[YARD], &[]).await;
    stage.site.create_namespace(NAMESPACE).await.unwrap();
    // SIP pins its pods to such nodes.
    stage
        .kubectl(&["label", "nodes", "--all", "node-role.kubernetes.io/master="])
        .await;
    stage
}

/// A text of the sample, with the addresses of machines that answer.
fn here(text: &str, machines: &[Ipv4Addr; 3]) -> String {
    let addresses = WORKER_ADDRESSES.iter().zip(machines);
    addresses.fold(text.to_owned(), |text, (of_sample, machine)| {
        text.replace(of_sample, &machine.to_string())
    })
}

/// Makes what SIP has made, but for jump hosts.
async fn make_sips_objects(stage: &Stage, machines: &[Ipv4Addr; 3]) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples/left-by-sip.yaml");
    for mut object in objects(stage, &file.display().to_string()).await {
        if object["kind"] == "BareMetalHost" {
            make_host(stage, object, machines).await;
            continue;
        }
        if object["metadata"]["name"]
            .as_str()
            .unwrap()
            .starts_with("jumphost-")
        {
            continue;
        }
        if let Some(config) = object.pointer_mut("/data/haproxy.cfg") {
            let text = String::from_utf8(BASE64.decode(config.as_str().unwrap()).unwrap()).unwrap();
            *config = json!(BASE64.encode(here(&text, machines)));
        }
        restore(stage, &object).await;
    }
}

/// Makes a host with its networkData, and labels it by an update, as SIP does.
async fn make_host(stage: &Stage, mut host: Value, machines: &[Ipv4Addr; 3]) {
    let name = host["metadata"]["name"].as_str().unwrap().to_owned();
    let bmc = host["spec"]["bmc"]["address"].as_str().unwrap();
    // Of the sample's hosts the last number of both addresses is the same.
    let address = bmc.split('/').nth(2).unwrap().replace("198.51.100.", "192.0.2.");
    let data = json!({"networks": [{
        "id": NETWORK, "type": "ipv4", "link": "eno1", "ip_address": here(&address, machines),
    }]});
    let reference = host["spec"]["networkData"].clone();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": {"networkData": data.to_string()},
        "metadata": {"namespace": reference["namespace"], "name": reference["name"]},
    });
    restore(stage, &secret).await;
    let labels = host["metadata"]["labels"].as_object_mut().unwrap();
    let of_sip = [CLUSTER_NAMESPACE, CLUSTER_NAME, NODE_TYPE].map(|key| {
        let value = labels.remove(key).unwrap();
        (key.to_owned(), value.as_str().unwrap().to_owned())
    });
    restore(stage, &host).await;
    let hosts = inventory::api(stage.site.client(), YARD);
    let mut labelled = hosts.get(&name).await.unwrap();
    labelled.labels_mut().extend(of_sip);
    let sip = PostParams {
        field_manager: Some("manager".to_owned()),
        ..PostParams::default()
    };
    hosts.replace(&name, &sip, &labelled).await.unwrap();
}

/// The objects of the cluster's load balancers.
struct Balancers {
    deployments: Api<Deployment>,
    services: Api<Service>,
    secrets: Api<Secret>,
    config_maps: Api<ConfigMap>,
}

/// What of a load balancer must not change: uids of the Deployment and the Service, node ports, and the version of SIP's Secret.
type Identity = (
    Option<String>,
    Option<String>,
    BTreeSet<Option<i32>>,
    Option<String>,
);

impl Balancers {
    fn new(stage: &Stage) -> Self {
        let client = stage.site.client();
        Self {
            deployments: Api::namespaced(client.clone(), NAMESPACE),
            services: Api::namespaced(client.clone(), NAMESPACE),
            secrets: Api::namespaced(client.clone(), NAMESPACE),
            config_maps: Api::namespaced(client, NAMESPACE),
        }
    }

    /// Waits until SIP's pods run.
    async fn are_available(&self) {
        for name in BALANCERS {
            let is_available = |deployment: &Deployment| {
                let status = deployment.status.as_ref();
                status.and_then(|status| status.available_replicas) == Some(1)
            };
            let (api, what) = (self.deployments.clone(), format!("the pod of {name} to run"));
            wait::until(api, name, &what, PATIENCE, is_available)
                .await
                .unwrap();
        }
    }

    async fn identity(&self, name: &str) -> Identity {
        let service = self.services.get(name).await.unwrap();
        let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
        let ports = ports.map(|port| port.node_port).collect();
        let secret = self.secrets.get(name).await.unwrap();
        assert!(
            secret.owner_references().is_empty(),
            "nobody deletes it with the cluster"
        );
        let deployment = self.deployments.get(name).await.unwrap();
        (deployment.uid(), service.uid(), ports, secret.resource_version())
    }

    /// Waits until the Service and the Deployment are as for any other load balancer. SIP's pods are gone by then.
    async fn are_handed_over(&self) {
        for name in BALANCERS {
            let what = format!("the Service {name} to select by SIP's labels");
            let selects = |service: &Service| {
                let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
                selector.is_some_and(|selector| !selector.contains_key(CLUSTER_NAME))
            };
            wait::until(self.services.clone(), name, &what, PATIENCE, selects)
                .await
                .unwrap();
            let what = format!("the Deployment {name} to have no pause");
            let has_no_pause =
                |deployment: &Deployment| deployment.spec.min_ready_seconds.unwrap_or_default() == 0;
            wait::until(self.deployments.clone(), name, &what, PATIENCE, has_no_pause)
                .await
                .unwrap();
            let config = self.config_maps.get(name).await.unwrap();
            assert_eq!(config.owner_references()[0].name, "depot");
        }
    }
}

/// The hosts as they are now.
async fn hosts(stage: &Stage) -> Vec<DynamicObject> {
    let hosts = inventory::api(stage.site.client(), YARD);
    hosts.list(&ListParams::default()).await.unwrap().items
}

fn versions(hosts: &[DynamicObject]) -> BTreeMap<String, Option<String>> {
    let versions = hosts.iter();
    versions
        .map(|host| (host.name_any(), host.resource_version()))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_sips_load_balancer_are_served_throughout() {
    if let Some(why) = node::obstacle() {
        println!("not shown here: {why}");
        return;
    }
    let mut stage = start().await;
    let node = stage.site.node().unwrap();
    let at_node = SocketAddr::from((node.address(), *WORKER_PORTS.start()));
    let machines = node.machines();
    let mut serving = Vec::new();
    for address in machines {
        for port in WORKER_PORTS {
            let listener = TcpListener::bind((address, port)).await.unwrap();
            serving.push(machine(address, listener));
        }
    }
    make_sips_objects(&stage, &machines).await;
    let balancers = Balancers::new(&stage);
    balancers.are_available().await;
    reached(at_node).await;

    let (seen, mut running) = (Arc::new(Seen::default()), JoinSet::new());
    for _ in 0..CLIENTS {
        running.spawn(Arc::clone(&seen).send_requests(at_node));
    }
    let hosts_before = hosts(&stage).await;
    let labels = hosts_before
        .iter()
        .map(|host| (host.name_any(), host.labels().clone()));
    let watched = inventory::api(stage.site.client(), YARD);
    running.spawn(Arc::clone(&seen).watch_labels(watched, labels.collect()));
    running.spawn(Arc::clone(&seen).watch_ready(stage.clusters(NAMESPACE)));
    seen.are_served().await;
    let [first, second] = BALANCERS;
    let before = [balancers.identity(first).await, balancers.identity(second).await];

    // As docs/switch-over.md has it: the tenant's component, and then the agents.
    stage.site.grant_agents(NAMESPACE).await.unwrap();
    let restricted = "pod-security.kubernetes.io/enforce=restricted";
    stage
        .kubectl(&["label", "namespace", NAMESPACE, restricted])
        .await;
    is_taken_over(&mut stage, &cluster(NAMESPACE, "depot"), &HOSTS, &[YARD]).await;
    balancers.are_handed_over().await;
    seen.are_served().await;

    assert_eq!(*seen.wrong.lock().unwrap(), Vec::<String>::new());
    assert!(running.try_join_next().is_none(), "clients and watches go on");
    let after = [balancers.identity(first).await, balancers.identity(second).await];
    assert_eq!(after, before);
    assert_eq!(versions(&hosts(&stage).await), versions(&hosts_before));
    println!(
        "{} answers over as many connections",
        seen.answers.load(Ordering::Relaxed)
    );
}
