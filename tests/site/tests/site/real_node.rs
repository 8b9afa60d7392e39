//! Load balancers that really run: HAProxy in restricted pods on a real node, in front of something that listens.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::ListParams};
use sandbox::{
    inventory::{Host, NETWORK},
    node::{self, Image},
    region::{HOSTS_NAMESPACE, Region},
    site::{Nodes, Site},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::fixtures::{AGENTS, PATIENCE, Role, Stage, cluster};

const SCENARIO: &str = "real";
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

async fn ask(address: SocketAddr) -> io::Result<String> {
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
        let answer = ask(address).await;
        if holds(&answer) {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{what}: {answer:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_ready_load_balancer_leads_to_its_workers_from_a_restricted_namespace() {
    if let Some(why) = node::obstacle() {
        // That there is none in the way of root on Linux is shown in tests/sandbox.
        println!("not shown here: {why}");
        return;
    }
    let haproxy = Image::new("haproxy:2.8", node::system_program("haproxy").unwrap());
    let site = Site::builder(SCENARIO).nodes(Nodes::Real).image(haproxy);
    let region = Arc::new(Region::start("north").await.unwrap());
    let stage = Stage::start_with(region, site, &[HOSTS_NAMESPACE], &AGENTS).await;
    let node = stage.site.node().unwrap();
    let (at_node, here) = (SocketAddr::from((node.address(), PORT)), node.host_address());
    stage.site.create_namespace(SCENARIO).await.unwrap();
    stage
        .kubectl(&[
            "label",
            "namespace",
            SCENARIO,
            "pod-security.kubernetes.io/enforce=restricted",
        ])
        .await;
    let host = Host::new("real-w1", &format!("{SCENARIO}-worker"), "r1", here);
    stage.load(&[host]).await;
    let worker = Worker::start(here).await;

    let shop = cluster(SCENARIO, "shop").role(Role::Worker, 1).with(
        "/services/loadBalancerWorker",
        json!([{
            "image": "haproxy:2.8",
            "nodeInterfaceId": NETWORK,
            "nodePortRange": {"start": PORT, "end": PORT},
        }]),
    );
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
    let served = |answer: &io::Result<String>| answer.as_ref().is_ok_and(|text| text == "a worker");
    until(at_node, "the worker answers through the load balancer", served).await;

    drop(worker);
    let refused = |answer: &io::Result<String>| answer.as_ref().map_or(true, String::is_empty);
    until(at_node, "nobody answers for the worker", refused).await;
    let _worker = Worker::start(here).await;
    until(at_node, "the worker is back", served).await;
    stage.nothing_was_forbidden(&[]);
}
