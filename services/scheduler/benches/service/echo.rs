//! A bare service that answers with the same bytes each time.

use std::pin::Pin;

use futures::Stream;
use proto::placement::v1::{
    ApplyClusterRequest, ApplyClusterResponse, ConfirmHostsRequest, ConfirmHostsResponse,
    GetPlacementRequest, GetPlacementResponse, ListDecisionsRequest, ListDecisionsResponse,
    ListPlacementsRequest, ListPlacementsResponse, PlanClusterRequest, PlanClusterResponse,
    ReleaseClusterRequest, ReleaseClusterResponse, ReleaseOrphanRequest, ReleaseOrphanResponse,
    WatchPlacementsRequest, WatchPlacementsResponse, placement_service_server::PlacementService,
};
use tonic::{Request, Response, Status};

/// `PlanCluster` answers with this; nothing else is there.
pub(crate) struct Echo(pub(crate) PlanClusterResponse);

type Answer<T> = Result<Response<T>, Status>;

fn no<T>() -> Answer<T> {
    Err(Status::unimplemented("an echo"))
}

#[tonic::async_trait]
impl PlacementService for Echo {
    type WatchPlacementsStream = Pin<Box<dyn Stream<Item = Result<WatchPlacementsResponse, Status>> + Send>>;

    async fn plan_cluster(&self, request: Request<PlanClusterRequest>) -> Answer<PlanClusterResponse> {
        drop(request);
        Ok(Response::new(self.0.clone()))
    }

    async fn apply_cluster(&self, _: Request<ApplyClusterRequest>) -> Answer<ApplyClusterResponse> {
        no()
    }

    async fn get_placement(&self, _: Request<GetPlacementRequest>) -> Answer<GetPlacementResponse> {
        no()
    }

    async fn list_placements(&self, _: Request<ListPlacementsRequest>) -> Answer<ListPlacementsResponse> {
        no()
    }

    async fn watch_placements(
        &self,
        _: Request<WatchPlacementsRequest>,
    ) -> Answer<Self::WatchPlacementsStream> {
        no()
    }

    async fn release_cluster(&self, _: Request<ReleaseClusterRequest>) -> Answer<ReleaseClusterResponse> {
        no()
    }

    async fn confirm_hosts(&self, _: Request<ConfirmHostsRequest>) -> Answer<ConfirmHostsResponse> {
        no()
    }

    async fn release_orphan(&self, _: Request<ReleaseOrphanRequest>) -> Answer<ReleaseOrphanResponse> {
        no()
    }

    async fn list_decisions(&self, _: Request<ListDecisionsRequest>) -> Answer<ListDecisionsResponse> {
        no()
    }
}
