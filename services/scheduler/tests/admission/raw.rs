//! Calls by path and bytes, as any client could make them.

use std::time::Duration;

use prost::{
    Message as _,
    bytes::{Buf as _, BufMut as _, Bytes},
};
use proto::{inventory::v1 as inventory, placement::v1 as placement};
use runtime::tls::Channel;
use scheduler::call_rules::Call;
use tokio_stream::Stream;
use tonic::{
    Code, Request, Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

use crate::fixtures::{apply, cluster, spec};

/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Messages as they are.
#[derive(Clone, Copy, Default)]
pub(crate) struct Raw;

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

/// Sends these messages to `path`. `Ok`: the call was answered, or its first answer has come.
pub(crate) async fn answer(
    channel: &Channel,
    path: &str,
    messages: impl Stream<Item = Bytes> + Send + 'static,
) -> Result<(), Status> {
    answered(channel, path, messages, 1).await.1
}

/// The same for so many answers, or all: how many have come, and what the call's end was.
pub(crate) async fn answered(
    channel: &Channel,
    path: &str,
    messages: impl Stream<Item = Bytes> + Send + 'static,
    count: usize,
) -> (usize, Result<(), Status>) {
    let mut come = 0;
    let ended = async {
        let mut client = Grpc::new(channel.clone());
        client
            .ready()
            .await
            .map_err(|error| Status::from_error(error.into()))?;
        let path = path.parse().unwrap();
        let answer = client.streaming(Request::new(messages), path, Raw).await?;
        let mut answers = answer.into_inner();
        while come < count && answers.message().await?.is_some() {
            come += 1;
        }
        Ok(())
    };
    let ended = ended.await;
    (come, ended)
}

/// The same, in time.
pub(crate) async fn send(
    channel: &Channel,
    path: &str,
    messages: impl Stream<Item = Bytes> + Send + 'static,
) -> Result<(), Status> {
    let late = |_| {
        Err(Status::new(
            Code::DeadlineExceeded,
            "the test does not wait any longer",
        ))
    };
    let answered = tokio::time::timeout(PATIENCE, answer(channel, path, messages)).await;
    answered.unwrap_or_else(late)
}

/// Sends one request about `site`, as [`request`] makes it.
pub(crate) async fn send_request(channel: &Channel, call: Call, site: &str) -> Result<(), Status> {
    let message = tokio_stream::once(request(call, site));
    send(channel, call.descriptor().path, message).await
}

/// A request that is good enough to be read, about `site`.
pub(crate) fn request(call: Call, site: &str) -> Bytes {
    let of = |name: &str| name.to_owned();
    let host = || inventory::HostRef {
        namespace: of("metal"),
        name: of("h1"),
        uid: of("uid-h1"),
    };
    let bytes = match call {
        Call::ApplyCluster => apply(site, "one", 1, 1).encode_to_vec(),
        Call::PlanCluster => placement::PlanClusterRequest {
            site: of(site),
            cluster: Some(cluster("one")),
            spec: Some(spec(1)),
        }
        .encode_to_vec(),
        Call::GetPlacement => placement::GetPlacementRequest {
            site: of(site),
            cluster: Some(cluster("one")),
            at_least: None,
        }
        .encode_to_vec(),
        Call::ListPlacements => placement::ListPlacementsRequest {
            site: of(site),
            ..Default::default()
        }
        .encode_to_vec(),
        Call::WatchPlacements => placement::WatchPlacementsRequest {
            site: of(site),
            resume: None,
        }
        .encode_to_vec(),
        Call::ReleaseCluster => placement::ReleaseClusterRequest {
            site: of(site),
            cluster: Some(cluster("one")),
        }
        .encode_to_vec(),
        Call::ConfirmHosts => placement::ConfirmHostsRequest {
            site: of(site),
            cluster: Some(cluster("one")),
            released: Vec::new(),
        }
        .encode_to_vec(),
        Call::ReleaseOrphan => placement::ReleaseOrphanRequest {
            site: of(site),
            host: Some(host()),
        }
        .encode_to_vec(),
        Call::ListDecisions => placement::ListDecisionsRequest {
            site: of(site),
            ..Default::default()
        }
        .encode_to_vec(),
        Call::ReportHosts => hello(site),
        Call::ListHosts => inventory::ListHostsRequest {
            site: of(site),
            ..Default::default()
        }
        .encode_to_vec(),
        Call::GetHost => inventory::GetHostRequest {
            site: of(site),
            namespace: of("metal"),
            name: of("h1"),
        }
        .encode_to_vec(),
        Call::FindCapacity => inventory::FindCapacityRequest {
            spec: Some(spec(1)),
            ..Default::default()
        }
        .encode_to_vec(),
        Call::ExplainHost => inventory::ExplainHostRequest {
            site: of(site),
            namespace: of("metal"),
            name: of("h1"),
            ..Default::default()
        }
        .encode_to_vec(),
        Call::ResetSiteFence => inventory::ResetSiteFenceRequest { site: of(site) }.encode_to_vec(),
        Call::RepairSite => inventory::RepairSiteRequest {
            site: of(site),
            dry_run: true,
        }
        .encode_to_vec(),
        // Nothing has to be set in these.
        Call::ListSites
        | Call::ExportLedger
        | Call::HealthCheck
        | Call::HealthWatch
        | Call::Reflection
        | Call::ReflectionAlpha => Vec::new(),
    };
    bytes.into()
}

fn hello(site: &str) -> Vec<u8> {
    let hello = inventory::Hello {
        site: site.to_owned(),
        lease_uid: "lease".to_owned(),
        lease_transitions: 1,
        highest_seen: None,
    };
    inventory::ReportHostsRequest {
        sequence: 1,
        message: Some(inventory::report_hosts_request::Message::Hello(hello)),
    }
    .encode_to_vec()
}
