//! `sip.inventory.v1.InventoryService`.

use std::{ops::Bound, pin::Pin};

use ::placement::HostName;
use futures::Stream;
use proto::inventory::v1::{
    self as wire, ExplainHostRequest, ExplainHostResponse, FindCapacityRequest, FindCapacityResponse,
    GetHostRequest, GetHostResponse, ListHostsRequest, ListHostsResponse, ListSitesRequest,
    ListSitesResponse, RepairSiteRequest, RepairSiteResponse, ReportHostsRequest, ReportHostsResponse,
    ResetSiteFenceRequest, ResetSiteFenceResponse, inventory_service_server::InventoryService,
};
use tonic::{Request, Response, Status, Streaming};

use super::{
    authorizer::{Authorized, Authorizer},
    capacity::{self, Question},
    explain::{self, Explain},
    hosts::{Walk, Walked, host_record},
    page::{self, Listing},
    reports,
};
use crate::{
    call_rules::Call,
    convert,
    error::Error,
    ledger::Fence,
    load,
    region::{Region, SharedSite},
    site::{Repaired, Site, Summary},
    term::Terms,
    violation::Violation,
};

/// The service on a region, while there is a term.
#[derive(Clone, Debug)]
pub struct Inventory {
    authorizer: Authorizer,
}

impl Inventory {
    /// The service on whatever region there is.
    #[must_use]
    pub fn new(terms: Terms) -> Self {
        Self {
            authorizer: Authorizer::new(terms),
        }
    }

    async fn list(authorized: Authorized<ListHostsRequest>) -> Result<ListHostsResponse, Error> {
        let (request, caller, terms) = authorized.into_parts();
        let ListHostsRequest {
            site,
            label_selector,
            page_size,
            page_token,
        } = request;
        let size = page::size(page_size)?;
        let listing = Listing::new(
            Call::ListHosts,
            &ListHostsRequest {
                site: site.clone(),
                label_selector: label_selector.clone(),
                page_size: 0,
                page_token: String::new(),
            },
        );
        let mut violations = Vec::new();
        let selector =
            label_selector.and_then(|wire| convert::parse_selector(&wire, "label_selector", &mut violations));
        if !violations.is_empty() {
            return Err(Error::Invalid(violations));
        }
        let from = match listing.parse::<2>(&page_token)? {
            Some([namespace, name]) => Bound::Excluded(host_name(&namespace, &name, "page_token")?),
            None => Bound::Unbounded,
        };
        let region = terms.region()?;
        let shared = region.site(&site)?;
        let mut walk = Walk::new(from, selector, size);
        let (page, state) = loop {
            let region_of_slice = region.clone();
            let slice = move |site: &Site| (walk.advance(site), region_of_slice.state(site));
            match region.read(&caller, &shared, slice).await? {
                (Walked::More(more), _) => walk = more,
                (Walked::All(page), state) => break (page, state),
            }
        };
        let page::Entries { entries, next } = page;
        let next_page_token = next.map_or_else(String::new, |last| {
            listing.token(&[last.namespace().as_str(), last.name()])
        });
        Ok(ListHostsResponse {
            hosts: entries,
            next_page_token,
            site_state: Some(state.into()),
        })
    }

    fn sites(authorized: Authorized<ListSitesRequest>) -> Result<ListSitesResponse, Error> {
        let (request, _, terms) = authorized.into_parts();
        let ListSitesRequest {
            page_size,
            page_token,
        } = request;
        let size = page::size(page_size)?;
        let listing = Listing::new(Call::ListSites, &ListSitesRequest::default());
        let from = match listing.parse::<1>(&page_token)? {
            Some([name]) => Bound::Excluded(name),
            None => Bound::Unbounded,
        };
        let region = terms.durable()?;
        let sites = region.sites();
        let mut found: Vec<_> = sites.range((from, Bound::Unbounded)).take(size + 1).collect();
        let more = found.len() > size;
        found.truncate(size);
        let next_page_token = match found.last() {
            Some((name, _)) if more => listing.token(&[name]),
            _ => String::new(),
        };
        Ok(ListSitesResponse {
            sites: found
                .iter()
                .map(|(name, site)| summary(&region, name, site))
                .collect(),
            next_page_token,
        })
    }

    async fn capacity(authorized: Authorized<FindCapacityRequest>) -> Result<FindCapacityResponse, Error> {
        let (request, caller, terms) = authorized.into_parts();
        let question = Question::parse(request)?;
        capacity::find(&terms.region()?, &caller, question).await
    }

