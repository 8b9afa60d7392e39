//! `sip.placement.v1.PlacementService`.

use std::{collections::BTreeMap, pin::Pin, time::SystemTime};

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
    authorize::{Call, authorize},
    page, watch,
};
use crate::{
    answer, convert,
    error::{Error, Violation},
    ledger::Position,
    load,
    region::{Told, decisions},
    site::Apply,
    spec::Spec,
    term::Terms,
};

/// The service on a region, while there is a term.
#[derive(Clone, Debug)]
pub struct Placements {
    terms: Terms,
}

impl Placements {
    /// The service on whatever region there is.
    #[must_use]
    pub fn new(terms: Terms) -> Self {
        Self { terms }
    }

    async fn apply(&self, request: ApplyClusterRequest, caller: &str) -> Result<ApplyClusterResponse, Error> {
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
        let told = self.terms.region()?.apply(&site, apply, caller).await?;
        Ok(ApplyClusterResponse {
            placement: self::placement(&site, &told),
        })
    }

    fn plan(&self, request: PlanClusterRequest) -> Result<PlanClusterResponse, Error> {
        let PlanClusterRequest { site, cluster, spec } = request;
        let cluster = convert::cluster(cluster.as_ref(), "cluster")?;
        let shared = self.terms.region()?.site(&site)?;
        let site = shared.read();
        site.require_synced()?;
        let spec = match spec {
            Some(spec) => self::spec(Some(spec))?,
            None => match site.record(&cluster) {
                Some(record) => record.spec.clone(),
                None => return Err(invalid("spec", format!("is missing, and {cluster} is not known"))),
            },
        };
        Ok(answer::plan(&site.plan(&cluster, spec, SystemTime::now())))
    }

    async fn get(&self, request: GetPlacementRequest) -> Result<GetPlacementResponse, Error> {
        let GetPlacementRequest {
            site,
            cluster,
            at_least,
        } = request;
        let name = convert::cluster(cluster.as_ref(), "cluster")?;
        let uid = cluster.map(|cluster| cluster.uid).unwrap_or_default();
        let at_least = at_least.map(position);
        let told = self
            .terms
            .durable()?
            .placement(&site, &name, &uid, at_least)
            .await?;
        Ok(GetPlacementResponse {
            placement: self::placement(&site, &told),
        })
    }

    async fn list(&self, request: ListPlacementsRequest) -> Result<ListPlacementsResponse, Error> {
        let ListPlacementsRequest {
            site,
            namespace,
            page_size,
            page_token,
        } = request;
        let size = page::size(page_size)?;
        let after = match page::parse::<3>(&page_token)? {
            Some([site, namespace, name]) => Some((site, cluster_name(&namespace, &name)?)),
            None => None,
        };
        let mut found = Vec::new();
        let region = self.terms.durable()?;
        for (name, shared) in region.sites() {
            let wanted = site.is_empty() || site == name;
            if !wanted || after.as_ref().is_some_and(|(after, _)| name < *after) {
                continue;
            }
            let lower = after
                .as_ref()
                .filter(|(after, _)| *after == name)
                .map(|(_, cluster)| cluster.clone());
            let from = lower.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
            let locked = shared.read();
            let records = locked
                .records()
                .range((from, std::ops::Bound::Unbounded))
                .map(|(_, record)| record);
            let in_namespace = records
                .filter(|record| namespace.is_empty() || record.cluster.namespace().as_str() == namespace);
            let room = size + 1 - found.len();
            found.extend(
                in_namespace
                    .take(room)
                    .map(|record| (name.clone(), record.clone())),
            );
            if found.len() > size {
                break;
            }
        }
        let more = found.len() > size;
        found.truncate(size);
        let next_page_token = match found.last() {
            Some((site, last)) if more => {
                page::token(&[site, last.cluster.namespace().as_str(), last.cluster.name()])
            }
            _ => String::new(),
        };
        // Of all that is staged: what is not found may be gone only since a change that is not durable yet.
        let newest = region.committer().staged().revision;
        let epoch = region.committer().durable(newest).await?.epoch;
        let placements = found
            .iter()
            .map(|(site, record)| convert::placement(site, epoch, record))
            .collect();
        Ok(ListPlacementsResponse {
            placements,
            next_page_token,
        })
    }

    async fn release(
        &self,
        request: ReleaseClusterRequest,
        caller: &str,
    ) -> Result<ReleaseClusterResponse, Error> {
        let ReleaseClusterRequest { site, cluster } = request;
        let name = convert::cluster(cluster.as_ref(), "cluster")?;
        let uid = convert::uid(cluster.as_ref())?;
        let told = self.terms.region()?.release(&site, &name, &uid, caller).await?;
        Ok(ReleaseClusterResponse {
            placement: self::placement(&site, &told),
        })
    }

    async fn confirm(
        &self,
        request: ConfirmHostsRequest,
        caller: &str,
    ) -> Result<ConfirmHostsResponse, Error> {
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
        let told = self
            .terms
            .region()?
            .confirm(&site, &name, &uid, &confirmed, caller)
            .await?;
        Ok(ConfirmHostsResponse {
            placement: self::placement(&site, &told),
        })
    }

