//! The only way from a request to the region: through the authorization of its caller.
//!
//! A handler holds an [`Authorizer`], which exposes nothing of the region. For a request it returns an [`Authorized`]:
//! the message, its caller, and the terms. There is no other way to make one, so no handler can skip the authorization.

use std::time::Duration;

use proto::{
    inventory::v1::{
        ClusterRef, ExplainHostRequest, FindCapacityRequest, GetHostRequest, Hello, HostRef,
        ListHostsRequest, ListSitesRequest, RepairSiteRequest, ReportHostsRequest, ResetSiteFenceRequest,
        report_hosts_request::Message,
    },
    ledger::v1::ExportLedgerRequest,
    placement::v1::{
        ApplyClusterRequest, ConfirmHostsRequest, GetPlacementRequest, ListDecisionsRequest,
        ListPlacementsRequest, PlanClusterRequest, ReleaseClusterRequest, ReleaseOrphanRequest,
        WatchPlacementsRequest,
    },
};
use runtime::tls::Peer;
use tonic::{Extensions, Request, Status, Streaming};

use crate::{
    admission::{Trail, authorize_site},
    call_rules::Call,
    error::Error,
    term::Terms,
};

/// How long the Hello of a stream of reports, which names the site, may take to arrive.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// Gives the region to handlers, for requests whose callers are authorized.
#[derive(Clone, Debug)]
pub(super) struct Authorizer {
    terms: Terms,
}

/// A request whose caller is authorized to make it.
#[derive(Debug)]
pub(super) struct Authorized<T> {
    message: T,
    caller: String,
    terms: Terms,
}

impl<T> Authorized<T> {
    /// The request, parsed: what waits for a turn is valid, and no larger than it has to be.
    ///
    /// # Errors
    /// What `parse` returns.
    pub(super) fn parsed<U>(self, parse: impl FnOnce(T) -> Result<U, Error>) -> Result<Authorized<U>, Error> {
        let Self {
            message,
            caller,
            terms,
        } = self;
        Ok(Authorized {
            message: parse(message)?,
            caller,
            terms,
        })
    }

    /// The message, its caller as the audit log names it, and the terms that serve it.
    pub(super) fn into_parts(self) -> (T, String, Terms) {
        let Self {
            message,
            caller,
            terms,
        } = self;
        (message, caller, terms)
    }
}

/// A request message: its method, and the site and object that it is about.
pub(super) trait SiteRequest {
    /// The method.
    const CALL: Call;

    /// The site; `None`: all of them.
    fn site(&self) -> Option<&str>;

    /// The object in the site, for the audit log; empty for none.
    fn object(&self) -> String {
        String::new()
    }
}

impl Authorizer {
    pub(super) fn new(terms: Terms) -> Self {
        Self { terms }
    }

    /// A request of one message.
    ///
    /// # Errors
    /// When the caller may not make it.
    pub(super) fn authorize<T: SiteRequest>(&self, request: Request<T>) -> Result<Authorized<T>, Error> {
        let (_, extensions, message) = request.into_parts();
        self.check(&extensions, message)
    }

    /// Authorizes a stream of reports after its first message has named the site.
    ///
    /// # Errors
    /// When the first message does not come in time, is no Hello, or the caller may not report that site.
    pub(super) async fn authorize_reports(
        &self,
        request: Request<Streaming<ReportHostsRequest>>,
    ) -> Result<(Authorized<Hello>, Streaming<ReportHostsRequest>), Status> {
        let (_, extensions, mut requests) = request.into_parts();
        let first = tokio::time::timeout(HELLO_TIMEOUT, requests.message()).await;
        let first = first.map_err(|_| Error::TooSlow {
            within: HELLO_TIMEOUT,
        })??;
        let Some(ReportHostsRequest {
            sequence: 1,
            message: Some(Message::Hello(hello)),
        }) = first
        else {
            return Err(Error::Protocol("the first message must be a Hello with sequence 1").into());
        };
        Ok((self.check(&extensions, hello)?, requests))
    }

