//! What a collector of spans gets from a scheduler.

use std::{collections::BTreeMap, net::SocketAddr};

use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::{AnyValue, KeyValue, any_value::Value},
    trace::v1::Span,
};
use proto::placement::v1::{ListPlacementsRequest, placement_service_client::PlacementServiceClient};
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet, time::timeout};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, transport::Server};

use crate::region::{PATIENCE, Region};

/// A caller's trace, its span, and how these are sent with a call: <https://www.w3.org/TR/trace-context/>.
const TRACE: [u8; 16] = [0xab; 16];
const CALLER: [u8; 8] = [0xcd; 8];
const TRACEPARENT: &str = "00-abababababababababababababababab-cdcdcdcdcdcdcdcd-01";

/// Hands on what it is sent.
struct Collector(mpsc::UnboundedSender<ExportTraceServiceRequest>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.send(request.into_inner()).unwrap();
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

async fn collector(
    serving: &mut JoinSet<()>,
) -> (SocketAddr, mpsc::UnboundedReceiver<ExportTraceServiceRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = mpsc::unbounded_channel();
    serving.spawn(async move {
        let collector = TraceServiceServer::new(Collector(sender));
        let server = Server::builder().add_service(collector);
        server
            .serve_with_incoming(TcpListenerStream::new(listener))
            .await
            .unwrap();
    });
    (address, receiver)
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<&str, &str> {
    let texts = attributes.iter().filter_map(|attribute| match &attribute.value {
        Some(AnyValue {
            value: Some(Value::StringValue(text)),
        }) => Some((&*attribute.key, &**text)),
        _ => None,
    });
    texts.collect()
}

#[tokio::test]
async fn a_collector_gets_the_span_of_a_call_in_its_callers_trace() {
    let mut serving = JoinSet::new();
    let (address, mut sent) = collector(&mut serving).await;
    let mut region = Region::new(1).await;
    let ledger = region.directory().join("ledger.redb");
    let endpoint = format!("http://{address}");
    region.add_with(&["--ledger", ledger.to_str().unwrap(), "--otlp-endpoint", &endpoint]);
    let leader = region.leader(None).await;

    let scheduler = format!("http://{}", region.schedulers[leader].address);
    let mut client = PlacementServiceClient::connect(scheduler).await.unwrap();
    let mut request = Request::new(ListPlacementsRequest::default());
    request
        .metadata_mut()
        .insert("traceparent", TRACEPARENT.parse().unwrap());
    client.list_placements(request).await.unwrap();

    let (service, span): (String, Span) = timeout(PATIENCE, async {
        loop {
            let sent = sent.recv().await.unwrap();
            for of in sent.resource_spans {
                let resource = of.resource.unwrap_or_default();
                let service = texts(&resource.attributes)["service.name"].to_owned();
                let mut spans = of.scope_spans.into_iter().flat_map(|scope| scope.spans);
                if let Some(span) = spans.find(|span| span.trace_id == TRACE) {
                    return (service, span);
                }
            }
        }
    })
    .await
    .unwrap();
    assert_eq!(service, "sip-scheduler");
    assert_eq!(span.name, "sip.placement.v1.PlacementService/ListPlacements");
    assert_eq!(span.parent_span_id, CALLER);
    let said = texts(&span.attributes);
    assert_eq!(said["rpc.service"], "sip.placement.v1.PlacementService");
    assert_eq!(said["rpc.method"], "ListPlacements");
}
