//! A bare service that answers with the same bytes each time, whatever it is asked.

use std::{pin::Pin, sync::Arc};

use futures::Stream;
use proto::placement::v1::{
    ApplyClusterRequest, ApplyClusterResponse, ConfirmHostsRequest, ConfirmHostsResponse,
    GetPlacementRequest, GetPlacementResponse, ListDecisionsRequest, ListDecisionsResponse,
    ListPlacementsRequest, ListPlacementsResponse, PlanClusterRequest, PlanClusterResponse,
    ReleaseClusterRequest, ReleaseClusterResponse, ReleaseOrphanRequest, ReleaseOrphanResponse,
    WatchPlacementsRequest, WatchPlacementsResponse, placement_service_server::PlacementService,
};
use tonic::{Request, Response, Status};

/// Only `PlanCluster` is there.
pub(crate) struct Echo {
    pub(crate) answer: PlanClusterResponse,
    /// What each call does first.
    pub(crate) work: Option<Arc<dyn Fn() + Send + Sync>>,
}

type Answer<T> = Result<Response<T>, Status>;

fn no<T>() -> Answer<T> {
    Err(Status::unimplemented("an echo"))
}

#[tonic::async_trait]
impl PlacementService for Echo {
    type WatchPlacementsStream = Pin<Box<dyn Stream<Item = Result<WatchPlacementsResponse, Status>> + Send>>;

    async fn plan_cluster(&self, request: Request<PlanClusterRequest>) -> Answer<PlanClusterResponse> {
        drop(request);
        if let Some(work) = &self.work {
            work();
        }
        Ok(Response::new(self.answer.clone()))
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
