//! `PlanCluster` against a bare echo that makes the decision.

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use proto::placement::v1::{
    PlanClusterRequest, PlanClusterResponse, placement_service_client::PlacementServiceClient,
    placement_service_server::PlacementServiceServer,
};
use runtime::tls::Channel;
use rustix::time::{ClockId, clock_gettime};
use scheduler::convert;
use tonic::service::Routes;

use crate::{
    Figure,
    echo::Echo,
    storage,
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

/// The decision that the request asks for, as the service makes it.
fn decision(world: &World) -> impl Fn() + Send + Sync + use<> {
    let site = world.region.site(SITE).unwrap();
    let name = convert::cluster(Some(&cluster("planned")), "cluster").unwrap();
    let spec = scheduler::convert::parse_spec(spec(3, 20), "spec").unwrap();
    move || {
        let input = site.read().decision_input(&name, spec.clone(), SystemTime::now());
        black_box(input.unwrap().decide());
    }
}

/// What a piece of work takes of a core, done again and again with nothing else.
fn alone(work: &dyn Fn()) -> Duration {
    let before = cpu(ClockId::ThreadCPUTime);
    let times = 2000;
    for _ in 0..times {
        work();
    }
    cpu(ClockId::ThreadCPUTime).saturating_sub(before) / times
}

/// A service that knows the answer, and does some work for each.
async fn echo(answer: &PlanClusterResponse, work: Option<Arc<dyn Fn() + Send + Sync>>) -> Clients {
    let answer = answer.clone();
    let service = PlacementServiceServer::new(Echo { answer, work });
    let served = Served::new(Routes::new(service)).await;
    let channels = served.connections(CONNECTIONS).into_iter();
    let clients = channels.map(PlacementServiceClient::new).collect();
    Clients {
        clients,
        _served: Some(served),
    }
}

struct Clients {
    clients: Vec<PlacementServiceClient<Channel>>,
    _served: Option<Served>,
}

struct Round {
    service: (f64, Duration),
    deciding: (f64, Duration),
    bare: (f64, Duration),
    alone: Duration,
}

impl Round {
    /// The service against an echo that makes the decision.
    fn ratio(&self) -> f64 {
        self.deciding.1.as_secs_f64() / self.service.1.as_secs_f64()
    }

    /// The service against an echo, and the decision with nothing beside it: no cache is cold then, so no service
    /// that does both can reach that.
    fn apart(&self) -> f64 {
        (self.bare.1 + self.alone).as_secs_f64() / self.service.1.as_secs_f64()
    }
}

pub(crate) async fn figures() -> Vec<Figure> {
    let world = World::with_hosts(storage::Sync::Nothing, 10_000).await;
    let answer = world.placements(1)[0].plan_cluster(request()).await.unwrap();
    let answer = answer.into_inner();
    let decision = Arc::new(decision(&world));
    let bare = echo(&answer, None).await;
    let deciding = echo(&answer, Some(Arc::clone(&decision) as _)).await;
    let service = Clients {
        clients: world.placements(CONNECTIONS),
        _served: None,
    };
    for each in [&bare, &deciding, &service] {
        drive(&each.clients).await;
    }
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(Round {
            bare: drive(&bare.clients).await,
            alone: alone(&*decision),
            deciding: drive(&deciding.clients).await,
            service: drive(&service.clients).await,
        });
    }
    rounds.sort_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    let round = &rounds[ROUNDS / 2];
    let measured = format!(
        "{:.0} % ({:.0} µs of a core each, echo that decides {:.0}; {:.0}/s); apart {:.0} % (echo {:.0}, decision {:.0})",
        round.ratio() * 100.0,
        micros(round.service.1),
        micros(round.deciding.1),
        round.service.0,
        round.apart() * 100.0,
        micros(round.bare.1),
        micros(round.alone),
    );
    vec![Figure {
        name: format!("PlanCluster of 3 + 20, 10,000 hosts, {CONNECTIONS} connections"),
        goal: ">= 80 % of 1 / (echo + decision)",
        measured,
        ok: Some(round.ratio() >= 0.8),
    }]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
