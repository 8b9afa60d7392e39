//! A tenant's API server behind its load balancer, with everything in between real. Three relays play the machines on which the
//! tenant would run it.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{Api, ResourceExt as _, api::ListParams};
use sandbox::{
    inventory::{Host, NETWORK},
    node::{self, Image},
    proxy::Proxy,
    region::{HOSTS_NAMESPACE, Region},
    site::{Nodes, Site},
};
use serde_json::json;
use tokio::{io::AsyncReadExt as _, net::TcpStream};

use crate::fixtures::{AGENTS, Cluster, PATIENCE, Role, Stage, cluster};

const SCENARIO: &str = "tenant";
const API_SERVER: u16 = 6443;
const NODE_PORT: i32 = 31_510;
/// Three checks find out that nobody listens: one after two seconds, two more after one second each.
const REFUSAL_FOUND: Duration = Duration::from_secs(5);
/// A check that hears nothing takes two seconds itself. That is what users are promised.
const SILENCE_FOUND: Duration = Duration::from_secs(10);
/// New connections that must all be served.
const REQUESTS: usize = 20;

/// Asks the tenant's API server by kubectl, on a connection of its own. Its certificate is for other addresses.
async fn request(tenant: &Site, at: SocketAddr) -> Result<String, String> {
    let server = format!("https://{at}");
    let arguments = [
        "--server",
        &server,
        "--tls-server-name",
        "127.0.0.1",
        "--request-timeout",
        "5s",
        "get",
        "namespace",
        "of-the-tenant",
        "--output",
        "name",
    ];
    let answer = tenant.kubectl(&arguments).await.unwrap();
    if answer.success {
        Ok(answer.stdout.trim().to_owned())
    } else {
        Err(answer.stderr)
    }
}

/// Whether a connection ends at once, with nothing said.
pub(crate) async fn hangs_up(at: SocketAddr) -> bool {
    let asked = async {
        let mut stream = TcpStream::connect(at).await?;
        stream.read(&mut [0]).await
    };
    match tokio::time::timeout(Duration::from_secs(1), asked).await {
        Ok(answer) => answer.map_or(true, |read| read == 0),
        Err(_) => false,
    }
}

/// What is found out within a time is found out: from then on every new request is answered.
async fn after(found: Duration, tenant: &Site, at: SocketAddr) {
    tokio::time::sleep(found).await;
    for number in 0..REQUESTS {
        let answer = request(tenant, at).await;
        assert_eq!(
            answer.as_deref(),
            Ok("namespace/of-the-tenant"),
            "request {number}"
        );
    }
}

/// Every way that leads to the load balancer of the control plane: its node port, its Service, and each of its pods.
async fn ways(stage: &Stage, shop: &Cluster) -> Vec<SocketAddr> {
    let name = format!("loadbalancer-controlplane-{}", shop.name);
    let client = || stage.site.client();
    let service = Api::<Service>::namespaced(client(), SCENARIO)
        .get(&name)
        .await
        .unwrap();
    let address: IpAddr = service.spec.unwrap().cluster_ip.unwrap().parse().unwrap();
    let node = stage.site.node().unwrap().address();
    let mut ways = vec![
        (node, u16::try_from(NODE_PORT).unwrap()).into(),
        (address, API_SERVER).into(),
    ];
    let own = ListParams::default().labels(&format!("app.kubernetes.io/instance={name}"));
    let pods = Api::<Pod>::namespaced(client(), SCENARIO)
        .list(&own)
        .await
        .unwrap()
        .items;
    ways.extend(pods.iter().map(|pod| {
        let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
        let address: IpAddr = address
            .unwrap_or_else(|| panic!("{} has no address", pod.name_any()))
            .parse()
            .unwrap();
        SocketAddr::from((address, API_SERVER))
    }));
    ways
}

#[tokio::test]
async fn kubectl_works_while_one_of_three_machines_answers() {
    if let Some(why) = node::obstacle() {
        println!("not shown here: {why}");
        return;
    }
    let tenant = Site::builder("tenant").start().await.unwrap();
    tenant.create_namespace("of-the-tenant").await.unwrap();
    let api_server = tenant.server().trim_start_matches("https://").to_owned();
    let haproxy = Image::new("haproxy:2.8", node::system_program("haproxy").unwrap());
    let site = Site::builder(SCENARIO).nodes(Nodes::Real).image(haproxy);
    let region = Arc::new(Region::start("north").await.unwrap());
    let stage = Stage::start_with(region, site, &[HOSTS_NAMESPACE], &AGENTS).await;
    stage.site.create_tenant_namespace(SCENARIO).await.unwrap();
    let restricted = "pod-security.kubernetes.io/enforce=restricted";
    stage.kubectl(&["label", "namespace", SCENARIO, restricted]).await;
    let (mut hosts, mut machines) = (Vec::new(), Vec::new());
    for (number, address) in stage.site.node().unwrap().machines().into_iter().enumerate() {
        let (name, rack) = (format!("tenant-cp{number}"), format!("r{number}"));
        hosts.push(Host::new(&name, &format!("{SCENARIO}-cp"), &rack, address));
        let machine = || Proxy::at((address, API_SERVER).into(), api_server.clone());
        machines.push(machine().await.unwrap());
    }
    stage.load(&hosts).await;
    let shop = cluster(SCENARIO, "shop").role(Role::ControlPlane, 3).with(
        "/services/loadBalancerControlPlane",
        json!([{ "image": "haproxy:2.8", "nodeInterfaceId": NETWORK, "nodePort": NODE_PORT }]),
    );
    stage.create(&shop).await;
    stage.ready(&shop).await;

    let ways = ways(&stage, &shop).await;
    assert_eq!(ways.len(), 4, "a node port, a Service and two pods: {ways:?}");
    for at in &ways {
        // kube-proxy learns of pods a moment after the API server knows that they are ready.
        let started = Instant::now();
        while let Err(error) = request(&tenant, *at).await {
            assert!(started.elapsed() < PATIENCE, "{at}: {error}");
        }
    }
    let at = ways[0];

    let (last, silent, killed) = (machines.remove(2), machines.remove(1), machines.remove(0));
    drop(killed);
    after(REFUSAL_FOUND, &tenant, at).await;
    silent.cut(true);
    after(SILENCE_FOUND, &tenant, at).await;

    let address = last.address().parse().unwrap();
    drop(last);
    stage
        .condition_is(&shop, "LoadBalancerReady", "True", "NoReachableBackend")
        .await;
    let error = request(&tenant, at).await.unwrap_err();
    assert!(error.contains("EOF"), "{error}");
    assert!(
        hangs_up(at).await,
        "whoever asks is told at once, and does not wait"
    );

    let _last = Proxy::at(address, api_server).await.unwrap();
    stage
        .condition_is(&shop, "LoadBalancerReady", "True", "Available")
        .await;
    after(Duration::ZERO, &tenant, at).await;
    stage.nothing_was_forbidden();
}
