//! How many calls there were, and what became of them.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};
use runtime::metrics::Metrics;

use crate::call::Call;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCode {
    call: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCall {
    call: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByLimit {
    call: &'static str,
    limit: &'static str,
}

/// Metrics of calls. Cheap to clone. Identities are no labels: a caller could make any number of them.
#[derive(Clone, Debug, Default)]
pub struct CallMetrics {
    ended: Family<ByCode, Counter>,
    under_way: Family<ByCall, Gauge>,
    denied: Family<ByCall, Counter>,
    shed: Family<ByLimit, Counter>,
}

impl CallMetrics {
    /// The metrics, registered in `metrics`.
    #[must_use]
    pub fn registered(metrics: &Metrics) -> Self {
        let this = Self::default();
        let Self {
            ended,
            under_way,
            denied,
            shed,
        } = &this;
        metrics.register(|registry| {
            registry.register(
                "calls",
                "Calls and streams that have ended, by status code",
                ended.clone(),
            );
            registry.register(
                "calls_under_way",
                "Calls and streams under way",
                under_way.clone(),
            );
            registry.register(
                "calls_denied",
                "Calls that their identity may not make",
                denied.clone(),
            );
            registry.register(
                "calls_shed",
                "Calls that were refused because their identity was at a limit",
                shed.clone(),
            );
        });
        this
    }

    pub(super) fn begun(&self, call: Call) {
        let by = ByCall { call: call.name() };
        self.under_way.get_or_create(&by).inc();
    }

    pub(super) fn ended(&self, call: Call, code: &'static str) {
        let call = call.name();
        self.under_way.get_or_create(&ByCall { call }).dec();
        self.ended.get_or_create(&ByCode { call, code }).inc();
    }

    pub(super) fn denied(&self, call: &'static str) {
        self.denied.get_or_create(&ByCall { call }).inc();
    }

    pub(super) fn shed(&self, call: &'static str, limit: &'static str) {
        self.shed.get_or_create(&ByLimit { call, limit }).inc();
    }
}
