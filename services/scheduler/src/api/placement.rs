//! `sip.placement.v1.PlacementService`.

use std::{
    collections::BTreeMap,
    pin::Pin,
    time::{Duration, SystemTime},
};

use ::placement::{ClusterName, HostId};
use futures::Stream;
use proto::{
    inventory::v1 as inventory,
    placement::v1::{
        self as api, ApplyClusterRequest, ApplyClusterResponse, ConfirmHostsRequest, ConfirmHostsResponse,
        GetPlacementRequest, GetPlacementResponse, ListDecisionsRequest, ListDecisionsResponse,
        ListPlacementsRequest, ListPlacementsResponse, PlanClusterRequest, PlanClusterResponse,
        ReleaseClusterRequest, ReleaseClusterResponse, ReleaseOrphanRequest, ReleaseOrphanResponse,
        WatchPlacementsRequest, WatchPlacementsResponse, placement_service_server::PlacementService,
    },
};
use tonic::{Request, Response, Status};

use super::{
    authorizer::{Authorized, Authorizer},
    listed, log,
    page::{self, Listing},
    watch,
};
use crate::{
    call_rules::Call,
    convert,
    error::Error,
    ledger::{Commit, Page},
    load,
    region::{DurablePlacement, Region},
    site::{Apply, Site},
    spec::Spec,
    term::Terms,
    violation::Violation,
};

/// The service on a region, while there is a term.
#[derive(Clone, Debug)]
pub struct Placements {
    authorizer: Authorizer,
}

impl Placements {
    /// The service on whatever region there is.
    #[must_use]
    pub fn new(terms: Terms) -> Self {
        Self {
            authorizer: Authorizer::new(terms),
        }
    }

    async fn apply(authorized: Authorized<ApplyClusterRequest>) -> Result<ApplyClusterResponse, Error> {
        let (request, caller, terms) = authorized.into_parts();
        let ApplyClusterRequest {
            site,
            cluster,
            generation,
            created,
            spec,
        } = request;
        let apply = Apply {
            cluster: convert::cluster(cluster.as_ref(), "cluster")?,
            uid: convert::uid(cluster.as_ref())?,
            generation,
            created: convert::time(created),
            spec: self::spec(spec)?,
        };
        let region = terms.region()?;
        let durable = region.apply(&site, apply, &caller).await?;
        Ok(ApplyClusterResponse {
            placement: changed(&region, &caller, site, durable).await?,
        })
    }

    async fn plan(authorized: Authorized<Plan>) -> Result<PlanClusterResponse, Error> {
        let (request, caller, terms) = authorized.into_parts();
        let Plan { site, cluster, spec } = request;
        let region = terms.region()?;
        let shared = region.site(&site)?;
        // It may take long, so the site is not locked meanwhile.
        let ask = {
            let region = region.clone();
            move |site: &Site| {
                site.require_synced()?;
                let spec = match (spec, site.record(&cluster)) {
                    (Some(spec), _) => spec,
                    (None, Some(record)) => record.spec.clone(),
                    (None, None) => {
                        return Err(invalid("spec", format!("is missing, and {cluster} is not known")));
                    }
                };
                Ok((
                    site.decision_input(&cluster, spec, SystemTime::now())?,
                    region.state(site),
                ))
            }
        };
        // One caller has one copy of a site at once, however many plans it asks for. The call's own deadline bounds how long it waits.
        let read = region.read_copying(&caller, &shared, Duration::MAX, ask).await?;
        let (asked, copy) = read.ok_or(Error::TooLate { maybe: false })?;
        let (input, state) = asked?;
        let metrics = region.committer().metrics().clone();
        let plan = move || {
            let decision = metrics.decide("plan", || input.decide());
            drop(input);
            convert::plan(&decision, state)
        };
        let (plan, _) = region.compute_copy(copy, plan).await?;
        Ok(plan)
    }

    async fn get(authorized: Authorized<GetPlacementRequest>) -> Result<GetPlacementResponse, Error> {
        let (request, caller, terms) = authorized.into_parts();
        let GetPlacementRequest {
            site,
            cluster,
            at_least,
        } = request;
        let name = convert::cluster(cluster.as_ref(), "cluster")?;
        let uid = cluster.map(|cluster| cluster.uid).unwrap_or_default();
        let at_least = at_least.map(Into::into);
        let region = terms.durable()?;
        let (durable, state) = region.placement(&site, &name, &uid, at_least).await?;
        let placement = match answer(site, durable) {
            Some((members, placement)) => Some(region.answers().for_read(&caller, members, placement).await?),
            None => None,
        };
        Ok(GetPlacementResponse {
            placement,
            site_state: Some(state.into()),
        })
    }

