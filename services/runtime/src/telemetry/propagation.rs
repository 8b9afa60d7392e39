//! W3C trace context (`traceparent`, `tracestate`) in gRPC metadata.

use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator as _};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tonic::metadata::{MetadataKey, MetadataMap};
use tonic::service::Interceptor;
use tonic::{Request, Status};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::tls::Peer;

/// Maximum length of a path in a span, in bytes. A caller may send a path of many KiB that is of no method, and each log line of the call has its span.
const MAX_PATH_BYTES: usize = 128;

/// Sends the current span's context along with every call of a client.
#[derive(Debug, Clone, Copy, Default)]
pub struct InjectTrace;

impl Interceptor for InjectTrace {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let context = Span::current().context();
        TraceContextPropagator::new().inject_context(&context, &mut Metadata(request.metadata_mut()));
        Ok(request)
    }
}

/// The span of one call on the server, continuing the caller's trace; for [`tonic::transport::Server::trace_fn`].
#[must_use]
pub fn server_span(request: &http::Request<()>) -> Span {
    let path = request.uri().path();
    let (service, method) = path[..path.floor_char_boundary(MAX_PATH_BYTES)]
        .trim_start_matches('/')
        .split_once('/')
        .unwrap_or_default();
    let span = tracing::info_span!(
        "grpc",
        otel.name = format_args!("{service}/{method}"),
        otel.kind = "server",
        rpc.system = "grpc",
        rpc.service = service,
        rpc.method = method,
        client = tracing::field::Empty,
    );
    if let Some(peer) = request.extensions().get::<Peer>() {
        span.record("client", tracing::field::display(peer));
    }
    let parent = TraceContextPropagator::new().extract(&Headers(request.headers()));
    // Fails only where no spans are exported, and then there is no trace to continue.
    let _ = span.set_parent(parent);
    span
}

struct Metadata<'a>(&'a mut MetadataMap);

impl Injector for Metadata<'_> {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(key), Ok(value)) = (MetadataKey::from_bytes(key.as_bytes()), value.parse()) {
            self.0.insert(key, value);
        }
    }
}

struct Headers<'a>(&'a http::HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{SpanId, SpanKind, TraceId};
    use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;
    use tracing::Instrument as _;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;
    use crate::fixtures::{Disk, Subject, agent, subscribe_other_threads};
    use crate::telemetry::span_layer;
    use crate::tls::tests::{call, dial, scheduler};

    /// Exports the spans of this thread, which the tests' runtime runs everything on.
    fn exporting() -> (
        InMemorySpanExporter,
        SdkTracerProvider,
        tracing::subscriber::DefaultGuard,
    ) {
        subscribe_other_threads();
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder()
            .with_simple_exporter(exporter.clone())
            .build();
        let subscriber = tracing_subscriber::registry().with(span_layer(&provider));
        let guard = tracing::subscriber::set_default(subscriber);
        (exporter, provider, guard)
    }

    fn named(exporter: &InMemorySpanExporter, name: &str) -> SpanData {
        let spans = exporter.get_finished_spans().unwrap();
        let found = spans.iter().find(|span| span.name == name).cloned();
        found.unwrap_or_else(|| panic!("no `{name}` among {spans:#?}"))
    }

    #[tokio::test]
    async fn a_call_and_its_handling_are_one_trace() {
        let (authority, _server, served) = scheduler().await;
        let disk = Disk::new(
            &authority.issue(&Subject::of_caller(&agent("cluster"))),
            &authority,
        );
        let channel = dial(&served, &disk.client_args());
        let (exporter, _provider, _guard) = exporting();

        call(&channel)
            .instrument(tracing::info_span!("reconcile"))
            .await
            .unwrap();

        let reconcile = named(&exporter, "reconcile");
        let handled = named(&exporter, "grpc.health.v1.Health/Check");
        assert_eq!(handled.span_context.trace_id(), reconcile.span_context.trace_id());
        assert_eq!(handled.parent_span_id, reconcile.span_context.span_id());
        assert!(handled.parent_span_is_remote);
        assert_eq!(handled.span_kind, SpanKind::Server);
        let client = handled
            .attributes
            .iter()
            .find(|attribute| attribute.key.as_str() == "client")
            .unwrap();
        assert_eq!(client.value.as_str(), "site/s1/agent/cluster");
    }

    #[test]
    fn a_long_path_is_cut_off_in_its_span() {
        let (exporter, _provider, _guard) = exporting();
        let long = "m".repeat(5000);
        for path in [format!("/{long}/{long}"), format!("/service/{long}")] {
            let request = http::Request::post(path).body(()).unwrap();
            drop(server_span(&request));
        }
        let spans = exporter.get_finished_spans().unwrap();
        assert_eq!(spans.len(), 2);
        for span in spans {
            let values = span.attributes.iter().map(|attribute| attribute.value.as_str());
            let longest = values.map(|value| value.len()).max().unwrap();
            assert!(
                span.name.len() <= MAX_PATH_BYTES && longest <= MAX_PATH_BYTES,
                "{span:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_valid_foreign_trace_is_continued() {
        let (authority, _server, served) = scheduler().await;
        let disk = Disk::new(
            &authority.issue(&Subject::of_caller(&agent("cluster"))),
            &authority,
        );
        let channel = dial(&served, &disk.client_args());
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        for (traceparent, continued) in [(good, true), ("00-not-a-trace", false)] {
            let (exporter, _provider, _guard) = exporting();
            let mut request = Request::new(HealthCheckRequest {
                service: String::new(),
            });
            request
                .metadata_mut()
                .insert("traceparent", traceparent.parse().unwrap());
            HealthClient::new(channel.clone()).check(request).await.unwrap();
            let handled = named(&exporter, "grpc.health.v1.Health/Check");
            let trace = TraceId::from_hex("4bf92f3577b34da6a3ce929d0e0e4736").unwrap();
            let parent = SpanId::from_hex("00f067aa0ba902b7").unwrap();
            assert_eq!(
                handled.span_context.trace_id() == trace,
                continued,
                "{traceparent}"
            );
            assert_eq!(handled.parent_span_id == parent, continued, "{traceparent}");
        }
    }
}
