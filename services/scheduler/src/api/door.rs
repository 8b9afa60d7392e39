//! The only way from a request to the region: through the authorization of its caller.
//!
//! A handler holds a [`Door`], which shows nothing of what is behind it. Against a request the door gives an [`Asked`]:
//! the message, who sent it, and the terms. There is no other way to make one, so no handler can forget to ask.

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
    call::Call,
    error::Error,
    term::Terms,
};

/// How long a stream of reports may take to say which site it is about.
const HELLO: Duration = Duration::from_secs(5);

/// What is behind it is for whoever may ask.
#[derive(Clone, Debug)]
pub(super) struct Door {
    terms: Terms,
}

/// A request whose caller may make it.
#[derive(Debug)]
pub(super) struct Asked<T> {
    message: T,
    caller: String,
    terms: Terms,
}

impl<T> Asked<T> {
    /// The message, its caller as the audit log names it, and what it may be asked of.
    pub(super) fn into_parts(self) -> (T, String, Terms) {
        let Self {
            message,
            caller,
            terms,
        } = self;
        (message, caller, terms)
    }
}

/// A message that asks something: of which method it is, and about what.
pub(super) trait Asks {
    /// The method.
    const CALL: Call;

    /// The site; `None`: all of them.
    fn site(&self) -> Option<&str>;

    /// The object in the site, for the audit log; empty for none.
    fn object(&self) -> String {
        String::new()
    }
}

impl Door {
    pub(super) fn new(terms: Terms) -> Self {
        Self { terms }
    }

    /// A request of one message.
    ///
    /// # Errors
    /// When the caller may not make it.
    pub(super) fn enter<T: Asks>(&self, request: Request<T>) -> Result<Asked<T>, Error> {
        let (_, extensions, message) = request.into_parts();
        self.let_in(&extensions, message)
    }

    /// A stream of reports, once it has said which site it is about.
    ///
    /// # Errors
    /// When the first message does not come in time, is no Hello, or the caller may not report that site.
    pub(super) async fn enter_reports(
        &self,
        request: Request<Streaming<ReportHostsRequest>>,
    ) -> Result<(Asked<Hello>, Streaming<ReportHostsRequest>), Status> {
        let (_, extensions, mut requests) = request.into_parts();
        let first = tokio::time::timeout(HELLO, requests.message()).await;
        let first = first.map_err(|_| Error::TooSlow { within: HELLO })??;
        let Some(ReportHostsRequest {
            sequence: 1,
            message: Some(Message::Hello(hello)),
        }) = first
        else {
            return Err(Error::Protocol("the first message must be a Hello with sequence 1").into());
        };
        Ok((self.let_in(&extensions, hello)?, requests))
    }

    fn let_in<T: Asks>(&self, extensions: &Extensions, message: T) -> Result<Asked<T>, Error> {
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
        Ok(Asked {
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
macro_rules! asks_about_a_site {
    ($($message:ty => $call:ident $(, |$asked:ident| $object:expr)?;)+) => {$(
        impl Asks for $message {
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

asks_about_a_site! {
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
macro_rules! asks_about_a_site_or_all {
    ($($message:ty => $call:ident;)+) => {$(
        impl Asks for $message {
            const CALL: Call = Call::$call;

            fn site(&self) -> Option<&str> {
                named(&self.site)
            }
        }
    )+};
}

asks_about_a_site_or_all! {
    ListPlacementsRequest => ListPlacements;
    ListDecisionsRequest => ListDecisions;
}

/// Messages that are about the region.
macro_rules! asks_about_the_region {
    ($($message:ty => $call:ident;)+) => {$(
        impl Asks for $message {
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
