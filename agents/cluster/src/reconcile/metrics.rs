//! What this agent counts. Labels are enumerations, so that their number is known.

use std::time::Duration;

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
};

/// How a pass over a cluster ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Pass {
    /// All that was to be done now is done.
    Done,
    /// The API server did not do what was asked.
    Kubernetes,
    /// The scheduler did not answer, or from an older epoch.
    Scheduler,
}

/// The scheduler's answer to a declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Answer {
    /// All that is wanted is there.
    Placed,
    /// Something is missing.
    Refused,
    /// The spec breaks a rule.
    Invalid,
    /// It could not be asked.
    Failed,
}

/// What has come of a write to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum HostWrite {
    /// It is on the API server.
    Done,
    /// The host had changed, or was gone.
    Changed,
    /// The API server refused it.
    Refused,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PassLabels {
    outcome: Pass,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    outcome: Answer,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HostWriteLabels {
    outcome: HostWrite,
}

/// The agent's counts. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    passes: Family<PassLabels, Histogram, fn() -> Histogram>,
    answers: Family<AnswerLabels, Counter>,
    host_writes: Family<HostWriteLabels, Counter>,
}

/// From a millisecond to 16 seconds.
fn durations() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

impl Metrics {
    /// The counts, registered with the process's.
    #[must_use]
    pub fn registered(metrics: &runtime::metrics::Metrics) -> Self {
        let this = Self {
            passes: Family::new_with_constructor(durations),
            answers: Family::default(),
            host_writes: Family::default(),
        };
        let Self {
            passes,
            answers,
            host_writes,
        } = this.clone();
        metrics.register(|registry| {
            registry.register(
                "cluster_look_seconds",
                "Passes over a SIPCluster, by outcome",
                passes,
            );
            registry.register(
                "placements",
                "Declarations to the scheduler, by its answer",
                answers,
            );
            registry.register("host_writes", "Writes to BareMetalHosts, by outcome", host_writes);
        });
        this
    }

    /// A pass over a cluster has ended.
    pub fn passed(&self, outcome: Pass, took: Duration) {
        self.passes
            .get_or_create(&PassLabels { outcome })
            .observe(took.as_secs_f64());
    }

    /// The scheduler has answered a declaration, or could not be asked.
    pub fn answered(&self, outcome: Answer) {
        self.answers.get_or_create(&AnswerLabels { outcome }).inc();
    }

    /// A host was written, or was to be.
    pub fn host_written(&self, outcome: HostWrite) {
        self.host_writes.get_or_create(&HostWriteLabels { outcome }).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_happened_is_counted_by_outcome() {
        let process = runtime::metrics::Metrics::default();
        let metrics = Metrics::registered(&process);
        metrics.passed(Pass::Done, Duration::from_millis(3));
        metrics.answered(Answer::Refused);
        metrics.host_written(HostWrite::Changed);
        metrics.host_written(HostWrite::Changed);
        let text = process.encode().unwrap();
        for line in [
            "cluster_look_seconds_count{outcome=\"Done\"} 1",
            "placements_total{outcome=\"Refused\"} 1",
            "host_writes_total{outcome=\"Changed\"} 2",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