    fn check<T: SiteRequest>(&self, extensions: &Extensions, message: T) -> Result<Authorized<T>, Error> {
        let allowed = authorize_site(extensions.get::<Peer>(), T::CALL, message.site());
        // Others need no description: making one costs time.
        if (allowed.is_err() || T::CALL.descriptor().audited)
            && let Some(trail) = extensions.get::<Trail>()
        {
            let object = message.object();
            let site = message.site().unwrap_or("every site");
            trail.object(&if object.is_empty() {
                site.to_owned()
            } else {
                format!("{site}: {object}")
            });
        }
        Ok(Authorized {
            caller: allowed?,
            message,
            terms: self.terms.clone(),
        })
    }
}

fn cluster(cluster: Option<&ClusterRef>) -> String {
    cluster.map_or_else(String::new, |ClusterRef { namespace, name, uid }| {
        format!("cluster {namespace}/{name} {uid}")
    })
}

fn host(host: Option<&HostRef>) -> String {
    host.map_or_else(String::new, |HostRef { namespace, name, uid }| {
        format!("host {namespace}/{name} {uid}")
    })
}

fn named(site: &str) -> Option<&str> {
    (!site.is_empty()).then_some(site)
}

/// Messages that name a site, and an object in it.
macro_rules! site_requests {
    ($($message:ty => $call:ident $(, |$asked:ident| $object:expr)?;)+) => {$(
        impl SiteRequest for $message {
            const CALL: Call = Call::$call;

            fn site(&self) -> Option<&str> {
                Some(&self.site)
            }

            $(fn object(&self) -> String {
                let $asked = self;
                $object
            })?
        }
    )+};
}

site_requests! {
    ApplyClusterRequest => ApplyCluster, |asked| cluster(asked.cluster.as_ref());
    PlanClusterRequest => PlanCluster, |asked| cluster(asked.cluster.as_ref());
    GetPlacementRequest => GetPlacement, |asked| cluster(asked.cluster.as_ref());
    WatchPlacementsRequest => WatchPlacements;
    ReleaseClusterRequest => ReleaseCluster, |asked| cluster(asked.cluster.as_ref());
    ConfirmHostsRequest => ConfirmHosts, |asked| cluster(asked.cluster.as_ref());
    ReleaseOrphanRequest => ReleaseOrphan, |asked| host(asked.host.as_ref());
    Hello => ReportHosts, |asked| format!("Lease {} {}", asked.lease_uid, asked.lease_transitions);
    ListHostsRequest => ListHosts;
    GetHostRequest => GetHost, |asked| format!("host {}/{}", asked.namespace, asked.name);
    ExplainHostRequest => ExplainHost, |asked| format!("host {}/{}", asked.namespace, asked.name);
    ResetSiteFenceRequest => ResetSiteFence;
    RepairSiteRequest => RepairSite, |asked| if asked.dry_run { "dry run".to_owned() } else { String::new() };
}

/// Messages that may name a site, and are about all of them otherwise.
macro_rules! site_requests_or_all {
    ($($message:ty => $call:ident;)+) => {$(
        impl SiteRequest for $message {
            const CALL: Call = Call::$call;

            fn site(&self) -> Option<&str> {
                named(&self.site)
            }
        }
    )+};
}

site_requests_or_all! {
    ListPlacementsRequest => ListPlacements;
    ListDecisionsRequest => ListDecisions;
}

/// Messages that are about the region.
macro_rules! asks_about_the_region {
    ($($message:ty => $call:ident;)+) => {$(
        impl SiteRequest for $message {
            const CALL: Call = Call::$call;

            fn site(&self) -> Option<&str> {
                None
            }
        }
    )+};
}

asks_about_the_region! {
    ListSitesRequest => ListSites;
    FindCapacityRequest => FindCapacity;
    ExportLedgerRequest => ExportLedger;
}
