//! A scheduler on a port of loopback, and a site that reports to it.

use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    sync::{Arc, atomic::AtomicU64},
    thread,
    time::Duration,
};

use futures::executor::block_on;
use proto::{
    inventory::v1::{
        self as inventory, Hello, ReportHostsRequest, ReportHostsResponse, SnapshotEnd,
        inventory_service_client::InventoryServiceClient, report_hosts_request::Message,
    },
    placement::v1::{ApplyClusterRequest, placement_service_client::PlacementServiceClient},
};
use runtime::{
    identity::Realm,
    metrics::Metrics,
    serving::grpc_server,
    tls::{self, Channel, Listener, ServerTlsArgs, TlsMetrics},
};
use scheduler::{
    admission::{self, CallMetrics},
    ledger::{Ledger, commit, redb::Redb},
    policy::Policies,
    region::Region,
    server,
    site::Limits,
    term::{Standing, Term, Terms},
};
use tokio::{sync::watch, task::JoinHandle};
use tokio_stream::StreamExt as _;
use tonic::{Streaming, service::Routes};

use crate::storage::{Storage, Sync};

pub(crate) const SITE: &str = "a";
/// Hosts in one rack.
const RACK: u32 = 20;
/// More than any row has.
const MOST_SITES: usize = 100;
/// Calls of one identity: more than this machine serves.
const MOST_CALLS_PER_SECOND: NonZeroU32 = NonZeroU32::new(10_000_000).unwrap();
/// Hosts in one message of a snapshot.
const CHUNK: u32 = 500;

/// Something that is served.
pub(crate) struct Served {
    endpoint: http::Uri,
    serving: JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Served {
    pub(crate) async fn new(routes: Routes) -> Self {
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
        let endpoint = format!("http://{}", listener.address()).parse().unwrap();
        let server = grpc_server().add_routes(routes);
        let serving = async move { server.serve_with_incoming(listener.incoming()).await.unwrap() };
        Self {
            endpoint,
            serving: tokio::spawn(serving),
        }
    }

    /// Connections of their own.
    pub(crate) fn connections(&self, count: usize) -> Vec<Channel> {
        let one = || tls::channel(&self.endpoint, None).unwrap();
        std::iter::repeat_with(one).take(count).collect()
    }
}

/// A scheduler with a site of so many hosts.
pub(crate) struct World {
    pub(crate) served: Served,
    pub(crate) syncs: Arc<AtomicU64>,
    pub(crate) region: Region,
    reports: Vec<Streaming<ReportHostsResponse>>,
}

impl World {
    pub(crate) async fn empty(sync: Sync) -> Self {
        let (storage, syncs) = Storage::new(sync);
        let world = Self::on(Arc::new(Redb::on(storage).unwrap())).await;
        Self { syncs, ..world }
    }

    pub(crate) async fn on(ledger: Arc<dyn Ledger>) -> Self {
        let contents = ledger.load().unwrap();
        let (committer, writer) = commit::committer(contents.commit);
        let limits = Limits {
            sites: MOST_SITES,
            ..Limits::default()
        };
        let region = Region::new(contents.clone(), Policies::new(), committer).limited(limits);
        let writing = Arc::clone(&ledger);
        let undo = region.undo();
        let mut durable = contents;
        thread::spawn(move || block_on(writer.run(&*writing, &mut durable, &|refusal| undo.reset(refusal))));
        let terms = Terms::new(watch::channel(Standing::Serving(Term::new(region.clone(), ledger, None))).1);
        // One identity makes all calls, and the rate of one is not what is measured.
        let unlimited = admission::Limits::default().rate(MOST_CALLS_PER_SECOND);
        let (_, routes) = server::guarded_routes(&terms, unlimited, CallMetrics::default()).unwrap();
        Self {
            served: Served::new(routes).await,
            syncs: Arc::default(),
            region,
            reports: Vec::new(),
        }
    }

    pub(crate) async fn with_hosts(sync: Sync, hosts: u32) -> Self {
        let mut world = Self::empty(sync).await;
        world.report(SITE, hosts).await;
        world
    }

