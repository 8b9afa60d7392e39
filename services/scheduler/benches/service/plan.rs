//! `PlanCluster` against a bare echo and the decision by itself.

use std::{
    hint::black_box,
    time::{Duration, Instant, SystemTime},
};

use proto::placement::v1::{
    PlanClusterRequest, placement_service_client::PlacementServiceClient,
    placement_service_server::PlacementServiceServer,
};
use runtime::tls::Channel;
use rustix::time::{ClockId, clock_gettime};
use scheduler::{convert, spec::Spec};
use tonic::service::Routes;

use crate::{
    Figure,
    echo::Echo,
    storage::Sync,
    world::{SITE, Served, World, cluster, spec},
};

const CONNECTIONS: usize = 64;
/// Rounds of each kind, one after the other, so that what else the machine does is the same for both.
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(1);

/// What this process has had of all cores.
fn cpu(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap()
}

fn request() -> PlanClusterRequest {
    PlanClusterRequest {
        site: SITE.to_owned(),
        cluster: Some(cluster("planned")),
        spec: Some(spec(3, 20)),
    }
}

/// Calls on every connection, one after the other, for a while: how many, and what of a core each took.
async fn drive(clients: &[PlacementServiceClient<Channel>]) -> (f64, Duration) {
    let (start, before) = (Instant::now(), cpu(ClockId::ProcessCPUTime));
    let mut tasks = tokio::task::JoinSet::new();
    for client in clients {
        let mut client = client.clone();
        tasks.spawn(async move {
            let mut calls = 0u32;
            while start.elapsed() < ROUND {
                client.plan_cluster(request()).await.unwrap();
                calls += 1;
            }
            calls
        });
    }
    let calls: u32 = tasks.join_all().await.into_iter().sum();
    let each = cpu(ClockId::ProcessCPUTime).saturating_sub(before) / calls;
    (f64::from(calls) / start.elapsed().as_secs_f64(), each)
}

/// What a decision takes of a core.
fn decision(world: &World) -> Duration {
    let site = world.region.site(SITE).unwrap();
    let site = site.read();
    let name = convert::cluster(Some(&cluster("planned")), "cluster").unwrap();
    let spec = Spec::parse(spec(3, 20), "spec").unwrap();
    let before = cpu(ClockId::ThreadCPUTime);
    let decisions = 2000;
    for _ in 0..decisions {
        black_box(site.plan(&name, &spec, SystemTime::now()));
    }
    cpu(ClockId::ThreadCPUTime).saturating_sub(before) / decisions
}

pub(crate) async fn figures() -> Vec<Figure> {
    let world = World::with_hosts(Sync::Nothing, 10_000).await;
    let planned = world.placements(1)[0].plan_cluster(request()).await.unwrap();
    let echo = PlacementServiceServer::new(Echo(planned.into_inner()));
    let echo = Served::new(Routes::new(echo)).await;
    let channels = echo.connections(CONNECTIONS).into_iter();
    let echo: Vec<_> = channels.map(PlacementServiceClient::new).collect();
    let clients = world.placements(CONNECTIONS);
    drive(&echo).await;
    drive(&clients).await;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let (bare, bare_cpu) = drive(&echo).await;
        let decided = decision(&world);
        let (rate, each) = drive(&clients).await;
        let ratio = (bare_cpu + decided).as_secs_f64() / each.as_secs_f64();
        rounds.push((ratio, rate, each, bare, bare_cpu, decided));
    }
    rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (ratio, rate, each, bare, bare_cpu, decided) = rounds[ROUNDS / 2];
    let measured = format!(
        "{:.0} % ({:.0} µs of a core each; echo {:.0} + decision {:.0}; {rate:.0}/s, echo {bare:.0}/s)",
        ratio * 100.0,
        micros(each),
        micros(bare_cpu),
        micros(decided),
    );
    vec![Figure {
        name: format!("PlanCluster of 3 + 20, 10,000 hosts, {CONNECTIONS} connections"),
        goal: ">= 80 % of 1 / (echo + decision)",
        measured,
        ok: Some(ratio >= 0.8),
    }]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
