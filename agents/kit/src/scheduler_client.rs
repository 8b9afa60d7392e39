//! The region's scheduler, as an agent calls it. Its answers are parsed here, once: who calls sees no protobuf of placements.

mod encoding;
mod watch;

use std::time::Duration;

use api::Cluster;
use backon::{BackoffBuilder as _, ExponentialBuilder};
use futures::Stream;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proto::{
    inventory::v1::inventory_service_client::InventoryServiceClient,
    placement::v1::{
        self as wire, ConfirmHostsRequest, GetPlacementRequest, ListPlacementsRequest, ReleaseClusterRequest,
        placement_service_client::PlacementServiceClient,
    },
};
use runtime::tls::Channel;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

use crate::placement::{ClusterId, HeldHosts, Placement, Position, Release};

pub use encoding::Invalid;
pub use watch::WatchEvent;

/// Timeout of one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a response that is accepted, at most: a placement of 10,000 hosts with several addresses each.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// A handle to the scheduler, for one site. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Scheduler {
    site: String,
    placements: PlacementServiceClient<Channel>,
    inventory: InventoryServiceClient<Channel>,
}

impl Scheduler {
    /// A handle over a channel.
    #[must_use]
    pub fn new(site: &str, channel: Channel) -> Self {
        let placements = PlacementServiceClient::new(channel.clone());
        let inventory = InventoryServiceClient::new(channel);
        Self {
            site: site.to_owned(),
            placements: placements.max_decoding_message_size(MAX_MESSAGE_BYTES),
            inventory: inventory.max_decoding_message_size(MAX_MESSAGE_BYTES),
        }
    }

    /// The site that it reports for.
    #[must_use]
    pub fn site(&self) -> &str {
        &self.site
    }

    /// The inventory service, for reports.
    #[must_use]
    pub fn inventory(&self) -> InventoryServiceClient<Channel> {
        self.inventory.clone()
    }

    /// Declares a cluster's shape; see `ApplyCluster`. `created`: the `SIPCluster`'s creation time.
    ///
    /// # Errors
    /// The scheduler's status; `INTERNAL` for an answer that is invalid.
    pub async fn apply(&self, cluster: &Cluster, created: Option<&Time>) -> Result<Placement, Status> {
        let request = encoding::declaration(&self.site, cluster, created);
        let answer = self.placements.clone().apply_cluster(timed(request)).await?;
        parse(answer.into_inner().placement)?
            .ok_or_else(|| Status::internal("the response of ApplyCluster has no placement"))
    }

    /// What a cluster holds; `None` when the ledger knows nothing of it.
    ///
    /// # Errors
    /// The scheduler's status, but for `NOT_FOUND`; `INTERNAL` for an answer that is invalid.
    pub async fn placement(
        &self,
        cluster: &ClusterId,
        at_least: Option<Position>,
    ) -> Result<Option<Placement>, Status> {
        let request = GetPlacementRequest {
            site: self.site.clone(),
            cluster: Some(encoding::cluster_ref(cluster)),
            at_least: at_least.map(encoding::revision),
        };
        match self.placements.clone().get_placement(timed(request)).await {
            Ok(answer) => parse(answer.into_inner().placement),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// The hosts that every cluster of the site holds, in the order of the clusters' namespaces and names.
    ///
    /// # Errors
    /// The scheduler's status.
    pub async fn held_hosts(&self) -> Result<Vec<HeldHosts>, Status> {
        let mut request = ListPlacementsRequest {
            site: self.site.clone(),
            ..ListPlacementsRequest::default()
        };
        let mut all = Vec::new();
        loop {
            let mut placements = self.placements.clone();
            let answer = placements.list_placements(timed(request.clone())).await?;
            let page = answer.into_inner();
            all.extend(page.placements.into_iter().map(HeldHosts::from));
            if page.next_page_token.is_empty() {
                return Ok(all);
            }
            request.page_token = page.next_page_token;
        }
    }

    /// Begins to give a cluster's hosts back. `None`: nothing is held.
    ///
    /// # Errors
    /// The scheduler's status; `INTERNAL` for an answer that is invalid.
    pub async fn release(&self, cluster: &ClusterId) -> Result<Option<Placement>, Status> {
        let request = ReleaseClusterRequest {
            site: self.site.clone(),
            cluster: Some(encoding::cluster_ref(cluster)),
        };
        let answer = self.placements.clone().release_cluster(timed(request)).await?;
        parse(answer.into_inner().placement)
    }

    /// Confirms releases that are written to the API server. `None`: the cluster no longer holds anything.
    ///
    /// # Errors
    /// The scheduler's status; `INTERNAL` for an answer that is invalid.
    pub async fn confirm(
        &self,
        cluster: &ClusterId,
        released: &[Release],
    ) -> Result<Option<Placement>, Status> {
        let request = ConfirmHostsRequest {
            site: self.site.clone(),
            cluster: Some(encoding::cluster_ref(cluster)),
            released: released.iter().map(encoding::confirmation).collect(),
        };
        let answer = self.placements.clone().confirm_hosts(timed(request)).await?;
        parse(answer.into_inner().placement)
    }

    /// Changes of this site's placements, without end: a lost connection is opened again, and the watch resumes at its position.
    pub fn watch(&self) -> impl Stream<Item = WatchEvent> + Send + use<> {
        watch::events(self.clone())
    }
}

fn parse(answer: Option<wire::Placement>) -> Result<Option<Placement>, Status> {
    Ok(answer.map(Placement::try_from).transpose()?)
}

/// A request with a deadline, which the scheduler sees too.
fn timed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(CALL_TIMEOUT);
    request
}

/// Pauses between tries to connect: from 50 ms to 2 s, with jitter, without end. A scheduler that fails is replaced within
/// seconds, and its sites are not to wait much longer than that.
#[must_use]
pub fn pauses() -> backon::ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(50))
        .with_max_delay(Duration::from_secs(2))
        .with_jitter()
        .without_max_times()
        .build()
}

/// The reason of a status, for messages: its message, with the violations of fields if it names any.
#[must_use]
pub fn reason(status: &Status) -> String {
    let violations = status
        .get_details_bad_request()
        .map(|bad| bad.field_violations)
        .unwrap_or_default();
    if violations.is_empty() {
        return status.message().to_owned();
    }
    violations
        .iter()
        .map(|v| format!("{}: {}", v.field, v.description))
        .collect::<Vec<_>>()
        .join("; ")
}
