//! A scheduler over loopback, on a storage whose syncs can be held up.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, Condvar, Mutex},
    thread,
    time::Duration,
};

use futures::executor::block_on;
use proto::{
    inventory::v1::{
        self as inventory, Hello, ReportHostsRequest, ReportHostsResponse, SnapshotEnd,
        inventory_service_client::InventoryServiceClient, inventory_service_server::InventoryServiceServer,
        report_hosts_request::Message,
    },
    placement::v1::{
        ApplyClusterRequest, Decision, ListDecisionsRequest,
        placement_service_client::PlacementServiceClient, placement_service_server::PlacementServiceServer,
    },
};
use redb::{StorageBackend, backends::InMemoryBackend};
use runtime::{
    identity::Realm,
    metrics::Metrics,
    serving::grpc_server,
    tls::{self, Channel, Listener, ServerTlsArgs, TlsMetrics},
};
use scheduler::{
    admission::{self, CallMetrics, Limits},
    api::{Inventory, Placements},
    ledger::{Ledger, commit, redb::Redb},
    policy::Policies,
    region::Region,
    term::{Standing, Term, Terms},
};
use tokio::{sync::watch, task::JoinHandle};
use tokio_stream::StreamExt as _;
use tonic::{Streaming, service::Routes};

/// The site of every test.
pub(crate) const SITE: &str = "a";

/// A storage in memory whose syncs wait while it is closed.
#[derive(Clone, Debug)]
pub(crate) struct Storage(Arc<Gate>);

#[derive(Debug)]
struct Gate {
    inner: InMemoryBackend,
    closed: Mutex<bool>,
    opened: Condvar,
    /// Whether a sync waits.
    waits: watch::Sender<bool>,
}

impl Storage {
    fn new() -> Self {
        Self(Arc::new(Gate {
            inner: InMemoryBackend::new(),
            closed: Mutex::new(false),
            opened: Condvar::new(),
            waits: watch::Sender::new(false),
        }))
    }

    pub(crate) fn close(&self) {
        *self.0.closed.lock().unwrap() = true;
    }

    pub(crate) fn open(&self) {
        *self.0.closed.lock().unwrap() = false;
        self.0.opened.notify_all();
    }

    /// A sync has come and waits.
    pub(crate) async fn reached(&self) {
        self.0.waits.subscribe().wait_for(|waits| *waits).await.unwrap();
    }
}

impl StorageBackend for Storage {
    fn len(&self) -> Result<u64, io::Error> {
        self.0.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.0.inner.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.0.inner.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        let mut closed = self.0.closed.lock().unwrap();
        while *closed {
            self.0.waits.send_replace(true);
            closed = self.0.opened.wait(closed).unwrap();
        }
        self.0.inner.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.0.inner.write(offset, data)
    }
}

/// Serves on a port of loopback.
pub(crate) async fn serve(routes: Routes) -> (Channel, SocketAddr, JoinHandle<()>) {
    let arguments = ServerTlsArgs {
        tls_cert: None,
        tls_key: None,
        tls_client_ca: None,
        tls_site_ca_dir: None,
        tls_deny: None,
        plaintext_loopback: true,
        tls_reload_seconds: Duration::from_secs(10),
    };
    let realm = Realm::new("sip.example".parse().unwrap(), "north".parse().unwrap());
    let metrics = TlsMetrics::registered(&Metrics::default());
    let any = "127.0.0.1:0".parse().unwrap();
    let (listener, _) = Listener::bind(any, &arguments, &realm, &metrics).await.unwrap();
    let address = listener.address();
    let server = grpc_server().add_routes(routes);
    let serving = tokio::spawn(async move { server.serve_with_incoming(listener.incoming()).await.unwrap() });
    (channel(address), address, serving)
}

/// A connection of its own.
pub(crate) fn channel(address: SocketAddr) -> Channel {
    let endpoint = format!("http://{address}").parse().unwrap();
    tls::channel(&endpoint, None).unwrap()
}

/// A running scheduler with a site of three hosts.
pub(crate) struct Stage {
    pub(crate) storage: Storage,
    pub(crate) channel: Channel,
    pub(crate) address: SocketAddr,
    _serving: JoinHandle<()>,
    _reports: Streaming<ReportHostsResponse>,
}

impl Stage {
    /// With the limits of the program.
    pub(crate) async fn served() -> Self {
        Self::with(|terms| scheduler::server::routes(&terms).unwrap().1).await
    }

    /// With places for so many calls of each kind.
    pub(crate) async fn start(in_flight: usize) -> Self {
        Self::with(|terms| {
            let (_, health) = tonic_health::server::health_reporter();
            let reflection = tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(proto::FILE_DESCRIPTOR_SET)
                .build_v1()
                .unwrap();
            let routes = Routes::new(PlacementServiceServer::new(Placements::new(terms.clone())))
                .add_service(InventoryServiceServer::new(Inventory::new(terms)))
                .add_service(health)
                .add_service(reflection);
            admission::guarded(routes, Limits::of_each_kind(in_flight), CallMetrics::default())
        })
        .await
    }

