//! What is counted.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::steps::Step;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Change {
    change: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Kind {
    Add,
    Ready,
    Trust,
    Drain,
    Cut,
    Delete,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reload {
    result: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Outcome {
    Done,
    Refused,
}

/// What is counted.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    changes: Family<Change, Counter>,
    reloads: Family<Reload, Counter>,
    leaving: Gauge,
}

impl Metrics {
    /// Counts for a process.
    #[must_use]
    pub fn registered(metrics: &runtime::metrics::Metrics) -> Self {
        let own = Self::default();
        metrics.register(|registry| {
            let Self {
                changes,
                reloads,
                leaving,
            } = own.clone();
            registry.register(
                "sidecar_server_changes",
                "Changes that the running HAProxy was told",
                changes,
            );
            registry.register(
                "sidecar_reloads",
                "Times that HAProxy was told to read its configuration",
                reloads,
            );
            registry.register(
                "sidecar_members_leaving",
                "Members that are not wanted and still have connections",
                leaving,
            );
        });
        own
    }

    pub(crate) fn told(&self, steps: &[Step]) {
        for step in steps {
            let change = match step {
                Step::Add(..) => Kind::Add,
                Step::Ready(_) => Kind::Ready,
                Step::Trust(_) => Kind::Trust,
                Step::Drain(_) => Kind::Drain,
                Step::Cut(_) => Kind::Cut,
                Step::Delete(_) => Kind::Delete,
            };
            self.changes.get_or_create(&Change { change }).inc();
        }
    }

    pub(crate) fn reloaded(&self, refused: bool) {
        let result = if refused { Outcome::Refused } else { Outcome::Done };
        self.reloads.get_or_create(&Reload { result }).inc();
    }

    pub(crate) fn leaving(&self, members: usize) {
        self.leaving.set(i64::try_from(members).unwrap_or(i64::MAX));
    }

    /// How often HAProxy has read its configuration when it was told to.
    #[must_use]
    pub fn reloads(&self) -> u64 {
        let done = Reload {
            result: Outcome::Done,
        };
        self.reloads.get_or_create(&done).get()
    }
}
