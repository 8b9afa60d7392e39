//! Records the metrics of terms, and of what a term serves; [`crate::metrics`] defines them.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus_client::{
    collector::Collector,
    encoding::DescriptorEncoder,
    metrics::{counter::Counter, gauge::ConstGauge},
};
use runtime::metrics::Metrics;

use super::Terms;
use crate::{
    ledger::{StageMetrics, Storage},
    metrics as table, region,
};

/// Who may write the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Leader {
    /// This process.
    Own,
    /// The process at this address.
    Other(String),
}

/// Metrics of terms. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct TermMetrics {
    terms: Counter,
    leader_changes: Counter,
    leader: Arc<Mutex<Option<Leader>>>,
    pub(super) stages: StageMetrics,
}

impl TermMetrics {
    /// The metrics, registered in `metrics`.
    #[must_use]
    pub fn registered(metrics: &Metrics) -> Self {
        let this = Self {
            stages: StageMetrics::registered(metrics),
            ..Self::default()
        };
        metrics.add(&table::TERMS, this.terms.clone());
        metrics.add(&table::LEADER_CHANGES, this.leader_changes.clone());
        this
    }

    /// A term of this process begins.
    pub(super) fn begun(&self) {
        self.terms.inc();
        self.leads(Leader::Own);
    }

    /// This one leads; the first that is observed is no change.
    pub(super) fn leads(&self, leader: Leader) {
        let mut last = self.leader.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last.replace(leader);
        if before.is_some() && before != *last {
            self.leader_changes.inc();
        }
    }
}

/// Metrics that are read from the present term at each scrape.
#[derive(Debug)]
pub struct TermCollector {
    terms: Terms,
}

impl TermCollector {
    /// Of these terms.
    #[must_use]
    pub fn new(terms: Terms) -> Self {
        Self { terms }
    }
}

impl Collector for TermCollector {
    #[expect(
        clippy::cast_precision_loss,
        reason = "exact up to 2^53 bytes, which no ledger has"
    )]
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let leads = i64::from(self.terms.region().is_ok());
        table::LEADER.encode(&mut encoder, &ConstGauge::new(leads))?;
        let bytes = self.terms.ledger().ok().and_then(|ledger| ledger.file_bytes());
        if let Some(bytes) = bytes {
            table::LEDGER_BYTES.encode(&mut encoder, &ConstGauge::new(bytes as f64))?;
        }
        let storage = self.terms.ledger().ok().and_then(|ledger| ledger.storage());
        if let Some(Storage { bytes, quota }) = storage {
            table::ETCD_BYTES.encode(&mut encoder, &ConstGauge::new(bytes as f64))?;
            table::ETCD_QUOTA.encode(&mut encoder, &ConstGauge::new(quota as f64))?;
        }
        match self.terms.durable() {
            Ok(region) => region::encode_metrics(&region, &mut encoder),
            Err(_) => Ok(()),
        }
    }
}
