//! A scheduler over TLS, and certificates for whoever calls it.

use std::{
    net::SocketAddr,
    ops::Range,
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use futures::executor::block_on;
use proto::{
    inventory::v1::{
        self as inventory, Hello, ReportHostsRequest, ReportHostsResponse, SnapshotEnd,
        inventory_service_client::InventoryServiceClient, report_hosts_request::Message,
    },
    placement::v1::{ApplyClusterRequest, placement_service_client::PlacementServiceClient},
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd};
use redb::backends::InMemoryBackend;
use runtime::{
    identity::{Caller, Realm},
    metrics::Metrics,
    serving::grpc_server,
    tls::{self, Channel, ClientTls, ClientTlsArgs, Listener, ServerTlsArgs, TlsMetrics},
};
use scheduler::{
    admission::{CallMetrics, Limits},
    ledger::{Ledger, StageMetrics, commit, redb::Redb},
    policy::Policies,
    region::Region,
    server,
    term::{Standing, Term, Terms},
};
use tempfile::TempDir;
use tokio::{sync::watch, task::JoinSet};
use tokio_stream::StreamExt as _;
use tonic::{Streaming, service::Routes};

pub(crate) fn realm() -> Realm {
    Realm::new("sip.example".parse().unwrap(), "north".parse().unwrap())
}

pub(crate) fn agent(site: &str, name: &str) -> Caller {
    Caller::Agent {
        site: site.parse().unwrap(),
        name: name.parse().unwrap(),
    }
}

pub(crate) fn reader(name: &str) -> Caller {
    Caller::Reader {
        name: name.parse().unwrap(),
    }
}

pub(crate) fn operator(name: &str) -> Caller {
    Caller::Operator {
        name: name.parse().unwrap(),
    }
}

/// A certificate authority, and the files of those that it has certified.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    files: TempDir,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let files = TempDir::new().unwrap();
        std::fs::write(
            files.path().join("ca.pem"),
            params.self_signed(&key).unwrap().pem(),
        )
        .unwrap();
        Self {
            issuer: Issuer::new(params, key),
            files,
        }
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.files.path().join(file)
    }

    /// Certifies `caller` until `not_after`; the files' common name.
    pub(crate) fn issue(&self, caller: &Caller, not_after: SystemTime) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::default();
        let uri = realm().uri(caller);
        // Clients of another make check the address.
        params.subject_alt_names = vec![
            SanType::URI(uri.as_str().try_into().unwrap()),
            SanType::IpAddress([127, 0, 0, 1].into()),
        ];
        let at = |time: SystemTime| date_time_ymd(1970, 1, 1) + time.duration_since(UNIX_EPOCH).unwrap();
        params.not_before = at(not_after - Duration::from_hours(2));
        params.not_after = at(not_after);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let name = caller.to_string().replace('/', "-");
        let paths = (
            self.path(&format!("{name}.pem")),
            self.path(&format!("{name}.key")),
        );
        std::fs::write(&paths.0, certificate.pem()).unwrap();
        std::fs::write(&paths.1, key.serialize_pem()).unwrap();
        paths
    }

    fn server(&self) -> ServerTlsArgs {
        let (certificate, key) = self.issue(&Caller::Scheduler, SystemTime::now() + Duration::from_hours(1));
        ServerTlsArgs {
            tls_cert: Some(certificate),
            tls_key: Some(key),
            tls_client_ca: Some(self.path("ca.pem")),
            tls_site_ca_dir: None,
            tls_deny: Some(self.denied()),
            plaintext_loopback: false,
            tls_reload_seconds: Duration::from_secs(10),
        }
    }

    /// Who is denied.
    fn denied(&self) -> PathBuf {
        let list = self.path("denied");
        std::fs::write(&list, format!("{}\n", realm().uri(&revoked()))).unwrap();
        list
    }
}

/// Whom the scheduler is told to deny.
pub(crate) fn revoked() -> Caller {
    operator("revoked")
}

/// A running scheduler with a site `a` of three hosts.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) authority: Authority,
    /// Of the stages of changes, and of decisions that change nothing.
    pub(crate) metrics: Metrics,
    pub(crate) region: Region,
    _serving: JoinSet<()>,
    reports: Vec<Streaming<ReportHostsResponse>>,
}

impl Served {
    pub(crate) async fn start() -> Self {
        Self::with(|terms| server::routes(&terms).unwrap().1).await
    }

    pub(crate) async fn with(routes: impl FnOnce(Terms) -> Routes) -> Self {
        let ledger: Arc<dyn Ledger> = Arc::new(Redb::on(InMemoryBackend::new()).unwrap());
        let contents = ledger.load().unwrap();
        let stages = Metrics::default();
        let (committer, writer) = commit::measured(contents.commit, StageMetrics::registered(&stages));
        let region = Region::new(contents.clone(), Policies::new(), committer);
        let writing = Arc::clone(&ledger);
        let undo = region.undo();
        let mut durable = contents;
        thread::spawn(move || block_on(writer.run(&*writing, &mut durable, &|refusal| undo.reset(refusal))));
        let authority = Authority::new("authority");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (args, metrics) = (authority.server(), TlsMetrics::registered(&Metrics::default()));
        let (listener, _) = Listener::bind(any, &args, &realm(), &metrics).await.unwrap();
        let address = listener.address();
        let (_, standing) = watch::channel(Standing::Serving(Term::new(region.clone(), ledger, None)));
        let server = grpc_server().add_routes(routes(Terms::new(standing)));
        let mut serving = JoinSet::new();
        serving.spawn(async move { server.serve_with_incoming(listener.incoming()).await.unwrap() });
        let mut served = Self {
            address,
            authority,
            metrics: stages,
            region,
            _serving: serving,
            reports: Vec::new(),
        };
        let reports = served.report("a").await;
        served.reports.push(reports);
        served
    }

