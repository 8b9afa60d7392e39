//! A Service before the schedulers: it knows which of them are ready, and gives new connections to one of those. What is
//! connected stays where it is.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use tonic::transport::Endpoint;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::region::Scheduler;

/// How long a scheduler may take to say that it is ready.
const PROBE: Duration = Duration::from_millis(300);

/// To whom a new connection goes.
#[derive(Clone)]
enum Behind {
    /// To one of these that says that it is ready.
    Ready(Arc<[String]>),
    /// To this one, whatever it says.
    Always(String),
}

/// One address of several schedulers.
pub(crate) struct Service {
    pub(crate) address: String,
    /// Whether anybody is let in.
    open: watch::Sender<bool>,
    connections: Arc<AtomicUsize>,
    // It ends with this.
    _serving: JoinSet<()>,
}

impl Service {
    pub(crate) async fn before(schedulers: &[Scheduler]) -> Self {
        let addresses = schedulers.iter().map(|one| one.address.clone());
        Self::start(Behind::Ready(addresses.collect())).await
    }

    /// Not a Service: every connection goes to this one, which counts them.
    pub(crate) async fn past_probes(scheduler: &Scheduler) -> Self {
        Self::start(Behind::Always(scheduler.address.clone())).await
    }

    async fn start(behind: Behind) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (open, is_open) = watch::channel(true);
        let connections = Arc::<AtomicUsize>::default();
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, behind, is_open, Arc::clone(&connections)));
        Self {
            address,
            open,
            connections,
            _serving: serving,
        }
    }

    /// Lets nobody in any more, or again.
    pub(crate) fn open(&self, open: bool) {
        self.open.send_replace(open);
    }

    /// How many connections it has passed on.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

async fn serve(listener: TcpListener, behind: Behind, open: watch::Receiver<bool>, passed: Arc<AtomicUsize>) {
    let mut connections = JoinSet::new();
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        let (behind, open, passed) = (behind.clone(), open.clone(), Arc::clone(&passed));
        connections.spawn(async move {
            let Some(chosen) = behind.choose().await.filter(|_| *open.borrow()) else {
                return;
            };
            let Ok(mut server) = TcpStream::connect(chosen).await else {
                return;
            };
            passed.fetch_add(1, Ordering::Relaxed);
            // It has ended, whoever ended it.
            let _ = copy_bidirectional(&mut client, &mut server).await;
        });
    }
}

impl Behind {
    async fn choose(self) -> Option<String> {
        let schedulers = match self {
            Self::Ready(schedulers) => schedulers,
            Self::Always(scheduler) => return Some(scheduler),
        };
        let mut probes: JoinSet<Option<String>> = schedulers.iter().cloned().map(probe).collect();
        while let Some(probe) = probes.join_next().await {
            if let Some(ready) = probe.unwrap() {
                return Some(ready);
            }
        }
        None
    }
}

async fn probe(address: String) -> Option<String> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let endpoint = endpoint.connect_timeout(PROBE).timeout(PROBE);
    let request = HealthCheckRequest {
        service: "sip.placement.v1.PlacementService".to_owned(),
    };
    let mut health = HealthClient::new(endpoint.connect().await.ok()?);
    let answer = health.check(request).await.ok()?.into_inner();
    (answer.status() == ServingStatus::Serving).then_some(address)
}
