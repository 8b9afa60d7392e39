//! What is counted of polls.

use prometheus_client::metrics::{counter::Counter, family::Family};
use runtime::metrics::{Definition, Kind};

use super::Problem;

const OUTCOME: &str = "outcome";

/// Polls of tenants' API servers.
pub const POLLS: Definition = Definition {
    name: "sip_cluster_agent_tenant_polls_total",
    kind: Kind::Counter,
    labels: &[OUTCOME],
    help: "Polls of tenants' API servers for their Nodes, by outcome: answered, unanswered, refused (also where no kubeconfig can be used)",
};

/// Counts polls. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Polls(Family<[(&'static str, &'static str); 1], Counter>);

impl Polls {
    /// Counts that are exported with the metrics of the process.
    #[must_use]
    pub fn registered(metrics: &runtime::metrics::Metrics) -> Self {
        let this = Self::default();
        metrics.add(&POLLS, this.0.clone());
        this
    }

    /// A poll has ended.
    pub(super) fn ended(&self, problem: Option<&Problem>) {
        let outcome = match problem {
            None => "answered",
            Some(Problem { passes: true, .. }) => "unanswered",
            Some(Problem { passes: false, .. }) => "refused",
        };
        self.0.get_or_create(&[(OUTCOME, outcome)]).inc();
    }
}
