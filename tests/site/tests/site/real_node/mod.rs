//! Load balancers and jump hosts that really run, in restricted pods on a real node: HAProxy in front of something that listens, and sshd.

pub(crate) mod followed;
mod jump_hosts;
mod kept;
mod moves;
mod sign_in;
mod switched_over;

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use sandbox::{
    inventory::{Host, NETWORK},
    node::{self, Image},
    region::{AGENTS_NAMESPACE, Agent, HOSTS_NAMESPACE, Region},
    repository,
    site::{Nodes, Site},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::fixtures::{AGENTS, Cluster, PATIENCE, Role, Stage, cluster};

const SCENARIO: &str = "real";
const TEMPLATED: &str = "real-templated";
/// Of the node and of the worker.
const PORT: u16 = 31_500;

/// Listens where the load balancer looks for a worker, and says the same to everybody.
struct Worker {
    // It ends with this.
    _serving: JoinSet<()>,
}

impl Worker {
    async fn start(address: Ipv4Addr) -> Self {
        let listener = TcpListener::bind((address, PORT)).await.unwrap();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            loop {
                // A health check hangs up at once, which is its right.
                if let Ok((mut stream, _)) = listener.accept().await {
                    let _ = stream.write_all(b"a worker").await;
                }
            }
        });
        Self { _serving: serving }
    }
}

async fn request(address: SocketAddr) -> io::Result<String> {
    let asked = async {
        let mut answer = String::new();
        TcpStream::connect(address)
            .await?
            .read_to_string(&mut answer)
            .await?;
        Ok(answer)
    };
    match tokio::time::timeout(Duration::from_secs(2), asked).await {
        Ok(answer) => answer,
        Err(late) => Err(late.into()),
    }
}

