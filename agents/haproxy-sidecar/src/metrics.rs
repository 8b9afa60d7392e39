//! Metrics of the sidecar.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use runtime::metrics::{Definition, Kind};

use crate::steps::Step;

const CHANGE: &str = "change";
const OUTCOME: &str = "outcome";
const DONE: &str = "done";
const REFUSED: &str = "refused";

/// Changes of servers.
pub const SERVER_CHANGES: Definition = Definition {
    name: "sip_haproxy_sidecar_server_changes_total",
    kind: Kind::Counter,
    labels: &[CHANGE],
    help: "Commands about servers sent to the running HAProxy, by kind: add, ready (admit connections), trust (count a server as up before its first check, since no other is left), drain (no new connections), cut (close the remaining connections), delete",
};
/// Reloads of HAProxy, by outcome.
pub const RELOADS: Definition = Definition {
    name: "sip_haproxy_sidecar_reloads_total",
    kind: Kind::Counter,
    labels: &[OUTCOME],
    help: "Reloads of HAProxy, by outcome: done, refused (the previous configuration still runs)",
};
/// Draining members.
pub const DRAINING: Definition = Definition {
    name: "sip_haproxy_sidecar_draining_members",
    kind: Kind::Gauge,
    labels: &[],
    help: "Members that have left the configuration and still have connections",
};

/// Every metric of the sidecar besides those of each process, in the order of the documentation.
pub const DEFINITIONS: [&Definition; 3] = [&SERVER_CHANGES, &RELOADS, &DRAINING];

/// The sidecar's metrics. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    changes: Family<[(&'static str, &'static str); 1], Counter>,
    reloads: Family<[(&'static str, &'static str); 1], Counter>,
    draining: Gauge,
}

impl Metrics {
    /// The metrics, registered with the process's.
    #[must_use]
    pub fn registered(metrics: &runtime::metrics::Metrics) -> Self {
        let this = Self::default();
        metrics.add(&SERVER_CHANGES, this.changes.clone());
        metrics.add(&RELOADS, this.reloads.clone());
        metrics.add(&DRAINING, this.draining.clone());
        this
    }

    pub(crate) fn count_changes(&self, steps: &[Step]) {
        for step in steps {
            let change = match step {
                Step::Add(..) => "add",
                Step::Ready(_) => "ready",
                Step::Trust(_) => "trust",
                Step::Drain(_) => "drain",
                Step::Cut(_) => "cut",
                Step::Delete(_) => "delete",
            };
            self.changes.get_or_create(&[(CHANGE, change)]).inc();
        }
    }

    pub(crate) fn reloaded(&self, refused: bool) {
        let outcome = if refused { REFUSED } else { DONE };
        self.reloads.get_or_create(&[(OUTCOME, outcome)]).inc();
    }

    pub(crate) fn set_draining(&self, members: usize) {
        self.draining.set(i64::try_from(members).unwrap_or(i64::MAX));
    }

    /// How many reloads were done.
    #[must_use]
    pub fn reloads(&self) -> u64 {
        self.reloads.get_or_create(&[(OUTCOME, DONE)]).get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_lists_every_haproxy_sidecar_metric() {
        let table = runtime::metrics::reference_table(&DEFINITIONS);
        assert!(
            include_str!("../../../docs/metrics.md").contains(&table),
            "{table}"
        );
    }
}
