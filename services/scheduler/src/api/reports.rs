//! `ReportHosts`: a site's stream of hosts and `SIPCluster`s.

use futures::Stream;
use proto::inventory::v1::{
    Hello, HostFault, ReportHostsRequest, ReportHostsResponse, report_hosts_request::Message,
};
use tokio_stream::StreamExt as _;
use tonic::{Status, Streaming};

use super::authorizer::Authorized;
use crate::{
    convert,
    error::Error,
    ledger::{Fence, commit::Stopped},
    region::{Region, Reporter},
    site::{self, SessionId},
};

/// An open stream.
struct Reports {
    region: Region,
    reporter: Reporter,
    sequence: u64,
    requests: Streaming<ReportHostsRequest>,
    ended: bool,
}

/// Opens the session that the stream's first message asks for; the answers acknowledge each message.
///
/// # Errors
/// When the reporter is not admitted.
pub(super) async fn stream(
    authorized: Authorized<Hello>,
    requests: Streaming<ReportHostsRequest>,
) -> Result<impl Stream<Item = Result<ReportHostsResponse, Status>> + Send, Status> {
    let (hello, caller, terms) = authorized.into_parts();
    let region = terms.region()?;
    let Hello {
        site,
        lease_uid,
        lease_transitions,
        highest_seen,
    } = hello;
    let fence = Fence {
        lease: lease_uid,
        transitions: lease_transitions,
    };
    let reporter = region
        .open_session(&site, &fence, highest_seen.map(Into::into), &caller)
        .await?;
    let session = &reporter.session().id;
    reporter.log("the site has a reporter");
    let hello = acknowledge(&region, &site, session, 1, &[])?;
    let reports = Reports {
        region,
        reporter,
        sequence: 1,
        requests,
        ended: false,
    };
    let rest = futures::stream::unfold(reports, |mut reports| async move {
        let answer = reports.next().await?;
        reports.ended = answer.is_err();
        Some((answer, reports))
    });
    Ok(tokio_stream::once(Ok(hello)).chain(rest))
}

fn acknowledge(
    region: &Region,
    site: &str,
    session: &SessionId,
    sequence: u64,
    faults: &[site::HostFault],
) -> Result<ReportHostsResponse, Error> {
    let durable = *region.committer().watch().borrow();
    let position = region.site(site)?.position(durable);
    Ok(ReportHostsResponse {
        acknowledged: sequence,
        session: session.as_str().to_owned(),
        revision: Some(position.into()),
        faults: faults.iter().map(fault).collect(),
    })
}

/// A fault of a host as it is sent to its reporter.
pub(super) fn fault(site::HostFault { host, message }: &site::HostFault) -> HostFault {
    HostFault {
        host: Some(convert::host_ref(host)),
        message: message.clone(),
    }
}

impl Reports {
    fn session(&self) -> &SessionId {
        &self.reporter.session().id
    }

    async fn next(&mut self) -> Option<Result<ReportHostsResponse, Status>> {
        if self.ended {
            return None;
        }
        let ending = self.region.committer().ending().clone();
        let superseded = self.reporter.session().superseded.clone();
        let request = tokio::select! {
            () = superseded.cancelled() => {
                return Some(Err(Error::Superseded {
                    what: format!("session {} of site {}", self.session().as_str(), self.reporter.site()),
                    by: "a newer one".to_owned(),
                }
                .into()));
            }
            () = ending.cancelled() => return Some(Err(Error::Stopped(Stopped).into())),
            request = self.requests.message() => request,
        };
        match request {
            Ok(Some(request)) => Some(self.take(request).await.map_err(Into::into)),
            Ok(None) => None,
            Err(status) => Some(Err(status)),
        }
    }

    async fn take(&mut self, request: ReportHostsRequest) -> Result<ReportHostsResponse, Error> {
        let ReportHostsRequest { sequence, message } = request;
        if sequence != self.sequence + 1 {
            return Err(Error::Protocol("sequence numbers must ascend by one"));
        }
        let mut faults = Vec::new();
        match message {
            Some(Message::Changes(changes)) => {
                let site = self.reporter.site();
                let slices = convert::slices(changes).map(|slice| convert::changes(site, slice));
                faults = self.region.report_slices(site, self.session(), slices).await?;
            }
            Some(Message::SnapshotEnd(_)) => {
                self.region
                    .complete_snapshot(self.reporter.site(), self.session())
                    .await?;
            }
            Some(Message::Hello(_)) => {
                return Err(Error::Protocol(
                    "the first message of the stream must be its only Hello",
                ));
            }
            None => return Err(Error::Protocol("ReportHostsRequest.message must be set")),
        }
        self.sequence = sequence;
        acknowledge(
            &self.region,
            self.reporter.site(),
            self.session(),
            sequence,
            &faults,
        )
    }
}
