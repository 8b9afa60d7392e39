//! What the load balancer agent writes.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use api::{Cluster, SIPCluster};
use k8s_openapi::api::core::v1::ConfigMap;
use render::load_balancer::{CONFIG_FILE, Member, Plan, Sidecar};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::rig::{Haproxy, PATIENCE, Pod};

const SITE: &str = "
apiVersion: airship.airshipit.org/v1
kind: SIPCluster
metadata: {name: wordpress, namespace: tenants, uid: 7d1c, generation: 4}
spec:
  nodes:
    ControlPlane: {labelSelector: {}, count: {active: 3}}
    Worker: {labelSelector: {}, count: {active: 2}}
  services:
    loadBalancerControlPlane: [{image: 'haproxy:2.6', nodeInterfaceId: oam-ipv4}]
    loadBalancerWorker:
    - {image: 'haproxy:2.6', nodeInterfaceId: oam-ipv4, nodePortRange: {start: 30002, end: 30004}}
    - {image: 'haproxy:2.6', nodeInterfaceId: oam-ipv4, nodePortRange: {start: 30005, end: 30005}, balance: leastconn,
       proxyProtocol: true}
";

#[derive(Clone, Copy)]
enum Kind {
    ControlPlane,
    Worker,
    /// Workers that are told who connects.
    Sent,
}

/// The `ConfigMap`, listening on an address of the test's own.
fn config_map(kind: Kind, front: Ipv4Addr, members: &[Member]) -> ConfigMap {
    let object: SIPCluster = serde_saphyr::from_str(SITE).unwrap();
    let cluster = Cluster::parse(&object).unwrap();
    let sidecar = Sidecar {
        image: "registry.example/sip-haproxy-sidecar:1".parse().unwrap(),
    };
    let plan = match kind {
        Kind::ControlPlane => Plan::control_plane(&cluster, &cluster.load_balancers_control_plane()[0]),
        Kind::Worker => Plan::worker(&cluster, &cluster.load_balancers_worker()[0]),
        Kind::Sent => Plan::worker(&cluster, &cluster.load_balancers_worker()[1]),
    };
    let mut config_map = plan.with_sidecar(Some(&sidecar)).objects(members).config_map;
    let text = config_map.data.as_mut().unwrap().get_mut(CONFIG_FILE).unwrap();
    *text = text
        .replace("bind :::", &format!("bind {front}:"))
        .replace(" v4v6", "");
    config_map
}

/// One with IPv6, some with names that nobody would give a host.
fn members() -> Vec<Member> {
    let names = ["node-1", "node-2", "no;de\n\\ 3 \u{e4}/", &"long".repeat(300), ""];
    let addresses = ["127.0.0.11", "::1", "127.0.0.13", "127.0.0.14", "127.0.0.15"];
    let member = |(name, address): (&str, &str)| Member {
        namespace: "rack-a".to_owned(),
        name: name.to_owned(),
        address: address.parse().unwrap(),
        is_backup: false,
    };
    names.into_iter().zip(addresses).map(member).collect()
}

async fn follows_without_a_reload(kind: Kind) {
    let mut pod = Pod::empty(Duration::from_secs(1));
    let front = pod.addresses.get(0);
    let all = members();
    let first = config_map(kind, front, &all[..1]);
    pod.put(&first);
    pod.until("a configuration is written", |report| report.started)
        .await;
    pod.start_haproxy();
    for members in [&all[..1], &all[..], &all[1..3], &[], &all[2..]] {
        let config_map = config_map(kind, front, members);
        pod.put(&config_map);
        pod.runs_config_map(&config_map).await;
        let current = pod.observe().await.current.unwrap();
        let backends = match kind {
            Kind::ControlPlane | Kind::Sent => 1,
            Kind::Worker => 3,
        };
        assert_eq!(current.servers.len(), backends * members.len(), "{current:#?}");
        assert!(current.servers.values().all(|seen| seen.checked), "{current:#?}");
    }
    assert_eq!(pod.metrics.reloads(), 0, "{}", pod.log());
}

#[tokio::test]
async fn control_plane_members_change_without_reload() {
    follows_without_a_reload(Kind::ControlPlane).await;
}

#[tokio::test]
async fn worker_members_change_without_reload() {
    follows_without_a_reload(Kind::Worker).await;
}

#[tokio::test]
async fn members_with_proxy_protocol_change_without_reload() {
    follows_without_a_reload(Kind::Sent).await;
}

/// What is answered to a request, as soon as anything is.
async fn answer(to: SocketAddr) -> String {
    let ask = async || {
        let mut connection = TcpStream::connect(to).await?;
        connection.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await?;
        if answer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok::<_, io::Error>(answer)
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn an_added_member_gets_the_proxy_header() {
    let mut pod = Pod::empty(Duration::from_secs(1));
    let [front, address] = [0, 1].map(|which| pod.addresses.get(which));
    // A real receiver of the PROXY protocol, which answers with the address that it was told.
    let receiver = format!(
        "defaults\n  mode http\n  timeout connect 5s\n  timeout client 5s\n  timeout server 5s\nfrontend told\n  \
         bind {address}:30005 accept-proxy\n  \
         http-request return status 200 content-type text/plain lf-string \"spoke to %[dst]\"\n"
    );
    let receiving = tempfile::tempdir().unwrap();
    std::fs::write(receiving.path().join("receiver.cfg"), receiver).unwrap();
    let _receiver = Haproxy::start(receiving.path(), "master.sock", "receiver.cfg");

    let without = config_map(Kind::Sent, front, &[]);
    pod.put(&without);
    pod.until("a configuration is written", |report| report.started)
        .await;
    pod.start_haproxy();
    pod.runs_config_map(&without).await;
    let member = Member {
        namespace: "rack-a".to_owned(),
        name: "node-1".to_owned(),
        address: address.into(),
        is_backup: false,
    };
    let with = config_map(Kind::Sent, front, &[member]);
    pod.put(&with);
    pod.runs_config_map(&with).await;
    let answer = answer((front, 30_005).into()).await;
    assert!(answer.ends_with(&format!("spoke to {front}")), "{answer}");
    assert_eq!(pod.metrics.reloads(), 0, "{}", pod.log());
}