    pub(crate) async fn with(routes: impl FnOnce(Terms) -> Routes) -> Self {
        let storage = Storage::new();
        let ledger: Arc<dyn Ledger> = Arc::new(Redb::on(storage.clone()).unwrap());
        let contents = ledger.load().unwrap();
        let (committer, writer) = commit::committer(contents.commit);
        let region = Region::new(contents.clone(), Policies::new(), committer);
        let writing = Arc::clone(&ledger);
        let undo = region.undo();
        let mut durable = contents;
        thread::spawn(move || block_on(writer.run(&*writing, &mut durable, &|refusal| undo.reset(refusal))));
        let terms = Terms::new(watch::channel(Standing::Serving(Term::new(region, ledger, None))).1);
        let (channel, address, serving) = serve(routes(terms)).await;
        let hosts = ["h1", "h2", "h3"].map(host);
        Self {
            storage,
            _reports: report(&channel, &hosts).await,
            channel,
            address,
            _serving: serving,
        }
    }

    pub(crate) fn placements(&self) -> PlacementServiceClient<Channel> {
        PlacementServiceClient::new(self.channel.clone())
    }

    pub(crate) fn inventory(&self) -> InventoryServiceClient<Channel> {
        InventoryServiceClient::new(self.channel.clone())
    }

    /// Ends the stream of reports: the site is not synced any more.
    pub(crate) async fn end_reports(&self) {
        let request = inventory::ResetSiteFenceRequest {
            site: SITE.to_owned(),
        };
        self.inventory().reset_site_fence(request).await.unwrap();
    }

    /// Another reporter, of the same election and without hosts.
    pub(crate) async fn report_nothing(&self) -> Streaming<ReportHostsResponse> {
        report(&self.channel, &[]).await
    }

    /// How many clusters there are, durable or not.
    pub(crate) async fn clusters(&self) -> u32 {
        let mut client = self.inventory();
        let sites = client.list_sites(inventory::ListSitesRequest::default());
        sites.await.unwrap().into_inner().sites[0].clusters
    }

    /// The log of decisions.
    pub(crate) async fn decisions(&self) -> Vec<Decision> {
        let mut client = self.placements();
        let all = client.list_decisions(ListDecisionsRequest::default());
        all.await.unwrap().into_inner().decisions
    }
}

/// Reports a complete site; the stream stays open.
pub(crate) async fn report(channel: &Channel, hosts: &[inventory::Host]) -> Streaming<ReportHostsResponse> {
    let hello = hello("lease");
    let changes = Message::Changes(inventory::HostChanges {
        hosts: hosts.to_vec(),
        ..inventory::HostChanges::default()
    });
    let messages = [hello, changes, Message::SnapshotEnd(SnapshotEnd {})];
    let requests = messages
        .into_iter()
        .zip(1..)
        .map(|(message, sequence)| ReportHostsRequest {
            sequence,
            message: Some(message),
        });
    let requests: Vec<_> = requests.collect();
    let open = tokio_stream::iter(requests).chain(tokio_stream::pending());
    let mut answers = InventoryServiceClient::new(channel.clone())
        .report_hosts(open)
        .await
        .unwrap()
        .into_inner();
    while answers.next().await.unwrap().unwrap().acknowledged < 3 {}
    answers
}

/// The first message of who was elected by a Lease.
pub(crate) fn hello(lease: &str) -> Message {
    Message::Hello(Hello {
        site: SITE.to_owned(),
        lease_uid: lease.to_owned(),
        lease_transitions: 1,
        highest_seen: None,
    })
}

pub(crate) fn host(name: &str) -> inventory::Host {
    inventory::Host {
        r#ref: Some(inventory::HostRef {
            namespace: "metal".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-{name}"),
        }),
        labels: BTreeMap::from([("rack".to_owned(), format!("rack-{name}"))]),
        provisioning_state: inventory::ProvisioningState::Available.into(),
        operational_status: inventory::OperationalStatus::Ok.into(),
        ..inventory::Host::default()
    }
}

/// Declares a cluster of so many workers.
pub(crate) fn apply(name: &str, workers: u32) -> ApplyClusterRequest {
    ApplyClusterRequest {
        site: SITE.to_owned(),
        cluster: Some(inventory::ClusterRef {
            namespace: "tenant".to_owned(),
            name: name.to_owned(),
            uid: "uid".to_owned(),
        }),
        generation: 1,
        created: None,
        spec: Some(inventory::ClusterSpec {
            roles: vec![inventory::Role {
                name: "Worker".to_owned(),
                label_selector: Some(inventory::LabelSelector::default()),
                topology_key: "rack".to_owned(),
                active: workers,
                ..inventory::Role::default()
            }],
            network_ids: Vec::new(),
            other_bytes: 0,
        }),
    }
}