async fn until(address: SocketAddr, what: &str, holds: impl Fn(&io::Result<String>) -> bool) {
    let started = Instant::now();
    loop {
        let answer = request(address).await;
        if holds(&answer) {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{what}: {answer:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A site whose node is real, with one host that is here.
async fn start(scenario: &str) -> Stage {
    let stage = start_empty(scenario).await;
    let [here, ..] = stage.site.node().unwrap().machines();
    let host = Host::new(
        &format!("{scenario}-w1"),
        &format!("{scenario}-worker"),
        "r1",
        here,
    );
    stage.load(&[host]).await;
    stage
}

/// A site whose node is real, and a namespace that enforces restricted pods.
async fn start_empty(scenario: &str) -> Stage {
    start_with(scenario, scenario, &AGENTS).await
}

/// The same, of this name and with these agents.
async fn start_with(site: &str, scenario: &str, agents: &[Agent]) -> Stage {
    let haproxy = Image::new("haproxy:2.8", node::system_program("haproxy").unwrap());
    let site = Site::builder(site).nodes(Nodes::Real).image(haproxy);
    let region = Arc::new(Region::start("north").await.unwrap());
    let stage = Stage::start_with(region, site, &[HOSTS_NAMESPACE], agents).await;
    stage.site.create_tenant_namespace(scenario).await.unwrap();
    stage
        .kubectl(&[
            "label",
            "namespace",
            scenario,
            "pod-security.kubernetes.io/enforce=restricted",
        ])
        .await;
    stage
}

/// A cluster with that host, behind one port.
fn shop(scenario: &str) -> Cluster {
    cluster(scenario, "shop").role(Role::Worker, 1).with(
        "/services/loadBalancerWorker",
        json!([{
            "image": "haproxy:2.8",
            "nodeInterfaceId": NETWORK,
            "nodePortRange": {"start": PORT, "end": PORT},
        }]),
    )
}

fn served(answer: &io::Result<String>) -> bool {
    answer.as_ref().is_ok_and(|text| text == "a worker")
}

#[tokio::test]
async fn a_load_balancer_works_in_a_restricted_namespace() {
    if let Some(why) = node::obstacle() {
        // That there is none in the way of root on Linux is shown in tests/sandbox.
        println!("not shown here: {why}");
        return;
    }
    let stage = start(SCENARIO).await;
    let node = stage.site.node().unwrap();
    let (at_node, [here, ..]) = (SocketAddr::from((node.address(), PORT)), node.machines());
    let worker = Worker::start(here).await;

    let shop = shop(SCENARIO);
    stage.create(&shop).await;
    stage.ready(&shop).await;

    let pods: Api<Pod> = Api::namespaced(stage.site.client(), SCENARIO);
    let found = pods.list(&ListParams::default()).await.unwrap().items;
    assert!(!found.is_empty());
    for pod in found {
        let status = pod.status.unwrap();
        let containers = status.container_statuses.unwrap();
        let started = containers
            .iter()
            .filter_map(|container| container.container_id.as_deref());
        assert!(started.clone().count() > 0 && started.clone().all(|id| id.starts_with("containerd://")));
    }
    until(at_node, "the worker answers through the load balancer", served).await;

    drop(worker);
    let refused = |answer: &io::Result<String>| answer.as_ref().map_or(true, String::is_empty);
    until(at_node, "nobody answers for the worker", refused).await;
    let _worker = Worker::start(here).await;
    until(at_node, "the worker is back", served).await;
    stage.nothing_was_forbidden();
}

/// Writes the template of workers as an operator would: this text before what is built in.
async fn write_template(stage: &Stage, lines: &str) {
    let built_in = fs::read_to_string(repository::deploy().join("templates/loadBalancerWorker.cfg")).unwrap();
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "loadbalancerworker"},
        "data": {"loadBalancerWorker.cfg": format!("{lines}{built_in}")},
    });
    let maps: Api<ConfigMap> = Api::namespaced(stage.site.client(), AGENTS_NAMESPACE);
    let params = PatchParams::apply("an-operator").force();
    maps.patch("loadbalancerworker", &params, &Patch::Apply(map))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_template_that_haproxy_refuses_never_runs() {
    if let Some(why) = node::obstacle() {
        println!("not shown here: {why}");
        return;
    }
    let mut stage = start(TEMPLATED).await;
    let node = stage.site.node().unwrap();
    let (at_node, [here, ..]) = (SocketAddr::from((node.address(), PORT)), node.machines());
    let _worker = Worker::start(here).await;
    write_template(&stage, "# first\n").await;
    let shop = shop(TEMPLATED);
    stage.create(&shop).await;
    stage.ready(&shop).await;
    until(at_node, "the worker answers by the first template", served).await;
    let first = stage.haproxy_config(&shop, "worker").await;
    assert!(first.starts_with("# first\n"), "{first}");

    write_template(&stage, "# second\nglobal\n  squarerobin\n").await;
    let ready = "LoadBalancerReady";
    let line = "parsing [members.cfg:3] : unknown keyword 'squarerobin' in 'global' section";
    let why = stage
        .condition_mentions(&shop, ready, "False", "BadTemplate", line)
        .await;
    assert!(
        why.contains("haproxy of haproxy:2.8 refuses the template: [ALERT]")
            && why.contains("; that line is: squarerobin; in its place"),
        "{why}"
    );
    stage.agent(Agent::LoadBalancer).restart().await.unwrap();
    stage.agents_are_ready().await;
    stage
        .condition_mentions(&shop, ready, "False", "BadTemplate", line)
        .await;
    assert_eq!(stage.haproxy_config(&shop, "worker").await, first);
    assert!(served(&request(at_node).await));

    write_template(&stage, "# third\n").await;
    stage.ready(&shop).await;
    let third = stage.haproxy_config(&shop, "worker").await;
    assert!(third.starts_with("# third\n"), "{third}");
    until(at_node, "the worker answers by the third template", served).await;
    stage.nothing_was_forbidden();
}
