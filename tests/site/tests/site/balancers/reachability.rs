//! Whether any member answers, as a real HAProxy sees it. KWOK runs none, so the test does, where the pod says that it is.

use std::{
    net::{Ipv4Addr, TcpListener},
    process::{Child, Command, Stdio},
};

use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher::Config;
use sandbox::{inventory::NETWORK, wait};
use serde_json::json;

use super::{objects, workers};
use crate::fixtures::{PATIENCE, Role, cluster, host, on_shared_site};

const NAME: &str = "loadbalancer-worker-shop";
const PORT: u16 = 31_160;

/// Ends with the test, however that ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Addresses of this process alone: the pod's and the member's.
fn own_addresses() -> [Ipv4Addr; 2] {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    [0, 1].map(|which| Ipv4Addr::from([127, (high & 0x0f) | 0x80 | (which << 4), middle, low]))
}

#[test]
fn whether_members_answer_is_reported() {
    on_shared_site("reached", async |stage| {
        let [pod, member] = own_addresses();
        let worker = host("reached", "worker", "r1", "w1");
        let address = worker.addresses[NETWORK];
        stage.load(&[worker]).await;
        let of = objects(stage, "reached");
        // On no node, so that nobody but the test says how the pod is.
        let nowhere = json!({"replicas": 1, "nodeLabels": {"example.org/nowhere": "x"}});
        let shop = cluster("reached", "shop").role(Role::Worker, 1).with(
            "/services/loadBalancerWorker",
            json!([workers(PORT, PORT, &nowhere)]),
        );
        stage.create(&shop).await;
        stage
            .condition_mentions(&shop, "LoadBalancerReady", "False", "Progressing", "0 of 1 pods")
            .await;

        let config = stage.haproxy_config(&shop, "worker").await;
        let server = format!("{address}:{PORT}");
        assert!(config.contains(&server), "{config}");
        // Nothing on this machine has the host's address, and no host may have one of this machine.
        let config = config
            .replace(&server, &format!("{member}:{PORT}"))
            .replace("bind :::", &format!("bind {pod}:"))
            .replace(" v4v6", "");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("haproxy.cfg");
        std::fs::write(&file, config).unwrap();
        let haproxy = Command::new("haproxy")
            .args(["-db", "-f"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let _running = Running(haproxy);
        wait::until_all(of.pods.clone(), Config::default(), "a pod", PATIENCE, |pods| {
            pods.len() == 1
        })
        .await
        .unwrap();
        let ready =
            json!({"type": "Ready", "status": "True", "lastTransitionTime": Timestamp::now().to_string()});
        of.play(
            NAME,
            &json!({"podIP": pod, "podIPs": [{"ip": pod}], "conditions": [ready]}),
        )
        .await;
        let why = stage
            .condition_is(&shop, "LoadBalancerReady", "True", "NoReachableBackend")
            .await;
        assert!(why.contains(NAME), "{why}");
        stage.event(&shop, "NoReachableBackend", NAME).await;

        let _member = TcpListener::bind((member, PORT)).unwrap();
        stage
            .condition_is(&shop, "LoadBalancerReady", "True", "Available")
            .await;
        stage.ready(&shop).await;
    });
}