    async fn list(authorized: Authorized<ListPlacementsRequest>) -> Result<ListPlacementsResponse, Error> {
        let (request, caller, terms) = authorized.into_parts();
        let ListPlacementsRequest {
            site,
            namespace,
            page_size,
            page_token,
        } = request;
        let size = page::size(page_size)?;
        let listing = Listing::new(
            Call::ListPlacements,
            &ListPlacementsRequest {
                site: site.clone(),
                namespace: namespace.clone(),
                page_size: 0,
                page_token: String::new(),
            },
        );
        let after = match listing.parse::<3>(&page_token)? {
            Some([site, namespace, name]) => {
                let cluster = ClusterName::new(&namespace, name).map_err(|_| listing.foreign())?;
                Some((site, cluster))
            }
            None => None,
        };
        let region = terms.durable()?;
        let wanted = listed::Wanted {
            site,
            namespace,
            after,
        };
        let found = listed::read(&region, &caller, &wanted, size).await?;
        // Of all that is staged: what is not found may be gone only since a change that is not durable yet.
        let newest = region.committer().staged();
        region.committer().durable(newest).await?;
        found.require_kept()?;
        region.compute(&caller, move || found.page(&listing, size)).await
    }

    async fn release(authorized: Authorized<ReleaseClusterRequest>) -> Result<ReleaseClusterResponse, Error> {
        let (request, caller, terms) = authorized.into_parts();
        let ReleaseClusterRequest { site, cluster } = request;
        let name = convert::cluster(cluster.as_ref(), "cluster")?;
        let uid = convert::uid(cluster.as_ref())?;
        let region = terms.region()?;
        let durable = region.release(&site, &name, &uid, &caller).await?;
        Ok(ReleaseClusterResponse {
            placement: changed(&region, &caller, site, durable).await?,
        })
    }

    async fn confirm(authorized: Authorized<ConfirmHostsRequest>) -> Result<ConfirmHostsResponse, Error> {
        let (request, caller, terms) = authorized.into_parts();
        let ConfirmHostsRequest {
            site,
            cluster,
            released,
        } = request;
        let name = convert::cluster(cluster.as_ref(), "cluster")?;
        let uid = convert::uid(cluster.as_ref())?;
        let mut confirmed: BTreeMap<HostId, u64> = BTreeMap::new();
        for (index, api::ReleaseConfirmation { host, revision }) in released.into_iter().enumerate() {
            let id = convert::host_id(&host.unwrap_or_default())
                .map_err(|error| invalid(&format!("released[{index}].host"), error.to_string()))?;
            confirmed.insert(id, revision);
        }
        let region = terms.region()?;
        let durable = region.confirm(&site, &name, &uid, &confirmed, &caller).await?;
        Ok(ConfirmHostsResponse {
            placement: changed(&region, &caller, site, durable).await?,
        })
    }

    async fn release_orphan(
        authorized: Authorized<ReleaseOrphanRequest>,
    ) -> Result<ReleaseOrphanResponse, Error> {
        let (request, caller, terms) = authorized.into_parts();
        let ReleaseOrphanRequest { site, host } = request;
        let host = convert::host_id(&host.unwrap_or_default())
            .map_err(|error| invalid("host", error.to_string()))?;
        let region = terms.region()?;
        let durable = region.release_orphan(&site, &host, &caller).await?;
        Ok(ReleaseOrphanResponse {
            placement: changed(&region, &caller, site, durable).await?,
        })
    }

    async fn log(authorized: Authorized<ListDecisionsRequest>) -> Result<ListDecisionsResponse, Error> {
        let (request, caller, terms) = authorized.into_parts();
        let ListDecisionsRequest {
            site,
            cluster,
            page_size,
            page_token,
        } = request;
        let size = page::size(page_size)?;
        let listing = Listing::new(
            Call::ListDecisions,
            &ListDecisionsRequest {
                site: site.clone(),
                cluster: cluster.clone(),
                page_size: 0,
                page_token: String::new(),
            },
        );
        let before = match listing.parse::<1>(&page_token)? {
            Some([commit]) => commit.parse().map(Commit::new).map_err(|_| listing.foreign())?,
            None => Commit::MAX,
        };
        let wanted = move |decision: &api::Decision| {
            (site.is_empty() || decision.site == site)
                && cluster.as_ref().is_none_or(|cluster| {
                    decision
                        .cluster
                        .as_ref()
                        .is_some_and(|found| same_cluster(cluster, found))
                })
        };
        let Page { mut decisions, next } = log::read(&terms, &caller, before, size + 1, wanted).await?;
        // Either there is one more than the page holds, or what was read is so much that the caller had better ask again.
        let more = decisions.len() > size;
        decisions.truncate(size);
        let next = if more {
            decisions.last().map(|decision| Commit::new(decision.commit))
        } else {
            next
        };
        let next_page_token = next
            .map(|next| listing.token(&[&next.to_string()]))
            .unwrap_or_default();
        Ok(ListDecisionsResponse {
            decisions,
            next_page_token,
        })
    }
}

