//! The process's metrics, in the `OpenMetrics` text format, and the table of those that every process has.

mod definition;
pub(crate) mod exposition;
mod process;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::{Metric, Registry};

pub use definition::{Definition, Kind};
pub(crate) use process::ProcessCollector;

/// Name and version of the program.
pub const BUILD: Definition = Definition {
    name: "sip_build_info",
    kind: Kind::Info,
    labels: &["name", "version"],
    help: "Name and version of the program",
};
/// End of the own certificate's validity.
pub const TLS_NOT_AFTER: Definition = Definition {
    name: "sip_tls_certificate_not_after_timestamp_seconds",
    kind: Kind::Gauge,
    labels: &["side"],
    help: "End of the validity of the process's own certificate, in seconds since 1970",
};
/// Attempts to reload certificates.
pub const TLS_RELOADS: Definition = Definition {
    name: "sip_tls_reloads_total",
    kind: Kind::Counter,
    labels: &["side", "outcome"],
    help: "Attempts to reload changed certificate files",
};
/// TLS handshakes.
pub const TLS_HANDSHAKES: Definition = Definition {
    name: "sip_tls_handshakes_total",
    kind: Kind::Counter,
    labels: &["side", "outcome"],
    help: "TLS handshakes; evicted: closed in favor of a newer connection; limited: not begun, since too many from the address have failed, or too many are of one identity or site",
};
/// Files with CA certificates of sites that are not usable.
pub const TLS_SITE_FAULTS: Definition = Definition {
    name: "sip_tls_site_authorities_unusable",
    kind: Kind::Gauge,
    labels: &[],
    help: "Sites whose file in --tls-site-ca-dir is not usable: the certificates it had before stay in use, or the site is refused",
};

/// Every metric that each process registers, in the order of the documentation.
pub const DEFINITIONS: [&Definition; 12] = [
    &BUILD,
    &TLS_NOT_AFTER,
    &TLS_RELOADS,
    &TLS_HANDSHAKES,
    &TLS_SITE_FAULTS,
    &process::CPU,
    &process::MAX_FDS,
    &process::OPEN_FDS,
    &process::RESIDENT_MEMORY,
    &process::START_TIME,
    &process::THREADS,
    &process::VIRTUAL_MEMORY,
];

/// The rows of these definitions as the reference documentation has them.
#[must_use]
pub fn reference_table(definitions: &[&Definition]) -> String {
    definitions.iter().map(|definition| definition.row()).collect()
}

/// A handle to the process's one registry. Cheap to clone.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Mutex<Registry>>);

impl Metrics {
    /// Lets `register` add metrics.
    ///
    /// ```
    /// # let metrics = runtime::metrics::Metrics::default();
    /// let commits = prometheus_client::metrics::counter::Counter::<u64>::default();
    /// metrics.register(|registry| registry.register("ledger_commits", "Commits made", commits.clone()));
    /// commits.inc();
    /// ```
    pub fn register(&self, register: impl FnOnce(&mut Registry)) {
        // A registry is only ever appended to, so one that a panic left behind is still whole.
        register(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Adds a metric under the name and with the help of its definition.
    pub fn add(&self, definition: &Definition, metric: impl Metric) {
        self.register(|registry| registry.register(definition.base_name(), definition.help, metric));
    }

    /// Adds metrics that are computed at each scrape.
    pub fn collect(&self, collector: impl Collector) {
        self.register(|registry| registry.register_collector(Box::new(collector)));
    }

    /// All metrics as `OpenMetrics` text.
    ///
    /// # Errors
    /// When a registered metric fails to encode itself.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        Ok(text)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
