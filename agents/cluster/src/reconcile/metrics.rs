//! Metrics of the cluster agent besides those of every agent, in one table. `docs/metrics.md` is held to it.

use prometheus_client::metrics::{counter::Counter, family::Family};
use runtime::metrics::{Definition, Kind};

const OUTCOME: &str = "outcome";

/// Declarations to the scheduler.
const DECLARATIONS: Definition = Definition {
    name: "sip_cluster_agent_declarations_total",
    kind: Kind::Counter,
    labels: &[OUTCOME],
    help: "Declarations of SIPClusters to the scheduler, by its answer: placed, refused, invalid, failed",
};
/// Writes to hosts.
const HOST_WRITES: Definition = Definition {
    name: "sip_cluster_agent_host_writes_total",
    kind: Kind::Counter,
    labels: &[OUTCOME],
    help: "Writes to BareMetalHosts, by outcome: succeeded, conflict (the host had changed or was gone), refused",
};

/// The scheduler's answer to a declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The cluster holds all hosts that it wants.
    Placed,
    /// Some hosts are missing.
    Refused,
    /// The spec breaks a rule.
    Invalid,
    /// The call failed.
    Failed,
}

impl Answer {
    fn label(self) -> &'static str {
        match self {
            Self::Placed => "placed",
            Self::Refused => "refused",
            Self::Invalid => "invalid",
            Self::Failed => "failed",
        }
    }
}

/// The result of a write to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostWrite {
    /// The API server has it.
    Done,
    /// The host had changed, or was gone.
    Changed,
    /// The API server refused it.
    Refused,
}

impl HostWrite {
    fn label(self) -> &'static str {
        match self {
            Self::Done => "succeeded",
            Self::Changed => "conflict",
            Self::Refused => "refused",
        }
    }
}

/// Counts by outcome.
type ByOutcome = Family<[(&'static str, &'static str); 1], Counter>;

/// The agent's metrics. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    declarations: ByOutcome,
    host_writes: ByOutcome,
}

impl Metrics {
    /// The metrics, registered with the process's.
    #[must_use]
    pub fn registered(metrics: &runtime::metrics::Metrics) -> Self {
        let this = Self::default();
        metrics.add(&DECLARATIONS, this.declarations.clone());
        metrics.add(&HOST_WRITES, this.host_writes.clone());
        this
    }

    /// The scheduler has answered a declaration, or the call failed.
    pub fn declared(&self, answer: Answer) {
        count(&self.declarations, answer.label());
    }

    /// A write to a host has ended.
    pub fn host_written(&self, outcome: HostWrite) {
        count(&self.host_writes, outcome.label());
    }
}

fn count(metric: &ByOutcome, outcome: &'static str) {
    metric.get_or_create(&[(OUTCOME, outcome)]).inc();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant_nodes::metrics::POLLS;

    #[test]
    fn the_reference_lists_every_cluster_agent_metric() {
        let table = runtime::metrics::reference_table(&[&DECLARATIONS, &HOST_WRITES, &POLLS]);
        assert!(
            include_str!("../../../../docs/metrics.md").contains(&table),
            "{table}"
        );
    }

    #[test]
    fn answers_and_writes_are_counted_by_outcome() {
        let process = runtime::metrics::Metrics::default();
        let metrics = Metrics::registered(&process);
        metrics.declared(Answer::Refused);
        metrics.host_written(HostWrite::Changed);
        metrics.host_written(HostWrite::Changed);
        let text = process.encode().unwrap();
        for line in [
            "sip_cluster_agent_declarations_total{outcome=\"refused\"} 1",
            "sip_cluster_agent_host_writes_total{outcome=\"conflict\"} 2",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