    async fn get(authorized: Authorized<GetHostRequest>) -> Result<GetHostResponse, Error> {
        let (request, _, terms) = authorized.into_parts();
        let name = host_name(&request.namespace, &request.name, "name")?;
        let region = terms.region()?;
        let shared = region.site(&request.site)?;
        let site = shared.reading().await;
        let host = host_record(&site, &name).ok_or_else(|| not_found(&name, site.name()))?;
        Ok(GetHostResponse {
            host: Some(host),
            site_state: Some(region.state(&site).into()),
        })
    }
}

fn summary(region: &Region, name: &str, site: &SharedSite) -> wire::Site {
    let Summary {
        synced,
        hosts,
        held_hosts,
        clusters,
        last_report,
        inventory_bytes: _,
        record_bytes: _,
        left_out: _,
    } = site.summary();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    wire::Site {
        name: name.to_owned(),
        synced,
        hosts: count(hosts),
        held_hosts: count(held_hosts),
        clusters: count(clusters),
        last_report: last_report.map(Into::into),
        revision: Some(site.position(region.committer().last_durable()).into()),
    }
}

pub(super) fn invalid(field: &str, rule: impl std::fmt::Display) -> Error {
    Error::Invalid(vec![Violation::new(field, rule)])
}

pub(super) fn host_name(namespace: &str, name: &str, field: &str) -> Result<HostName, Error> {
    HostName::new(namespace, name).map_err(|error| invalid(field, error))
}

pub(super) fn not_found(host: &HostName, site: &str) -> Error {
    Error::NotFound {
        what: format!("host {host} in site {site:?}"),
    }
}

#[tonic::async_trait]
impl InventoryService for Inventory {
    type ReportHostsStream = Pin<Box<dyn Stream<Item = Result<ReportHostsResponse, Status>> + Send>>;

    async fn report_hosts(
        &self,
        request: Request<Streaming<ReportHostsRequest>>,
    ) -> Result<Response<Self::ReportHostsStream>, Status> {
        let (hello, requests) = self.authorizer.authorize_reports(request).await?;
        let answers = reports::stream(hello, requests).await?;
        Ok(Response::new(Box::pin(load::contained(answers))))
    }

    async fn list_hosts(
        &self,
        request: Request<ListHostsRequest>,
    ) -> Result<Response<ListHostsResponse>, Status> {
        let authorized = self.authorizer.authorize(request)?;
        Ok(Response::new(Self::list(authorized).await?))
    }

    async fn get_host(&self, request: Request<GetHostRequest>) -> Result<Response<GetHostResponse>, Status> {
        Ok(Response::new(
            Self::get(self.authorizer.authorize(request)?).await?,
        ))
    }

    async fn list_sites(
        &self,
        request: Request<ListSitesRequest>,
    ) -> Result<Response<ListSitesResponse>, Status> {
        Ok(Response::new(Self::sites(self.authorizer.authorize(request)?)?))
    }

    async fn find_capacity(
        &self,
        request: Request<FindCapacityRequest>,
    ) -> Result<Response<FindCapacityResponse>, Status> {
        let authorized = self.authorizer.authorize(request)?;
        Ok(Response::new(Self::capacity(authorized).await?))
    }

    async fn explain_host(
        &self,
        request: Request<ExplainHostRequest>,
    ) -> Result<Response<ExplainHostResponse>, Status> {
        let authorized = self.authorizer.authorize(request)?.parsed(Explain::parse)?;
        Ok(Response::new(explain::answer(authorized).await?))
    }

    async fn reset_site_fence(
        &self,
        request: Request<ResetSiteFenceRequest>,
    ) -> Result<Response<ResetSiteFenceResponse>, Status> {
        let (request, caller, terms) = self.authorizer.authorize(request)?.into_parts();
        let fence = terms.region()?.reset_fence(&request.site, &caller).await?;
        let (lease_uid, lease_transitions) = fence
            .map(|Fence { lease, transitions }| (lease, transitions))
            .unwrap_or_default();
        Ok(Response::new(ResetSiteFenceResponse {
            lease_uid,
            lease_transitions,
        }))
    }

    async fn repair_site(
        &self,
        request: Request<RepairSiteRequest>,
    ) -> Result<Response<RepairSiteResponse>, Status> {
        let (request, caller, terms) = self.authorizer.authorize(request)?.into_parts();
        let RepairSiteRequest { site, dry_run } = request;
        let repaired = terms.region()?.repair(&site, dry_run, &caller).await?;
        let Repaired {
            before,
            after,
            faults,
            commit: _,
        } = repaired;
        Ok(Response::new(RepairSiteResponse {
            before: Some(before.into()),
            after: Some(after.into()),
            faults: faults.iter().map(reports::fault).collect(),
        }))
    }
}
