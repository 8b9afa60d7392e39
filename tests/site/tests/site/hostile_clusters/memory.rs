//! What `SIPCluster`s as large as an API server stores cost an agent of memory.

use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::PostParams;
use sandbox::region::{Agent, HOSTS_NAMESPACE};
use serde_json::{Value, json};

use crate::fixtures::{AGENTS, Cluster, Role, Stage, cluster, fleet};

/// Hostile clusters: several pages of a list.
const CLUSTERS: usize = 32;
/// Bytes of their texts: an API server stores 1.5 MiB of an object.
const TEXT: usize = 1_400 << 10;
/// The most that an agent may ever have, in MiB: it is killed at 512 (`deploy/agents`). With lists of 500 objects and whole specs in memory,
/// 96 such clusters took 814 MiB of the cluster agent and 300 of the load-balancer agent; now 64 take about 180 of either.
const MOST: u64 = 240;

/// A cluster that no API server refuses, with one text of [`TEXT`] bytes; where, the number decides.
fn hostile(number: usize) -> Cluster {
    let text = "x".repeat(TEXT);
    let balancer = |field: &str, value: Value| {
        let mut entry = json!({"image": "haproxy:2.8", "nodeInterfaceId": "oam"});
        entry[field] = value;
        json!([entry])
    };
    let section = "/services/loadBalancerControlPlane";
    let named = cluster("hostile", &format!("large-{number:03}"));
    match number % 6 {
        0 => named.with("/nodes/Worker", json!({"labelSelector": {}, "topologyKey": text})),
        1 => named.with(section, balancer("image", json!(text))),
        2 => named.with(section, balancer("networkAttachments", json!([text]))),
        3 => named.with(
            section,
            balancer(
                "override",
                json!({"service": {"metadata": {"annotations": {"a": text}}}}),
            ),
        ),
        4 => named.with(
            "/services/jumpHost",
            json!([{"image": "jump:1", "sshAuthorizedKeys": [text]}]),
        ),
        // The name of a role is among the managed fields, too.
        _ => named.with(
            &format!("/nodes/{}", &text[..TEXT * 2 / 5]),
            json!({"labelSelector": {}}),
        ),
    }
}

/// The most memory that a process has had, in MiB.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let kibibytes: u64 = line.split_whitespace().next().unwrap().parse().unwrap();
    kibibytes.div_ceil(1024)
}

#[tokio::test]
async fn large_texts_take_no_agents_memory() {
    let mut stage = Stage::start("site-a", &[]).await;
    for namespace in ["hostile", "good"] {
        stage.site.create_tenant_namespace(namespace).await.unwrap();
    }
    let clusters = stage.clusters("hostile");
    let params = PostParams::default();
    stream::iter(0..CLUSTERS)
        .map(|number| {
            let (clusters, params) = (&clusters, &params);
            async move { clusters.create(params, &hostile(number).object()).await.map(drop) }
        })
        .buffer_unordered(4)
        .try_collect::<()>()
        .await
        .unwrap();
    for agent in AGENTS {
        // For longer than it takes a program that is not optimised to read them all, while others use the cores.
        let (config, server) = (stage.config(&[HOSTS_NAMESPACE]), stage.site.server().to_owned());
        let started = stage
            .region
            .start_agent_by(&stage.site, agent, &config, &server)
            .await;
        stage.agents.insert(agent, started.unwrap());
    }
    stage.agents_are_ready().await;

    stage.load(&fleet("good", 3, 1, 2)).await;
    let good = cluster("good", "shop")
        .role(Role::ControlPlane, 1)
        .role(Role::Worker, 2)
        .balanced(30_420);
    stage.create(&good).await;
    stage.ready(&good).await;
    for (number, why) in [(0, "topologyKey is "), (1, "image is "), (5, "spec.nodes[")] {
        let large = hostile(number);
        stage
            .condition_mentions(&large, "Scheduled", "False", "InvalidSpec", why)
            .await;
    }

    let peaks: Vec<(Agent, u64)> = AGENTS
        .into_iter()
        .map(|agent| (agent, peak(stage.agents[&agent].pid().unwrap())))
        .collect();
    println!("peaks in MiB: {peaks:?}");
    assert!(peaks.iter().all(|(_, peak)| *peak <= MOST), "MiB: {peaks:?}");
}
