//! Real handshakes over real sockets.

mod configuration;
mod deny_list;
mod handshakes;
mod reloading;
mod site_authorities;
mod strangers;
mod trust;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::Uri;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::{
    Channel, ClientTls, ClientTlsArgs, Listener, Peer, ServerTls, ServerTlsArgs, TlsMetrics, channel,
};
use crate::fixtures::{Authority, Disk, Subject, realm};
use crate::identity::Caller;
use crate::metrics::Metrics;
use crate::readiness::Readiness;
use crate::tasks::BoxError;

const RELOADED: &str = r#"sip_tls_reloads_total{side="server",outcome="ok"}"#;

/// A running gRPC server that answers health checks and remembers who asked.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) metrics: Metrics,
    pub(crate) readiness: Readiness,
    callers: Arc<Mutex<Vec<Peer>>>,
    _running: JoinSet<Result<(), BoxError>>,
}

impl Served {
    pub(crate) async fn start(args: &ServerTlsArgs) -> Self {
        let metrics = Metrics::default();
        let readiness = Readiness::default();
        let callers = Arc::<Mutex<Vec<Peer>>>::default();
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let (listener, reloader) =
            Listener::bind(loopback, args, &realm(), &TlsMetrics::registered(&metrics))
                .await
                .unwrap();
        let address = listener.address();
        let (_reporter, health) = tonic_health::server::health_reporter();
        let remembered = Arc::clone(&callers);
        let health = InterceptedService::new(health, move |request: Request<()>| {
            let peer = request.extensions().get::<Peer>().unwrap().clone();
            remembered.lock().unwrap().push(peer);
            Ok::<_, Status>(request)
        });
        let server = crate::serving::grpc_server().add_service(health);
        let mut running = JoinSet::new();
        running.spawn(async move { Ok(server.serve_with_incoming(listener.incoming()).await?) });
        if let Some(reloader) = reloader {
            running.spawn(reloader.run(readiness.gate("certificate"), CancellationToken::new()));
        }
        Self {
            address,
            metrics,
            readiness,
            callers,
            _running: running,
        }
    }

    pub(crate) fn uri(&self, scheme: &str) -> Uri {
        format!("{scheme}://{}", self.address).parse().unwrap()
    }

    /// Who called since the last look.
    pub(crate) fn callers(&self) -> Vec<String> {
        std::mem::take(&mut *self.callers.lock().unwrap())
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    /// The value of a metric's sample as it is in the exposition, label set included.
    pub(crate) fn sample(&self, name: &str) -> Option<String> {
        let text = self.metrics.encode().unwrap();
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(ToOwned::to_owned))
    }

    /// Waits until a sample has a value; the test's own time limit is the bound.
    pub(crate) async fn until(&self, name: &str, good: impl Fn(u64) -> bool) {
        let reached = async {
            while !self
                .sample(name)
                .and_then(|value| value.parse().ok())
                .is_some_and(&good)
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let patience = Duration::from_secs(20);
        tokio::time::timeout(patience, reached)
            .await
            .unwrap_or_else(|_| panic!("{name} never got there:\n{}", self.metrics.encode().unwrap()));
    }
}

/// An authority and a scheduler that it certified, running.
pub(crate) async fn scheduler() -> (Authority, Disk, Served) {
    let authority = Authority::new();
    let disk = Disk::new(
        &authority.issue(&Subject::of_caller(&Caller::Scheduler)),
        &authority,
    );
    let served = Served::start(&disk.server_args()).await;
    (authority, disk, served)
}

/// A channel to what should be the scheduler.
pub(crate) fn dial(served: &Served, args: &ClientTlsArgs) -> Channel {
    let tls = ClientTls::load(args, &realm(), Caller::Scheduler, &TlsMetrics::default()).unwrap();
    channel(&served.uri("https"), tls.map(|(tls, _reloader)| tls)).unwrap()
}

/// One call.
pub(crate) async fn call(channel: &Channel) -> Result<(), Status> {
    let request = HealthCheckRequest {
        service: String::new(),
    };
    HealthClient::new(channel.clone())
        .check(request)
        .await
        .map(|_| ())
}

/// Waits until calls fail, and says how long that took.
async fn denied(served: &Served, client: &Disk, open: &Channel, begun: Instant) -> Duration {
    loop {
        if call(open).await.is_err() {
            let took = begun.elapsed();
            call(&dial(served, &client.client_args())).await.unwrap_err();
            return took;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "it still gets in");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The chain that a caller shows whom this authority has certified.
fn presented(by: &Authority, caller: &Caller) -> [CertificateDer<'static>; 1] {
    let issued = by.issue(&Subject::of_caller(caller));
    [CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap()]
}

/// A server's files.
fn load(args: &ServerTlsArgs) -> ServerTls {
    ServerTls::load(args, &realm(), &TlsMetrics::default())
        .unwrap()
        .unwrap()
        .0
}
