//! One row of a table of metrics.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};

/// What a metric is called and what it means. The documentation is held to these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Name as it is scraped, with the `_total` of a counter.
    pub name: &'static str,
    /// Type of the metric.
    pub kind: Kind,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// What it measures, without a full stop.
    pub help: &'static str,
}

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; its name ends in `_total`.
    Counter,
    /// Grows and shrinks.
    Gauge,
    /// Counts observations in buckets.
    Histogram,
    /// Always 1, with labels that tell something; its name ends in `_info`.
    Info,
}

impl Definition {
    /// The name without the suffix that the text format appends to counters and infos.
    #[must_use]
    pub fn base_name(&self) -> &'static str {
        let suffix = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        self.name.strip_suffix(suffix).unwrap_or(self.name)
    }

    /// The row of the reference documentation, with its line break.
    #[must_use]
    pub fn row(&self) -> String {
        let Self {
            name,
            kind,
            labels,
            help,
        } = self;
        let labels = if labels.is_empty() {
            String::new()
        } else {
            format!("{{{}}}", labels.join(","))
        };
        format!("| `{name}{labels}` | {kind} | {help} |\n")
    }

    /// Encodes the metric of a collector.
    ///
    /// # Errors
    /// When it fails to encode itself.
    pub fn encode(&self, encoder: &mut DescriptorEncoder<'_>, metric: &impl EncodeMetric) -> fmt::Result {
        let help = format!("{}.", self.help);
        metric.encode(encoder.encode_descriptor(self.base_name(), &help, None, metric.metric_type())?)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        })
    }
}