    /// Reports a whole site; when this returns, clusters can be placed in it.
    pub(crate) async fn report(&mut self, site: &str, hosts: u32) {
        let mut client = InventoryServiceClient::new(self.served.connections(1).remove(0));
        let hello = Message::Hello(Hello {
            site: site.to_owned(),
            lease_uid: "lease".to_owned(),
            ..Hello::default()
        });
        let chunks = (0..hosts.div_ceil(CHUNK)).map(move |chunk| {
            let of_chunk = chunk * CHUNK..hosts.min((chunk + 1) * CHUNK);
            Message::Changes(inventory::HostChanges {
                hosts: of_chunk.map(host).collect(),
                ..inventory::HostChanges::default()
            })
        });
        let messages = std::iter::once(hello)
            .chain(chunks)
            .chain([Message::SnapshotEnd(SnapshotEnd {})]);
        let last = u64::from(hosts.div_ceil(CHUNK)) + 2;
        let requests = messages.zip(1..).map(|(message, sequence)| ReportHostsRequest {
            sequence,
            message: Some(message),
        });
        let open = tokio_stream::iter(requests).chain(tokio_stream::pending());
        let mut answers = client.report_hosts(open).await.unwrap().into_inner();
        while answers.next().await.unwrap().unwrap().acknowledged < last {}
        self.reports.push(answers);
    }

    pub(crate) fn placements(&self, connections: usize) -> Vec<PlacementServiceClient<Channel>> {
        let channels = self.served.connections(connections).into_iter();
        channels.map(PlacementServiceClient::new).collect()
    }
}

/// A quarter of the hosts are for control planes.
pub(crate) fn host(index: u32) -> inventory::Host {
    let role = if index.is_multiple_of(4) {
        "control-plane"
    } else {
        "worker"
    };
    let labels = [
        ("rack", format!("r{:05}", index / RACK)),
        ("room", format!("m{:02}", index / RACK % 16)),
        ("flavor", role.to_owned()),
        ("arch", "amd64".to_owned()),
    ];
    let [_, high, middle, low] = index.to_be_bytes();
    inventory::Host {
        r#ref: Some(inventory::HostRef {
            namespace: "metal".to_owned(),
            name: format!("node-{index:06}"),
            uid: format!("00000000-0000-4000-8000-{index:012}"),
        }),
        labels: labels.map(|(key, value)| (key.to_owned(), value)).into(),
        provisioning_state: inventory::ProvisioningState::Available.into(),
        operational_status: inventory::OperationalStatus::Ok.into(),
        powered_on: true,
        inspected: true,
        addresses: BTreeMap::from([
            ("oam".to_owned(), format!("10.{high}.{middle}.{low}")),
            ("management".to_owned(), format!("11.{high}.{middle}.{low}")),
        ]),
        bmc_address: format!("redfish+https://12.{high}.{middle}.{low}/redfish/v1/Systems/1"),
        ..inventory::Host::default()
    }
}

/// So many control-plane hosts and workers, one of a role in a rack.
pub(crate) fn spec(control_plane: u32, workers: u32) -> inventory::ClusterSpec {
    let role = |name: &str, flavor: &str, active| inventory::Role {
        name: name.to_owned(),
        label_selector: Some(inventory::LabelSelector {
            match_labels: BTreeMap::from([("flavor".to_owned(), flavor.to_owned())]),
            match_expressions: Vec::new(),
        }),
        topology_key: "rack".to_owned(),
        active,
        ..inventory::Role::default()
    };
    inventory::ClusterSpec {
        roles: vec![
            role("ControlPlane", "control-plane", control_plane),
            role("Worker", "worker", workers),
        ],
        network_ids: vec!["oam".to_owned()],
        other_bytes: 0,
    }
}

pub(crate) fn cluster(name: &str) -> inventory::ClusterRef {
    inventory::ClusterRef {
        namespace: "tenant".to_owned(),
        name: name.to_owned(),
        uid: "uid".to_owned(),
    }
}

/// Declares a new cluster of 3 + 4.
pub(crate) fn apply(site: &str, name: &str, generation: i64, workers: u32) -> ApplyClusterRequest {
    ApplyClusterRequest {
        site: site.to_owned(),
        cluster: Some(cluster(name)),
        generation,
        created: None,
        spec: Some(spec(3, workers)),
    }
}