/// A `PlanCluster`, parsed.
struct Plan {
    site: String,
    cluster: ClusterName,
    spec: Option<Spec>,
}

impl Plan {
    fn parse(request: PlanClusterRequest) -> Result<Self, Error> {
        let PlanClusterRequest { site, cluster, spec } = request;
        Ok(Self {
            site,
            cluster: convert::cluster(cluster.as_ref(), "cluster")?,
            spec: spec.map(|spec| self::spec(Some(spec))).transpose()?,
        })
    }
}

fn same_cluster(asked: &inventory::ClusterRef, found: &inventory::ClusterRef) -> bool {
    asked.namespace == found.namespace
        && asked.name == found.name
        && (asked.uid.is_empty() || asked.uid == found.uid)
}

fn invalid(field: &str, rule: String) -> Error {
    Error::Invalid(vec![Violation {
        field: field.to_owned(),
        rule,
    }])
}

fn spec(wire: Option<inventory::ClusterSpec>) -> Result<Spec, Error> {
    let wire = wire.ok_or_else(|| invalid("spec", "is missing".to_owned()))?;
    convert::declared_spec(wire, "spec").map_err(Error::Invalid)
}

/// How many members the placement in an answer has, and what converts it.
fn answer(
    site: String,
    durable: DurablePlacement,
) -> Option<(usize, impl FnOnce() -> api::Placement + Send + 'static)> {
    let DurablePlacement { record, epoch } = durable;
    let record = record?;
    let members = record.members.len();
    Some((members, move || convert::placement(&site, epoch, &record)))
}

/// The placement in the answer to a change.
async fn changed(
    region: &Region,
    caller: &str,
    site: String,
    durable: DurablePlacement,
) -> Result<Option<api::Placement>, Error> {
    match answer(site, durable) {
        Some((members, placement)) => {
            let placement = region.answers().for_change(caller, members, placement);
            placement.await.map(Some)
        }
        None => Ok(None),
    }
}

#[tonic::async_trait]
impl PlacementService for Placements {
    type WatchPlacementsStream = Pin<Box<dyn Stream<Item = Result<WatchPlacementsResponse, Status>> + Send>>;

    async fn apply_cluster(
        &self,
        request: Request<ApplyClusterRequest>,
    ) -> Result<Response<ApplyClusterResponse>, Status> {
        Ok(Response::new(
            Self::apply(self.authorizer.authorize(request)?).await?,
        ))
    }

    async fn plan_cluster(
        &self,
        request: Request<PlanClusterRequest>,
    ) -> Result<Response<PlanClusterResponse>, Status> {
        let authorized = self.authorizer.authorize(request)?.parsed(Plan::parse)?;
        Ok(Response::new(Self::plan(authorized).await?))
    }

    async fn get_placement(
        &self,
        request: Request<GetPlacementRequest>,
    ) -> Result<Response<GetPlacementResponse>, Status> {
        Ok(Response::new(
            Self::get(self.authorizer.authorize(request)?).await?,
        ))
    }

    async fn list_placements(
        &self,
        request: Request<ListPlacementsRequest>,
    ) -> Result<Response<ListPlacementsResponse>, Status> {
        Ok(Response::new(
            Self::list(self.authorizer.authorize(request)?).await?,
        ))
    }

    async fn watch_placements(
        &self,
        request: Request<WatchPlacementsRequest>,
    ) -> Result<Response<Self::WatchPlacementsStream>, Status> {
        let (request, caller, terms) = self.authorizer.authorize(request)?.into_parts();
        let WatchPlacementsRequest { site, resume } = request;
        let events = watch::stream(&terms.durable()?, &caller, &site, resume.map(Into::into))?;
        Ok(Response::new(Box::pin(load::contained(events))))
    }

    async fn release_cluster(
        &self,
        request: Request<ReleaseClusterRequest>,
    ) -> Result<Response<ReleaseClusterResponse>, Status> {
        Ok(Response::new(
            Self::release(self.authorizer.authorize(request)?).await?,
        ))
    }

    async fn confirm_hosts(
        &self,
        request: Request<ConfirmHostsRequest>,
    ) -> Result<Response<ConfirmHostsResponse>, Status> {
        Ok(Response::new(
            Self::confirm(self.authorizer.authorize(request)?).await?,
        ))
    }

    async fn release_orphan(
        &self,
        request: Request<ReleaseOrphanRequest>,
    ) -> Result<Response<ReleaseOrphanResponse>, Status> {
        Ok(Response::new(
            Self::release_orphan(self.authorizer.authorize(request)?).await?,
        ))
    }

    async fn list_decisions(
        &self,
        request: Request<ListDecisionsRequest>,
    ) -> Result<Response<ListDecisionsResponse>, Status> {
        Ok(Response::new(
            Self::log(self.authorizer.authorize(request)?).await?,
        ))
    }
}

#[cfg(test)]
mod tests;
