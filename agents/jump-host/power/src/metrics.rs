//! Metrics of power control.

use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};
use runtime::metrics::{Definition, Kind, Metrics};

const METHOD: &str = "method";
const ACTION: &str = "action";
const OUTCOME: &str = "outcome";

/// Calls that were answered.
pub const CALLS: Definition = Definition {
    name: "sip_power_calls_total",
    kind: Kind::Counter,
    labels: &[METHOD, OUTCOME],
    help: "Calls of PowerService that were answered, by outcome: ok, or the reason of the refusal",
};
/// Actions that have ended.
pub const ACTIONS: Definition = Definition {
    name: "sip_power_actions_total",
    kind: Kind::Counter,
    labels: &[ACTION, OUTCOME],
    help: "Actions of PowerService that have ended, by outcome: ok, or the reason of the failure",
};
/// Actions in progress.
pub const IN_PROGRESS: Definition = Definition {
    name: "sip_power_actions_in_progress",
    kind: Kind::Gauge,
    labels: &[],
    help: "Actions of PowerService in progress",
};

/// Every metric of power control, in the order of the documentation.
pub const DEFINITIONS: [&Definition; 3] = [&CALLS, &ACTIONS, &IN_PROGRESS];

/// Metrics of power control. Cheap to clone. Callers and hosts are no labels: there may be any number of them.
#[derive(Clone, Debug, Default)]
pub struct PowerMetrics {
    calls: Family<[(&'static str, String); 2], Counter>,
    actions: Family<[(&'static str, String); 2], Counter>,
    in_progress: Gauge,
}

/// An outcome as the value of a label.
fn labelled(outcome: &str) -> (&'static str, String) {
    (OUTCOME, outcome.to_ascii_lowercase())
}

impl PowerMetrics {
    /// The metrics, registered in `metrics`.
    #[must_use]
    pub fn registered(metrics: &Metrics) -> Self {
        let this = Self::default();
        metrics.add(&CALLS, this.calls.clone());
        metrics.add(&ACTIONS, this.actions.clone());
        metrics.add(&IN_PROGRESS, this.in_progress.clone());
        this
    }

    /// Counts a call that was answered.
    pub(crate) fn answered(&self, method: &str, outcome: &str) {
        let labels = [(METHOD, method.to_owned()), labelled(outcome)];
        self.calls.get_or_create(&labels).inc();
    }

    /// Counts an action that begins.
    pub(crate) fn begun(&self) {
        self.in_progress.inc();
    }

    /// Counts an action that has ended.
    pub(crate) fn ended(&self, action: &str, outcome: &str) {
        self.in_progress.dec();
        let labels = [(ACTION, action.to_owned()), labelled(outcome)];
        self.actions.get_or_create(&labels).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_lists_every_power_metric() {
        let table = runtime::metrics::reference_table(&DEFINITIONS);
        assert!(
            include_str!("../../../../docs/metrics.md").contains(&table),
            "{table}"
        );
    }
}
