//! A scheduler on a disk that can fail, called by gRPC over loopback as a client calls it.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use proto::{
    inventory::v1::{
        self as inventory, ReportHostsRequest, ReportHostsResponse,
        inventory_service_client::InventoryServiceClient, report_hosts_request::Message,
    },
    placement::v1::{
        ApplyClusterRequest, GetPlacementRequest, Placement, WatchPlacementsRequest,
        placement_service_client::PlacementServiceClient, watch_placements_response::Event,
    },
};
use runtime::{
    identity::Realm,
    metrics::Metrics,
    readiness::Readiness,
    tls::{self, Channel, Listener, ServerTlsArgs, TlsMetrics},
};
use scheduler::{
    policy::Policies,
    server,
    term::{Standing, Supervisor, Terms},
};
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};
use tonic_types::StatusExt as _;

use crate::disk::Disk;

/// The site of every test.
pub(crate) const SITE: &str = "a";
/// Most hosts of one message.
const LARGEST: usize = 1000;
/// How long anything here may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A running scheduler.
pub(crate) struct Stage {
    pub(crate) disk: Disk,
    pub(crate) terms: Terms,
    pub(crate) readiness: Readiness,
    pub(crate) shutdown: CancellationToken,
    pub(crate) supervised: JoinHandle<Result<(), scheduler::ledger::Error>>,
    pub(crate) served: JoinHandle<Result<(), tonic::transport::Error>>,
    channel: Channel,
}

/// A site's open stream of reports.
pub(crate) struct Reports {
    requests: mpsc::Sender<ReportHostsRequest>,
    pub(crate) answers: Streaming<ReportHostsResponse>,
}

impl Stage {
    pub(crate) async fn start(disk: Disk) -> Self {
        let readiness = Readiness::default();
        let gate = readiness.gate("ledger");
        let (supervisor, terms) = Supervisor::new(
            Arc::new(disk.clone()),
            tokio::sync::watch::channel(Policies::new()).1,
            gate,
        );
        let shutdown = CancellationToken::new();
        let supervised = tokio::spawn(supervisor.run(shutdown.clone()));
        let arguments = ServerTlsArgs {
            tls_cert: None,
            tls_key: None,
            tls_client_ca: None,
            tls_site_ca_dir: None,
            tls_deny: None,
            plaintext_loopback: true,
            tls_reload_seconds: Duration::from_secs(10),
        };
        let realm: Realm = Realm::new("sip.example".parse().unwrap(), "north".parse().unwrap());
        let metrics = TlsMetrics::registered(&Metrics::default());
        let any = "127.0.0.1:0".parse().unwrap();
        let (listener, _) = Listener::bind(any, &arguments, &realm, &metrics).await.unwrap();
        let endpoint = format!("http://{}", listener.address()).parse().unwrap();
        let (_, routes) = server::routes(&terms).unwrap();
        let server = runtime::serving::grpc_server().add_routes(routes);
        let stop = shutdown.clone().cancelled_owned();
        let served = tokio::spawn(server.serve_with_incoming_shutdown(listener.incoming(), stop));
        let stage = Self {
            disk,
            terms,
            readiness,
            shutdown,
            supervised,
            served,
            channel: tls::channel(&endpoint, None).unwrap(),
        };
        stage.reach(Standing::serves).await;
        stage
    }

    /// Waits for a standing.
    pub(crate) async fn reach(&self, wanted: impl Fn(&Standing) -> bool) {
        let mut watch = self.terms.watch();
        let reached = watch.wait_for(wanted);
        tokio::time::timeout(PATIENCE, reached).await.unwrap().unwrap();
    }

    pub(crate) async fn read_only(&self) {
        self.reach(|standing| matches!(standing, Standing::ReadOnly { .. }))
            .await;
    }

    pub(crate) fn placements(&self) -> PlacementServiceClient<Channel> {
        PlacementServiceClient::new(self.channel.clone())
    }

    pub(crate) fn inventory(&self) -> InventoryServiceClient<Channel> {
        InventoryServiceClient::new(self.channel.clone())
    }

    /// Why the ledger's gate is closed; `None` when it is open.
    pub(crate) fn unready(&self) -> Option<String> {
        self.readiness.unready().remove("ledger")
    }

