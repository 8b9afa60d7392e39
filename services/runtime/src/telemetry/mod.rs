//! Logs and spans of a process, and the trace context that crosses gRPC.

mod propagation;

use std::io::{self, IsTerminal as _};

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{EnvFilter, ParseError, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{Layer, Registry, fmt};

pub use propagation::{InjectTrace, server_span};

/// Target of log lines that say who did what. They are logged whatever else is.
pub const AUDIT: &str = "audit";

/// Command-line options of logs and traces.
#[derive(Debug, Clone, clap::Args)]
pub struct TelemetryArgs {
    /// What to log, as directives of the tracing library such as `debug` or `info,kube=debug`
    #[arg(long, env = "RUST_LOG", value_name = "FILTER", default_value = "info")]
    pub log: String,
    /// Format of log lines
    #[arg(long, env = "SIP_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// OTLP (gRPC) collector to send traces to, such as `http://127.0.0.1:4317`; without it, none are sent
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<String>,
}

/// Shape of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Plain text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Why telemetry could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `--log` does not parse.
    #[error("`{filter}` is not a log filter (--log, RUST_LOG)")]
    Filter {
        /// As given.
        filter: String,
        /// Which part of it, and why.
        #[source]
        source: ParseError,
    },
    /// The exporter does not take the endpoint.
    #[error("cannot export spans to `{endpoint}` (--otlp-endpoint)")]
    Exporter {
        /// As given.
        endpoint: String,
        /// Why not.
        #[source]
        source: ExporterBuildError,
    },
    /// Telemetry was started twice in one process.
    #[error("telemetry is already running in this process")]
    Running(#[source] TryInitError),
}

/// Running telemetry; dropping it sends the spans that are still buffered.
#[derive(Debug)]
pub struct Telemetry {
    spans: Option<SdkTracerProvider>,
}

impl Telemetry {
    /// Starts logging, and exporting spans where an endpoint is given. Needs a tokio runtime in that case.
    ///
    /// # Errors
    /// As [`Error`] lists.
    pub fn start(service: &'static str, version: &'static str, args: &TelemetryArgs) -> Result<Self, Error> {
        let TelemetryArgs {
            log,
            log_format,
            otlp_endpoint,
        } = args;
        let filter = EnvFilter::try_new(directives(log)).map_err(|source| Error::Filter {
            filter: log.clone(),
            source,
        })?;
        let lines = match log_format {
            // Colours are for people: a log file stays plain.
            LogFormat::Text => fmt::layer()
                .with_writer(io::stderr)
                .with_ansi(io::stderr().is_terminal())
                .boxed(),
            LogFormat::Json => fmt::layer()
                .json()
                .flatten_event(true)
                .with_writer(io::stderr)
                .boxed(),
        };
        let spans = otlp_endpoint
            .as_deref()
            .map(|endpoint| exporter(service, version, endpoint))
            .transpose()?;
        Registry::default()
            .with(lines.with_filter(filter))
            .with(spans.as_ref().map(span_layer))
            .try_init()
            .map_err(Error::Running)?;
        Ok(Self { spans })
    }
}

/// What is logged: what was asked for, and audit lines. The client of Kubernetes logs each answer that it cannot parse, whole and as a
/// warning, though its caller has the error: only who asks for its target by name gets that.
fn directives(log: &str) -> String {
    format!("kube_client::client=error,{log},{AUDIT}=info")
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        if let Some(spans) = &self.spans
            && let Err(error) = spans.shutdown()
        {
            tracing::warn!(%error, "the last spans could not be exported");
        }
    }
}

fn exporter(
    service: &'static str,
    version: &'static str,
    endpoint: &str,
) -> Result<SdkTracerProvider, Error> {
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .build()
        .map_err(|source| Error::Exporter {
            endpoint: endpoint.to_owned(),
            source,
        })?;
    let resource = Resource::builder()
        .with_service_name(service)
        .with_attribute(KeyValue::new("service.version", version))
        .build();
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource)
        .build())
}

/// Turns `tracing` spans into exported ones.
///
/// The exporter is itself a gRPC client: spans of the libraries that it uses would feed it with its own work.
fn span_layer<S>(provider: &SdkTracerProvider) -> impl Layer<S> + use<S>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    let own_work = [
        "h2",
        "hyper",
        "hyper_util",
        "opentelemetry",
        "opentelemetry_sdk",
        "tonic",
        "tower",
    ];
    let targets = Targets::new()
        .with_default(Level::INFO)
        .with_targets(own_work.map(|target| (target, LevelFilter::OFF)));
    tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("sip"))
        .with_filter(targets)
}

#[cfg(test)]
mod tests;