    /// With these limits.
    pub(crate) async fn limited(limits: Limits) -> Self {
        Self::counted(limits).await.0
    }

    /// The same, and the metrics in which its calls are counted.
    pub(crate) async fn counted(limits: Limits) -> (Self, Metrics) {
        let metrics = Metrics::default();
        let calls = CallMetrics::registered(&metrics);
        let served = Self::with(|terms| server::guarded_routes(&terms, limits, calls).unwrap().1).await;
        (served, metrics)
    }

    /// A connection of its own.
    pub(crate) fn channel(&self, caller: &Caller) -> Channel {
        let (certificate, key) = self
            .authority
            .issue(caller, SystemTime::now() + Duration::from_hours(1));
        let args = ClientTlsArgs {
            tls_cert: Some(certificate),
            tls_key: Some(key),
            tls_ca: Some(self.authority.path("ca.pem")),
            plaintext_loopback: false,
            tls_reload_seconds: Duration::from_secs(10),
        };
        let metrics = TlsMetrics::registered(&Metrics::default());
        let tls = ClientTls::load(&args, &realm(), Caller::Scheduler, &metrics).unwrap();
        let endpoint = format!("https://{}", self.address).parse().unwrap();
        tls::channel(&endpoint, tls.map(|(tls, _)| tls)).unwrap()
    }

    pub(crate) fn placements(&self, caller: &Caller) -> PlacementServiceClient<Channel> {
        PlacementServiceClient::new(self.channel(caller))
    }

    /// Reports a site of three hosts as its cluster agent; the stream stays open.
    pub(crate) async fn report(&self, site: &str) -> Streaming<ReportHostsResponse> {
        self.report_hosts(site, 3).await
    }

    /// The same with so many hosts.
    pub(crate) async fn report_hosts(&self, site: &str, hosts: usize) -> Streaming<ReportHostsResponse> {
        let hello = Message::Hello(Hello {
            site: site.to_owned(),
            lease_uid: "lease".to_owned(),
            lease_transitions: 1,
            highest_seen: None,
        });
        let hosts: Vec<_> = (1..=hosts).map(|number| host(&format!("h{number}"))).collect();
        let changes = hosts.chunks(1000).map(|hosts| {
            Message::Changes(inventory::HostChanges {
                hosts: hosts.to_vec(),
                ..inventory::HostChanges::default()
            })
        });
        let end = Message::SnapshotEnd(SnapshotEnd {});
        let messages = [hello].into_iter().chain(changes).chain([end]);
        let requests: Vec<_> = messages
            .zip(1..)
            .map(|(message, sequence)| ReportHostsRequest {
                sequence,
                message: Some(message),
            })
            .collect();
        let last = requests.len() as u64;
        let open = tokio_stream::iter(requests).chain(tokio_stream::pending());
        let mut client = InventoryServiceClient::new(self.channel(&agent(site, "cluster")));
        let mut answers = client.report_hosts(open).await.unwrap().into_inner();
        while answers.next().await.unwrap().unwrap().acknowledged < last {}
        answers
    }
}

fn host(name: &str) -> inventory::Host {
    inventory::Host {
        r#ref: Some(inventory::HostRef {
            namespace: "metal".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-{name}"),
        }),
        labels: [("rack".to_owned(), format!("rack-{name}"))].into(),
        provisioning_state: inventory::ProvisioningState::Available.into(),
        operational_status: inventory::OperationalStatus::Ok.into(),
        ..inventory::Host::default()
    }
}

pub(crate) fn cluster(name: &str) -> inventory::ClusterRef {
    inventory::ClusterRef {
        namespace: "tenant".to_owned(),
        name: name.to_owned(),
        uid: "uid".to_owned(),
    }
}

pub(crate) fn spec(workers: u32) -> inventory::ClusterSpec {
    inventory::ClusterSpec {
        roles: vec![inventory::Role {
            name: "Worker".to_owned(),
            label_selector: Some(inventory::LabelSelector::default()),
            topology_key: "rack".to_owned(),
            active: workers,
            ..inventory::Role::default()
        }],
        network_ids: Vec::new(),
        other_bytes: 0,
    }
}

/// Declares a cluster of so many workers.
pub(crate) fn apply(site: &str, name: &str, generation: i64, workers: u32) -> ApplyClusterRequest {
    ApplyClusterRequest {
        site: site.to_owned(),
        cluster: Some(cluster(name)),
        generation,
        created: None,
        spec: Some(spec(workers)),
    }
}

/// How long each of these generations of a cluster takes to be declared, one after the other; in ascending order.
pub(crate) async fn durations_of_changes(
    client: &mut PlacementServiceClient<Channel>,
    site: &str,
    generations: Range<i64>,
) -> Vec<Duration> {
    let mut took = Vec::new();
    for generation in generations {
        let started = Instant::now();
        let workers = u32::try_from(generation % 3).unwrap();
        let change = apply(site, "measured", generation, workers);
        client.apply_cluster(change).await.unwrap();
        took.push(started.elapsed());
    }
    took.sort_unstable();
    took
}
