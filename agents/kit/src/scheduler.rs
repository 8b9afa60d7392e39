//! The region's scheduler, as an agent calls it.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use futures::{Stream, StreamExt as _};
use proto::{
    inventory::v1::{ClusterRef, Revision, inventory_service_client::InventoryServiceClient},
    placement::v1::{
        ApplyClusterRequest, ConfirmHostsRequest, GetPlacementRequest, Placement, ReleaseClusterRequest,
        ReleaseConfirmation, WatchPlacementsRequest, WatchPlacementsResponse,
        placement_service_client::PlacementServiceClient, watch_placements_response::Event,
    },
};
use runtime::tls::Channel;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

/// How long one call may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// Largest answer that is accepted: a placement of 10,000 hosts with several addresses each.
const MESSAGE: usize = 16 << 20;

/// A handle to the scheduler, for one site. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Scheduler {
    site: String,
    placements: PlacementServiceClient<Channel>,
    inventory: InventoryServiceClient<Channel>,
}

/// What a watch tells.
#[derive(Clone, Debug)]
pub enum Watched {
    /// The watch is connected and everything up to now has been told.
    Synced,
    /// The watch is not connected; it is being tried again.
    Disconnected(Status),
    /// A cluster's placement is new or has changed, or is gone.
    Changed(ClusterRef),
    /// Anything may have changed.
    Reset,
}

impl Scheduler {
    /// A handle over a channel.
    #[must_use]
    pub fn new(site: &str, channel: Channel) -> Self {
        let placements = PlacementServiceClient::new(channel.clone());
        let inventory = InventoryServiceClient::new(channel);
        Self {
            site: site.to_owned(),
            placements: placements.max_decoding_message_size(MESSAGE),
            inventory: inventory.max_decoding_message_size(MESSAGE),
        }
    }

    /// The site that it speaks for.
    #[must_use]
    pub fn site(&self) -> &str {
        &self.site
    }

    /// The inventory service, for reports.
    #[must_use]
    pub fn inventory(&self) -> InventoryServiceClient<Channel> {
        self.inventory.clone()
    }

    /// Declares a cluster's shape; see `ApplyCluster`. The site is filled in.
    ///
    /// # Errors
    /// The scheduler's status.
    pub async fn apply(&self, request: ApplyClusterRequest) -> Result<Placement, Status> {
        let request = ApplyClusterRequest {
            site: self.site.clone(),
            ..request
        };
        let answer = self
            .placements
            .clone()
            .apply_cluster(timed(request))
            .await?
            .into_inner();
        answer
            .placement
            .ok_or_else(|| Status::internal("ApplyCluster answered without a placement"))
    }

    /// What a cluster holds; `None` when the ledger knows nothing of it.
    ///
    /// # Errors
    /// The scheduler's status, but for `NOT_FOUND`.
    pub async fn placement(
        &self,
        cluster: ClusterRef,
        at_least: Option<Revision>,
    ) -> Result<Option<Placement>, Status> {
        let request = GetPlacementRequest {
            site: self.site.clone(),
            cluster: Some(cluster),
            at_least,
        };
        match self.placements.clone().get_placement(timed(request)).await {
            Ok(answer) => Ok(answer.into_inner().placement),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// Begins to give a cluster's hosts back. `None`: nothing is held.
    ///
    /// # Errors
    /// The scheduler's status.
    pub async fn release(&self, cluster: ClusterRef) -> Result<Option<Placement>, Status> {
        let request = ReleaseClusterRequest {
            site: self.site.clone(),
            cluster: Some(cluster),
        };
        Ok(self
            .placements
            .clone()
            .release_cluster(timed(request))
            .await?
            .into_inner()
            .placement)
    }

    /// Confirms releases that are written to the API server. `None`: nothing is held any more.
    ///
    /// # Errors
    /// The scheduler's status.
    pub async fn confirm(
        &self,
        cluster: ClusterRef,
        released: Vec<ReleaseConfirmation>,
    ) -> Result<Option<Placement>, Status> {
        let request = ConfirmHostsRequest {
            site: self.site.clone(),
            cluster: Some(cluster),
            released,
        };
        Ok(self
            .placements
            .clone()
            .confirm_hosts(timed(request))
            .await?
            .into_inner()
            .placement)
    }

    /// Changes of this site's placements, for ever: a lost connection is made again, and resumes where it was.
    pub fn watch(&self) -> impl Stream<Item = Watched> + Send + use<> {
        let watch = Watch {
            scheduler: self.clone(),
            resume: None,
            events: None,
            pauses: pauses(),
        };
        futures::stream::unfold(watch, |mut watch| async move {
            let told = watch.next().await;
            Some((told, watch))
        })
    }
}

/// A request with a deadline, which the scheduler sees too.
fn timed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(DEADLINE);
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

struct Watch {
    scheduler: Scheduler,
    resume: Option<Revision>,
    events: Option<tonic::Streaming<WatchPlacementsResponse>>,
    pauses: backon::ExponentialBackoff,
}

impl Watch {
    async fn next(&mut self) -> Watched {
        loop {
            let events = match &mut self.events {
                Some(events) => events,
                None => match self.connect().await {
                    Ok(events) => self.events.insert(events),
                    Err(status) => {
                        tokio::time::sleep(self.pauses.next().unwrap_or_default()).await;
                        return Watched::Disconnected(status);
                    }
                },
            };
            let lost = match events.next().await {
                Some(Ok(WatchPlacementsResponse { revision, event })) => {
                    self.resume = revision;
                    match event.and_then(watched) {
                        Some(watched) => {
                            if matches!(watched, Watched::Synced) {
                                self.pauses = pauses();
                            }
                            return watched;
                        }
                        None => continue,
                    }
                }
                Some(Err(status)) => status,
                None => Status::unavailable("the scheduler has ended the watch"),
            };
            self.events = None;
            tokio::time::sleep(self.pauses.next().unwrap_or_default()).await;
            return Watched::Disconnected(lost);
        }
    }

    async fn connect(&self) -> Result<tonic::Streaming<WatchPlacementsResponse>, Status> {
        let request = WatchPlacementsRequest {
            site: self.scheduler.site.clone(),
            resume: self.resume,
        };
        Ok(self
            .scheduler
            .placements
            .clone()
            .watch_placements(request)
            .await?
            .into_inner())
    }
}

fn watched(event: Event) -> Option<Watched> {
    match event {
        Event::Changed(placement) => placement.cluster.map(Watched::Changed),
        Event::Removed(removed) => removed.cluster.map(Watched::Changed),
        Event::Reset(_) => Some(Watched::Reset),
        Event::Synced(_) => Some(Watched::Synced),
    }
}

/// What a status says, for people: its message, with the violations of fields if it names any.
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
