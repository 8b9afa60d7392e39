//! How long the stages of a change take: waiting for a place in the queue, deciding, storing; and what fails in none of them.

use std::time::Instant;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        histogram::{Histogram, exponential_buckets},
    },
};
use runtime::metrics::Metrics;

use crate::metrics as table;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByAction {
    action: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByWork {
    site: String,
    work: &'static str,
}

/// Makes histograms of times from 50 µs to 26 s.
#[derive(Clone, Copy, Debug)]
struct Seconds;

impl MetricConstructor<Histogram> for Seconds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(exponential_buckets(0.000_05, 2.0, 20))
    }
}

/// Metrics of the stages of a change. Cheap to clone.
#[derive(Clone, Debug)]
pub struct StageMetrics {
    queue_wait: Histogram,
    decision: Family<ByAction, Histogram, Seconds>,
    commit: Histogram,
    batch: Histogram,
    panics: Family<ByWork, Counter>,
}

impl Default for StageMetrics {
    fn default() -> Self {
        Self {
            queue_wait: Seconds.new_metric(),
            decision: Family::new_with_constructor(Seconds),
            commit: Seconds.new_metric(),
            batch: Histogram::new(exponential_buckets(1.0, 2.0, 10)),
            panics: Family::default(),
        }
    }
}

impl StageMetrics {
    /// The metrics, registered in `metrics`.
    #[must_use]
    pub fn registered(metrics: &Metrics) -> Self {
        let this = Self::default();
        let Self {
            queue_wait,
            decision,
            commit,
            batch,
            panics,
        } = &this;
        metrics.add(&table::QUEUE_WAIT, queue_wait.clone());
        metrics.add(&table::DECISION, decision.clone());
        metrics.add(&table::COMMIT, commit.clone());
        metrics.add(&table::BATCH, batch.clone());
        metrics.add(&table::SITE_PANICS, panics.clone());
        this
    }

    /// Work for a site has panicked.
    pub(crate) fn panicked(&self, site: &str, work: &'static str) {
        let by = ByWork {
            site: site.to_owned(),
            work,
        };
        self.panics.get_or_create(&by).inc();
    }

    pub(super) fn queued(&self, since: Instant) {
        self.queue_wait.observe(since.elapsed().as_secs_f64());
    }

    pub(super) fn stored(&self, since: Instant, changes: usize) {
        self.commit.observe(since.elapsed().as_secs_f64());
        self.batch
            .observe(f64::from(u32::try_from(changes).unwrap_or(u32::MAX)));
    }

    /// Runs a decision, and observes how long it takes.
    pub(crate) fn decide<T>(&self, action: &'static str, decide: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let decided = decide();
        let time = begun.elapsed().as_secs_f64();
        self.decision.get_or_create(&ByAction { action }).observe(time);
        decided
    }
}
