//! `ReportHosts`: a site's stream of hosts and `SIPCluster`s.

use std::sync::Arc;

use futures::Stream;
use proto::inventory::v1::{
    Hello, ReportHostsRequest, ReportHostsResponse, Revision, report_hosts_request::Message,
};
use tokio_stream::StreamExt as _;
use tonic::{Extensions, Status, Streaming};

use super::{
    authorize::{Call, authorize},
    placement::position,
};
use crate::{
    error::Error,
    region::Region,
    site::{Fence, Session, SessionId},
};

/// An open stream; dropping it closes the session, however it ended.
struct Reporter {
    region: Region,
    site: String,
    session: Session,
    sequence: u64,
    requests: Streaming<ReportHostsRequest>,
    ended: bool,
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.region.close_session(&self.site, &self.session.id);
        tracing::info!(
            site = self.site,
            session = self.session.id.as_str(),
            "the site's reporter has gone"
        );
    }
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
    authorize(&extensions, Call::ReportHosts, Some(&site))?;
    let fence = Fence {
        lease: lease_uid,
        transitions: lease_transitions,
    };
    let session = region
        .open_session(&site, fence, highest_seen.map(position))
        .await?;
    tracing::info!(site, session = session.id.as_str(), "the site has a reporter");
    let hello = acknowledge(&region, &session.id, 1);
    let reporter = Reporter {
        region,
        site,
        session,
        sequence: 1,
        requests,
        ended: false,
    };
    let rest = futures::stream::unfold(reporter, |mut reporter| async move {
        let answer = reporter.next().await?;
        reporter.ended = answer.is_err();
        Some((answer, reporter))
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

impl Reporter {
    async fn next(&mut self) -> Option<Result<ReportHostsResponse, Status>> {
        if self.ended {
            return None;
        }
        let superseded = self.session.superseded.clone();
        let request = tokio::select! {
            () = superseded.cancelled() => {
                return Some(Err(Error::Superseded {
                    what: format!("session {} of site {}", self.session.id.as_str(), self.site),
                    by: "a newer one".to_owned(),
                }
                .into()));
            }
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
        match message {
            Some(Message::Changes(changes)) => {
                self.region.report(&self.site, &self.session.id, changes).await?;
            }
            Some(Message::SnapshotEnd(_)) => {
                self.region
                    .complete_snapshot(&self.site, &self.session.id)
                    .await?;
            }
            Some(Message::Hello(_)) => return Err(Error::Protocol("a Hello comes first and only once")),
            None => return Err(Error::Protocol("a message must say something")),
        }
        self.sequence = sequence;
        Ok(acknowledge(&self.region, &self.session.id, sequence))
    }
}
