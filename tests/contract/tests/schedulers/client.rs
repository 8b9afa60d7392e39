//! Calls as the agents of a site make them.

use std::{collections::BTreeMap, time::Duration};

use proto::{
    inventory::v1::{
        self as inventory, ReportHostsRequest, ReportHostsResponse, Revision,
        inventory_service_client::InventoryServiceClient, report_hosts_request::Message,
    },
    placement::v1::{
        ApplyClusterRequest, ListPlacementsRequest, Placement,
        placement_service_client::PlacementServiceClient,
    },
};
use runtime::tls::{self, Channel};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, Streaming};
use tonic_types::StatusExt as _;

/// The site of every test.
pub(crate) const SITE: &str = "a";

/// A connection to one scheduler.
#[derive(Clone)]
pub(crate) struct Client {
    channel: Channel,
}

/// A site's open stream of reports.
pub(crate) struct Reports {
    _requests: mpsc::Sender<ReportHostsRequest>,
    _answers: Streaming<ReportHostsResponse>,
}

fn timed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(Duration::from_secs(3));
    request
}

impl Client {
    pub(crate) fn new(address: &str) -> Self {
        let endpoint = format!("http://{address}").parse().unwrap();
        Self {
            channel: tls::channel(&endpoint, None).unwrap(),
        }
    }

    /// For calls that are not here.
    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Reports a complete site of so many hosts, by an agent that has seen a revision.
    pub(crate) async fn report(&self, hosts: usize, seen: Option<Revision>) -> Result<Reports, Status> {
        let hosts: Vec<_> = (0..hosts).map(host).collect();
        self.report_these(&hosts, seen).await
    }

    /// Reports a complete site of these hosts.
    pub(crate) async fn report_these(
        &self,
        hosts: &[inventory::Host],
        seen: Option<Revision>,
    ) -> Result<Reports, Status> {
        let hello = inventory::Hello {
            site: SITE.to_owned(),
            lease_uid: "lease".to_owned(),
            lease_transitions: 1,
            highest_seen: seen,
        };
        // As many as one message may have.
        let changes = hosts.chunks(1000).map(|hosts| {
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
            let message = Some(message);
            requests
                .try_send(ReportHostsRequest { sequence, message })
                .unwrap();
        }
        let mut inventory = InventoryServiceClient::new(self.channel.clone());
        let stream = ReceiverStream::new(stream);
        let mut answers = inventory.report_hosts(stream).await?.into_inner();
        for acknowledged in 1..=last {
            let answer = answers
                .message()
                .await?
                .ok_or_else(|| Status::unavailable("ended"))?;
            assert_eq!(answer.acknowledged, acknowledged);
        }
        Ok(Reports {
            _requests: requests,
            _answers: answers,
        })
    }

    /// Declares a cluster of so many hosts.
    pub(crate) async fn apply(&self, name: &str, workers: u32) -> Result<Placement, Status> {
        let request = ApplyClusterRequest {
            site: SITE.to_owned(),
            cluster: Some(inventory::ClusterRef {
                namespace: "tenant".to_owned(),
                name: name.to_owned(),
                uid: format!("uid-{name}"),
            }),
            generation: 1,
            created: None,
            spec: Some(inventory::ClusterSpec {
                roles: vec![inventory::Role {
                    name: "Worker".to_owned(),
                    label_selector: Some(inventory::LabelSelector::default()),
                    active: workers,
                    ..inventory::Role::default()
                }],
                network_ids: Vec::new(),
                other_bytes: 0,
            }),
        };
        let mut placements = PlacementServiceClient::new(self.channel.clone());
        let answer = placements.apply_cluster(timed(request)).await?;
        Ok(answer.into_inner().placement.unwrap())
    }

    /// Every placement, by the cluster's name.
    pub(crate) async fn list(&self) -> Result<BTreeMap<String, Placement>, Status> {
        let mut found = BTreeMap::new();
        let mut page_token = String::new();
        loop {
            let request = ListPlacementsRequest {
                page_token,
                ..ListPlacementsRequest::default()
            };
            let mut placements = PlacementServiceClient::new(self.channel.clone());
            let page = placements.list_placements(timed(request)).await?.into_inner();
            let named = |placement: Placement| (placement.cluster.clone().unwrap().name, placement);
            found.extend(page.placements.into_iter().map(named));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(found);
            }
        }
    }
}

/// A good host.
pub(crate) fn host(index: usize) -> inventory::Host {
    inventory::Host {
        r#ref: Some(inventory::HostRef {
            namespace: "metal".to_owned(),
            name: format!("h{index}"),
            uid: format!("uid-{index}"),
        }),
        provisioning_state: inventory::ProvisioningState::Available.into(),
        operational_status: inventory::OperationalStatus::Ok.into(),
        ..inventory::Host::default()
    }
}

/// The reason in a status, and the leader that it names.
pub(crate) fn reason(status: &Status) -> (String, Option<String>) {
    match status.get_details_error_info() {
        Some(mut info) => (info.reason, info.metadata.remove("leader")),
        None => (String::new(), None),
    }
}

/// The hosts of a placement, by name.
pub(crate) fn hosts(placement: &Placement) -> Vec<String> {
    let host = |member: &proto::placement::v1::Member| member.host.clone().unwrap().name;
    placement.members.iter().map(host).collect()
}
