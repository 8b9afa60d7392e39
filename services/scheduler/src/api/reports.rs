//! `ReportHosts`: a site's stream of hosts and `SIPCluster`s.

use std::sync::Arc;

use futures::Stream;
use proto::inventory::v1::{
    Hello, ReportHostsRequest, ReportHostsResponse, Revision, report_hosts_request::Message,
};
use tokio_stream::StreamExt as _;
use tonic::{Code, Extensions, Status, Streaming};

use super::{
    authorize::{Call, authorize},
    placement::position,
};
use crate::{
    error::Error,
    ledger::{Fence, commit::Stopped},
    load,
    region::{Region, Reporter},
    site::SessionId,
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
/// When the first message is no Hello or the caller may not report that site.
pub(super) async fn stream(
    region: Region,
    extensions: Arc<Extensions>,
    mut requests: Streaming<ReportHostsRequest>,
) -> Result<impl Stream<Item = Result<ReportHostsResponse, Status>> + Send, Status> {
    let first = requests.message().await?;
    let Some(ReportHostsRequest {
        sequence: 1,
        message: Some(Message::Hello(hello)),
    }) = first
    else {
        return Err(Error::Protocol("the first message must be a Hello with sequence 1").into());
    };
    let Hello {
        site,
        lease_uid,
        lease_transitions,
        highest_seen,
    } = hello;
    let caller = authorize(&extensions, Call::ReportHosts, Some(&site))?;
    let fence = Fence {
        lease: lease_uid,
        transitions: lease_transitions,
    };
    let reporter = region
        .open_session(&site, &fence, highest_seen.map(position), &caller)
        .await?;
    let session = &reporter.session().id;
    tracing::info!(site, session = session.as_str(), "the site has a reporter");
    let hello = acknowledge(&region, session, 1);
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

fn acknowledge(region: &Region, session: &SessionId, sequence: u64) -> ReportHostsResponse {
    let position: Revision = (*region.committer().watch().borrow()).into();
    ReportHostsResponse {
        acknowledged: sequence,
        session: session.as_str().to_owned(),
        revision: Some(position),
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
            Err(status) if status.code() == Code::OutOfRange => Some(Err(load::too_large(&status))),
            Err(status) => Some(Err(status)),
        }
    }

    async fn take(&mut self, request: ReportHostsRequest) -> Result<ReportHostsResponse, Error> {
        let ReportHostsRequest { sequence, message } = request;
        if sequence != self.sequence + 1 {
            return Err(Error::Protocol("sequence numbers must ascend by one"));
        }
        match message {
            Some(Message::Changes(changes)) => {
                self.region
                    .report(self.reporter.site(), self.session(), changes)
                    .await?;
            }
            Some(Message::SnapshotEnd(_)) => {
                self.region
                    .complete_snapshot(self.reporter.site(), self.session())
                    .await?;
            }
            Some(Message::Hello(_)) => return Err(Error::Protocol("a Hello comes first and only once")),
            None => return Err(Error::Protocol("a message must say something")),
        }
        self.sequence = sequence;
        Ok(acknowledge(&self.region, self.session(), sequence))
    }
}
