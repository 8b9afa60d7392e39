//! What the load balancer agent writes.

use std::net::Ipv4Addr;
use std::time::Duration;

use api::{Cluster, SIPCluster};
use k8s_openapi::api::core::v1::Secret;
use render::load_balancer::{CONFIG_FILE, Member, Plan, Sidecar};

use crate::rig::Pod;

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
";

#[derive(Clone, Copy)]
enum Kind {
    ControlPlane,
    Worker,
}

/// The Secret, listening on an address of the test's own.
fn secret(kind: Kind, front: Ipv4Addr, members: &[Member]) -> Secret {
    let object: SIPCluster = serde_saphyr::from_str(SITE).unwrap();
    let cluster = Cluster::parse(&object).unwrap();
    let sidecar = Sidecar {
        image: "registry.example/sip-haproxy-sidecar:1".parse().unwrap(),
    };
    let plan = match kind {
        Kind::ControlPlane => Plan::control_plane(&cluster, &cluster.load_balancers_control_plane()[0]),
        Kind::Worker => Plan::worker(&cluster, &cluster.load_balancers_worker()[0]),
    };
    let mut secret = plan.followed_by(Some(&sidecar)).objects(members).secret;
    let text = secret.data.as_mut().unwrap().get_mut(CONFIG_FILE).unwrap();
    let own = String::from_utf8(text.0.clone())
        .unwrap()
        .replace("bind :::", &format!("bind {front}:"))
        .replace(" v4v6", "");
    text.0 = own.into_bytes();
    secret
}

/// One with IPv6, some with names that nobody would give a host.
fn members() -> Vec<Member> {
    let names = ["node-1", "node-2", "no;de\n\\ 3 \u{e4}/", &"long".repeat(300), ""];
    let addresses = ["127.0.0.11", "::1", "127.0.0.13", "127.0.0.14", "127.0.0.15"];
    let member = |(name, address): (&str, &str)| Member {
        namespace: "rack-a".to_owned(),
        name: name.to_owned(),
        address: address.parse().unwrap(),
    };
    names.into_iter().zip(addresses).map(member).collect()
}

async fn follows_without_a_reload(kind: Kind) {
    let mut pod = Pod::empty(Duration::from_secs(1));
    let front = pod.addresses.get(0);
    let all = members();
    let first = secret(kind, front, &all[..1]);
    pod.put(&first);
    pod.until("a configuration is written", |report| report.started)
        .await;
    pod.start_haproxy();
    for members in [&all[..1], &all[..], &all[1..3], &[], &all[2..]] {
        let secret = secret(kind, front, members);
        pod.put(&secret);
        pod.runs_secret(&secret).await;
        let current = pod.look().await.current.unwrap();
        let backends = match kind {
            Kind::ControlPlane => 1,
            Kind::Worker => 3,
        };
        assert_eq!(current.servers.len(), backends * members.len(), "{current:#?}");
        assert!(current.servers.values().all(|seen| seen.checked), "{current:#?}");
    }
    assert_eq!(pod.metrics.reloads(), 0, "{}", pod.log());
}

#[tokio::test]
async fn members_of_a_control_plane_come_and_go_by_orders() {
    follows_without_a_reload(Kind::ControlPlane).await;
}

#[tokio::test]
async fn members_of_workers_come_and_go_by_orders() {
    follows_without_a_reload(Kind::Worker).await;
}
