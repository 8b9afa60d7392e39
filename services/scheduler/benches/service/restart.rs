//! The real process on a large ledger, from its start until it answers.

use std::{
    net::TcpListener,
    path::Path,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use proto::placement::v1::{GetPlacementRequest, placement_service_client::PlacementServiceClient};
use runtime::tls;
use scheduler::{convert, ledger::redb::Redb, site::Apply};
use tokio::{
    process::{Child, Command},
    task::JoinSet,
};

use crate::{
    Figure,
    world::{World, cluster, spec},
};

const CLUSTERS: usize = 10_000;
/// A quarter of a site's hosts are for control planes, so this many clusters of 3 + 4 are less than all of them.
const PER_SITE: usize = 800;
const HOSTS: u32 = 10_000;
const RESTARTS: usize = 3;

fn site(index: usize) -> String {
    format!("site-{}", index / PER_SITE)
}

fn name(index: usize) -> String {
    format!("cluster-{index}")
}

/// A ledger with that many clusters, each with its seven hosts.
async fn fill(path: &Path) {
    let used = path.with_extension("used");
    let mut world = World::on(Arc::new(Redb::open(&used).unwrap())).await;
    for first in (0..CLUSTERS).step_by(PER_SITE) {
        world.report(&site(first), HOSTS).await;
    }
    let mut tasks = JoinSet::new();
    for first in (0..CLUSTERS).step_by(PER_SITE) {
        let region = world.region.clone();
        for lane in 0..8 {
            let region = region.clone();
            tasks.spawn(async move {
                let indices = (first..CLUSTERS.min(first + PER_SITE)).skip(lane).step_by(8);
                for index in indices {
                    let apply = Apply {
                        cluster: convert::cluster(Some(&cluster(&name(index))), "cluster").unwrap(),
                        uid: "uid".to_owned(),
                        generation: 1,
                        created: Some(SystemTime::UNIX_EPOCH),
                        spec: scheduler::convert::parse_spec(spec(3, 4), "spec").unwrap(),
                    };
                    let told = region.apply(&site(index), apply, "bench").await.unwrap();
                    assert_eq!(told.record.unwrap().members.len(), 7, "the site is large enough");
                }
            });
        }
    }
    tasks.join_all().await;
    // Everything that was answered is in the file, and nothing writes any more: a copy is what a kill leaves.
    std::fs::copy(&used, path).unwrap();
}

/// Starts the process; when this returns it has told a cluster's hosts.
async fn start(path: &Path, port: u16) -> (Child, Duration) {
    let start = Instant::now();
    let child = Command::new(env!("CARGO_BIN_EXE_sip-scheduler"))
        .args(["--plaintext-loopback", "--trust-domain", "bench", "--region", "r"])
        .args(["--health-listen", "127.0.0.1:0", "--log", "error"])
        .arg(format!("--listen=127.0.0.1:{port}"))
        .arg("--ledger")
        .arg(path)
        .env_clear()
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let endpoint = format!("http://127.0.0.1:{port}").parse().unwrap();
    let last = CLUSTERS - 1;
    loop {
        // A channel of its own each time: one that was refused would wait before it tries again.
        let mut client = PlacementServiceClient::new(tls::channel(&endpoint, None).unwrap());
        let request = GetPlacementRequest {
            site: site(last),
            cluster: Some(cluster(&name(last))),
            at_least: None,
        };
        if let Ok(told) = client.get_placement(request).await {
            let placement = told.into_inner().placement.unwrap();
            assert_eq!(placement.members.len(), 7);
            return (child, start.elapsed());
        }
        assert!(
            start.elapsed() < Duration::from_mins(1),
            "the scheduler does not answer"
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub(crate) async fn figures() -> Vec<Figure> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.redb");
    fill(&path).await;
    let any = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = any.local_addr().unwrap().port();
    drop(any);
    let mut took = Vec::new();
    for _ in 0..RESTARTS {
        let (mut child, until) = start(&path, port).await;
        child.kill().await.unwrap();
        took.push(until);
    }
    let slowest = took.into_iter().max().unwrap();
    vec![Figure {
        name: format!("kill -9 with {CLUSTERS} clusters in the ledger, started again until they are told"),
        goal: "< 1 s",
        measured: format!("{:.2} s, the slowest of {RESTARTS}", slowest.as_secs_f64()),
        ok: Some(slowest < Duration::from_secs(1)),
    }]
}