    /// Opens a stream, and reports a complete site of so many hosts.
    pub(crate) async fn report(&self, hosts: usize) -> Result<Reports, Status> {
        let hello = inventory::Hello {
            site: SITE.to_owned(),
            lease_uid: "lease".to_owned(),
            lease_transitions: 1,
            highest_seen: None,
        };
        let all: Vec<_> = (0..hosts).map(host).collect();
        let changes = all.chunks(LARGEST).map(|hosts| {
            Message::Changes(inventory::HostChanges {
                hosts: hosts.to_vec(),
                ..inventory::HostChanges::default()
            })
        });
        let end = Message::SnapshotEnd(inventory::SnapshotEnd::default());
        let messages = [Message::Hello(hello)].into_iter().chain(changes).chain([end]);
        let messages: Vec<_> = (1..).zip(messages).collect();
        let last = u64::try_from(messages.len()).unwrap();
        let (requests, stream) = mpsc::channel(messages.len());
        for (sequence, message) in messages {
            let request = ReportHostsRequest {
                sequence,
                message: Some(message),
            };
            requests.try_send(request).unwrap();
        }
        let stream = ReceiverStream::new(stream);
        let mut answers = self.inventory().report_hosts(stream).await?.into_inner();
        for acknowledged in 1..=last {
            assert_eq!(answers.message().await?.unwrap().acknowledged, acknowledged);
        }
        Ok(Reports { requests, answers })
    }

    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Declares a cluster of one host.
    pub(crate) async fn apply(&self, name: &str) -> Result<Placement, Status> {
        self.applying(name).await
    }

    /// The same, by whoever waits for it.
    pub(crate) fn applying(
        &self,
        name: &str,
    ) -> impl Future<Output = Result<Placement, Status>> + Send + use<> {
        let request = ApplyClusterRequest {
            site: SITE.to_owned(),
            cluster: Some(cluster(name)),
            generation: 1,
            created: None,
            spec: Some(inventory::ClusterSpec {
                roles: vec![inventory::Role {
                    name: "Worker".to_owned(),
                    label_selector: Some(inventory::LabelSelector::default()),
                    active: 1,
                    ..inventory::Role::default()
                }],
                network_ids: Vec::new(),
                other_bytes: 0,
            }),
        };
        let mut placements = self.placements();
        async move {
            let answer = placements.apply_cluster(request).await?;
            Ok(answer.into_inner().placement.unwrap())
        }
    }

    pub(crate) async fn placement(&self, name: &str) -> Result<Placement, Status> {
        let request = GetPlacementRequest {
            site: SITE.to_owned(),
            cluster: Some(cluster(name)),
            at_least: None,
        };
        let answer = self.placements().get_placement(request).await?;
        Ok(answer.into_inner().placement.unwrap())
    }

    /// What a new watch tells until it has told everything, and the watch.
    pub(crate) async fn watch(
        &self,
    ) -> (
        Vec<Placement>,
        Streaming<proto::placement::v1::WatchPlacementsResponse>,
    ) {
        let request = WatchPlacementsRequest {
            site: SITE.to_owned(),
            resume: None,
        };
        let answer = self.placements().watch_placements(request).await.unwrap();
        let mut events = answer.into_inner();
        let mut told = Vec::new();
        loop {
            match events.message().await.unwrap().unwrap().event.unwrap() {
                Event::Changed(placement) => told.push(placement),
                Event::Synced(_) => return (told, events),
                Event::Reset(_) | Event::Removed(_) => {}
            }
        }
    }
}

impl Reports {
    /// The stream's end, as the agent sees it.
    pub(crate) async fn ended(mut self) -> Status {
        let ended = tokio::time::timeout(PATIENCE, self.answers.message()).await;
        let status = ended.expect("the stream ends").unwrap_err();
        drop(self.requests);
        status
    }
}

pub(crate) fn cluster(name: &str) -> inventory::ClusterRef {
    inventory::ClusterRef {
        namespace: "tenant".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
    }
}

fn host(index: usize) -> inventory::Host {
    inventory::Host {
        r#ref: Some(inventory::HostRef {
            namespace: "metal".to_owned(),
            name: format!("h{index}"),
            uid: format!("uid-{index}"),
        }),
        labels: BTreeMap::from([("rack".to_owned(), format!("r{index}"))]),
        provisioning_state: inventory::ProvisioningState::Available.into(),
        operational_status: inventory::OperationalStatus::Ok.into(),
        ..inventory::Host::default()
    }
}

/// The reason in a status.
pub(crate) fn reason(status: &Status) -> String {
    status
        .get_details_error_info()
        .map(|info| info.reason)
        .unwrap_or_default()
}

/// Tries until a call answers in a certain way.
pub(crate) async fn until<T, F: Future<Output = T>>(
    mut call: impl FnMut() -> F,
    wanted: impl Fn(&T) -> bool,
) -> T {
    let begun = Instant::now();
    loop {
        let answer = call().await;
        if wanted(&answer) {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "it never answers so");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
