//! The real processes are killed again and again under load, and a checker of histories says whether a promise was broken.
//!
//! Sixteen clients, each the agent of its clusters, let them grow, shrink and go, label and unlabel hosts, confirm, and read
//! each other's placements; four sites report their hosts. Every answer is kept. No host may have been held by two clusters
//! at one revision; what was answered once is there until it is released; and a read never tells less than an answer
//! that came before it was asked.
//!
//! `SOAK_KILLS` is the number of kills of one scheduler with a file, `SOAK_FAILOVERS` that of faults of three on etcd, and
//! `SOAK_SEED` the seed of the clients, of the faults and of their moments.

mod client;
mod file;
mod history;
mod on_etcd;
mod process;
mod reporter;
pub(crate) mod site;

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use proto::placement::v1::{
    ListPlacementsRequest, Placement, placement_service_client::PlacementServiceClient,
};
use rand::{SeedableRng as _, rngs::StdRng};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};

use client::Client;
use history::{History, Verdict};
use sandbox::authority::Caller;
use site::Site;

use crate::pki::Pki;

pub(crate) const SITES: usize = 4;
pub(crate) const CLIENTS: usize = 16;
/// Hosts of a site: fewer than its clusters want together.
const HOSTS: usize = 12;
/// Clusters of each client.
const CLUSTERS: usize = 2;
/// How long calls may go unanswered.
const PATIENCE: Duration = Duration::from_mins(1);

/// What everybody shares.
struct Load {
    address: String,
    /// Certificates of everybody; without it they connect without TLS.
    pki: Option<Arc<Pki>>,
    sites: Vec<Site>,
    history: History,
    /// Calls that were answered.
    answered: AtomicU64,
    /// How long changes took, since this was taken the last time.
    durations: Mutex<Vec<Duration>>,
    stop: CancellationToken,
}

/// Clients and reporters at work.
pub(crate) struct Working {
    load: Arc<Load>,
    tasks: JoinSet<()>,
    since: Instant,
    seed: u64,
}

/// The seed that `SOAK_SEED` asks for, or another one each time. It is printed before anything is done with it.
pub(crate) fn seed() -> u64 {
    let seed = soak_setting("SOAK_SEED", u64::from(rand::random::<u32>()));
    println!("SOAK_SEED={seed}");
    seed
}

/// The value of an environment variable that sets how much a test does.
pub(crate) fn soak_setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

impl Load {
    /// How the schedulers are connected to. Silence ends a connection soon.
    fn endpoint(&self) -> Endpoint {
        Endpoint::from_shared(self.address.clone())
            .unwrap()
            .connect_timeout(Duration::from_secs(1))
            .http2_keep_alive_interval(Duration::from_secs(1))
            .keep_alive_timeout(Duration::from_secs(1))
            .keep_alive_while_idle(true)
    }

    /// Keeps how long a change took.
    fn took(&self, duration: Duration) {
        let mut durations = self.durations.lock().unwrap_or_else(PoisonError::into_inner);
        durations.push(duration);
    }

    /// A connection as that caller.
    fn channel(&self, endpoint: &Endpoint, caller: &Caller<'_>) -> Channel {
        match &self.pki {
            Some(pki) => endpoint.connect_with_connector_lazy(pki.connector(caller)),
            None => endpoint.connect_lazy(),
        }
    }
}

impl Working {
    /// Starts them.
    pub(crate) fn start(address: String, seed: u64) -> Self {
        Self::start_with(address, None, seed)
    }

    /// Starts them with certificates.
    pub(crate) fn start_with(address: String, pki: Option<Arc<Pki>>, seed: u64) -> Self {
        let load = Arc::new(Load {
            address,
            pki,
            sites: (0..SITES).map(Site::new).collect(),
            history: History::default(),
            answered: AtomicU64::new(0),
            durations: Mutex::default(),
            stop: CancellationToken::new(),
        });
        let mut tasks = JoinSet::new();
        for site in 0..SITES {
            tasks.spawn(reporter::run(Arc::clone(&load), site));
        }
        for number in 0..CLIENTS {
            let rng = StdRng::seed_from_u64(seed << 8 | u64::try_from(number).unwrap());
            tasks.spawn(Client::new(Arc::clone(&load), number, rng).run());
        }
        Self {
            load,
            tasks,
            since: Instant::now(),
            seed,
        }
    }

    /// Waits until so many more calls were answered: somebody serves, and is busy.
    pub(crate) async fn progress(&self, more: u64) {
        let goal = self.load.answered.load(Ordering::Relaxed) + more;
        let reached = async {
            while self.load.answered.load(Ordering::Relaxed) < goal {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, reached)
            .await
            .unwrap_or_else(|_| panic!("nothing is answered any more"));
    }

    /// How long changes took since this was asked the last time, the shortest first.
    pub(crate) fn take_durations(&self) -> Vec<Duration> {
        let mut durations = self.load.durations.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = std::mem::take(&mut *durations);
        taken.sort_unstable();
        taken
    }

    /// Ends them, and looks at what they have heard and at what is listed in the end.
    pub(crate) async fn end(mut self, what: &str) {
        self.load.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        let listed = listed(&self.load).await;
        for placement in &listed {
            self.load.history.listed(placement);
        }
        let Verdict {
            answers,
            reads,
            moved,
            double_holds,
            lost_claims,
            stale_reads,
        } = self.load.history.verdict();
        println!(
            "{what}, seed {}, {:.1} s: {answers} answers and {reads} reads by {CLIENTS} clients, {moved} moves of hosts between \
             clusters; double holds: {}, lost claims: {}, stale reads: {}",
            self.seed,
            self.since.elapsed().as_secs_f64(),
            double_holds.len(),
            lost_claims.len(),
            stale_reads.len(),
        );
        assert!(
            double_holds.is_empty() && lost_claims.is_empty() && stale_reads.is_empty(),
            "{double_holds:#?}\n{lost_claims:#?}\n{stale_reads:#?}"
        );
        assert!(moved > 0, "no host ever moved: the load shows nothing");
        let mut held = BTreeSet::new();
        for placement in &listed {
            for host in crate::client::hosts(placement) {
                let host = (placement.site.clone(), host);
                assert!(held.insert(host.clone()), "{host:?} is in two records");
            }
        }
    }
}

/// Everything, when nobody asks anything any more.
async fn listed(load: &Load) -> Vec<Placement> {
    let begun = Instant::now();
    let request = ListPlacementsRequest {
        page_size: 1000,
        ..ListPlacementsRequest::default()
    };
    loop {
        let channel = load.channel(&load.endpoint(), &Caller::Reader("checker"));
        let mut placements = PlacementServiceClient::new(channel);
        match placements.list_placements(request.clone()).await {
            Ok(listed) => return listed.into_inner().placements,
            Err(status) => assert!(begun.elapsed() < PATIENCE, "{status:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
