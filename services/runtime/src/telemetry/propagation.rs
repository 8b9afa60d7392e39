//! W3C trace context (`traceparent`, `tracestate`) in gRPC metadata.

use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator as _};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tonic::metadata::{MetadataKey, MetadataMap};
use tonic::service::Interceptor;
use tonic::{Request, Status};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::tls::Peer;

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
    let (service, method) = request
        .uri()
        .path()
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