    async fn log(&self, request: ListDecisionsRequest) -> Result<ListDecisionsResponse, Error> {
        let ListDecisionsRequest {
            site,
            cluster,
            page_size,
            page_token,
        } = request;
        let size = page::size(page_size)?;
        let before = match page::parse::<1>(&page_token)? {
            Some([revision]) => revision
                .parse()
                .map_err(|_| invalid("page_token", "is not a token of this method's".to_owned()))?,
            None => u64::MAX,
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
        let mut found = decisions(self.terms.ledger()?, before, size + 1, wanted).await?;
        let more = found.len() > size;
        found.truncate(size);
        let last = found
            .last()
            .and_then(|decision| decision.revision)
            .map(|position| position.revision.to_string());
        let next_page_token = last
            .filter(|_| more)
            .map(|last| page::token(&[&last]))
            .unwrap_or_default();
        Ok(ListDecisionsResponse {
            decisions: found,
            next_page_token,
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
    Spec::parse(wire, "spec").map_err(Error::Invalid)
}

fn cluster_name(namespace: &str, name: &str) -> Result<ClusterName, Error> {
    ClusterName::new(namespace, name)
        .map_err(|_| invalid("page_token", "is not a token of this method's".to_owned()))
}

fn placement(site: &str, told: &Told) -> Option<api::Placement> {
    told.record
        .as_ref()
        .map(|record| convert::placement(site, told.epoch, record))
}

pub(super) fn position(inventory::Revision { epoch, revision }: inventory::Revision) -> Position {
    Position { epoch, revision }
}

fn one_site(site: &str) -> Option<&str> {
    (!site.is_empty()).then_some(site)
}

#[tonic::async_trait]
impl PlacementService for Placements {
    type WatchPlacementsStream = Pin<Box<dyn Stream<Item = Result<WatchPlacementsResponse, Status>> + Send>>;

    async fn apply_cluster(
        &self,
        request: Request<ApplyClusterRequest>,
    ) -> Result<Response<ApplyClusterResponse>, Status> {
        let caller = authorize(
            request.extensions(),
            Call::ApplyCluster,
            Some(&request.get_ref().site),
        )?;
        Ok(Response::new(self.apply(request.into_inner(), &caller).await?))
    }

    async fn plan_cluster(
        &self,
        request: Request<PlanClusterRequest>,
    ) -> Result<Response<PlanClusterResponse>, Status> {
        authorize(
            request.extensions(),
            Call::PlanCluster,
            Some(&request.get_ref().site),
        )?;
        Ok(Response::new(self.plan(request.into_inner())?))
    }

    async fn get_placement(
        &self,
        request: Request<GetPlacementRequest>,
    ) -> Result<Response<GetPlacementResponse>, Status> {
        authorize(
            request.extensions(),
            Call::GetPlacement,
            Some(&request.get_ref().site),
        )?;
        Ok(Response::new(self.get(request.into_inner()).await?))
    }

    async fn list_placements(
        &self,
        request: Request<ListPlacementsRequest>,
    ) -> Result<Response<ListPlacementsResponse>, Status> {
        authorize(
            request.extensions(),
            Call::ListPlacements,
            one_site(&request.get_ref().site),
        )?;
        Ok(Response::new(self.list(request.into_inner()).await?))
    }

    async fn watch_placements(
        &self,
        request: Request<WatchPlacementsRequest>,
    ) -> Result<Response<Self::WatchPlacementsStream>, Status> {
        authorize(
            request.extensions(),
            Call::WatchPlacements,
            Some(&request.get_ref().site),
        )?;
        let WatchPlacementsRequest { site, resume } = request.into_inner();
        let events = watch::stream(&self.terms.durable()?, &site, resume.map(position))?;
        Ok(Response::new(Box::pin(load::contained(events))))
    }

    async fn release_cluster(
        &self,
        request: Request<ReleaseClusterRequest>,
    ) -> Result<Response<ReleaseClusterResponse>, Status> {
        let caller = authorize(
            request.extensions(),
            Call::ReleaseCluster,
            Some(&request.get_ref().site),
        )?;
        Ok(Response::new(self.release(request.into_inner(), &caller).await?))
    }

    async fn confirm_hosts(
        &self,
        request: Request<ConfirmHostsRequest>,
    ) -> Result<Response<ConfirmHostsResponse>, Status> {
        let caller = authorize(
            request.extensions(),
            Call::ConfirmHosts,
            Some(&request.get_ref().site),
        )?;
        Ok(Response::new(self.confirm(request.into_inner(), &caller).await?))
    }

    async fn release_orphan(
        &self,
        request: Request<ReleaseOrphanRequest>,
    ) -> Result<Response<ReleaseOrphanResponse>, Status> {
        let caller = authorize(
            request.extensions(),
            Call::ReleaseOrphan,
            Some(&request.get_ref().site),
        )?;
        let ReleaseOrphanRequest { site, host } = request.into_inner();
        let host = convert::host_id(&host.unwrap_or_default())
            .map_err(|error| invalid("host", error.to_string()))?;
        let told = self.terms.region()?.release_orphan(&site, &host, &caller).await?;
        Ok(Response::new(ReleaseOrphanResponse {
            placement: self::placement(&site, &told),
        }))
    }

    async fn list_decisions(
        &self,
        request: Request<ListDecisionsRequest>,
    ) -> Result<Response<ListDecisionsResponse>, Status> {
        authorize(
            request.extensions(),
            Call::ListDecisions,
            one_site(&request.get_ref().site),
        )?;
        Ok(Response::new(self.log(request.into_inner()).await?))
    }
}
