//! Metrics of the Dex agent besides those of every agent, in one table. `docs/metrics.md` is held to it.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::{counter::Counter, gauge::Gauge};
use runtime::metrics::{Definition, Kind, Metrics};

/// Bytes in use in the storage.
const STORAGE_IN_USE: Definition = Definition {
    name: "sip_dex_agent_storage_in_use_bytes",
    kind: Kind::Gauge,
    labels: &[],
    help: "Bytes in use in the etcd of the identity providers, in the fullest member",
};
/// Bytes that the storage may take.
const STORAGE_QUOTA: Definition = Definition {
    name: "sip_dex_agent_storage_quota_bytes",
    kind: Kind::Gauge,
    labels: &[],
    help: "Bytes that this etcd may store; from half of them on, the oldest unfinished logins are removed",
};
/// Unfinished logins that the agent has removed.
const REMOVED_LOGINS: Definition = Definition {
    name: "sip_dex_agent_removed_logins_total",
    kind: Kind::Counter,
    labels: &[],
    help: "Unfinished logins that were removed, since a provider had too many or half of etcd's quota was in use",
};
/// Providers whose unfinished logins the agent could not check.
const UNCHECKED_PROVIDERS: Definition = Definition {
    name: "sip_dex_agent_unchecked_providers",
    kind: Kind::Gauge,
    labels: &[],
    help: "Identity providers whose unfinished logins the agent could not check the last time; the log names the first",
};

/// Every metric of the Dex agent, in the order of the documentation.
pub const DEFINITIONS: [&Definition; 4] = [
    &STORAGE_IN_USE,
    &STORAGE_QUOTA,
    &REMOVED_LOGINS,
    &UNCHECKED_PROVIDERS,
];

/// The metrics of the storage. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct StorageMetrics {
    in_use: Gauge<u64, AtomicU64>,
    quota: Gauge<u64, AtomicU64>,
    removed: Counter,
    unchecked: Gauge<u64, AtomicU64>,
}

impl StorageMetrics {
    /// The metrics, registered with the process's.
    #[must_use]
    pub fn registered(metrics: &Metrics) -> Self {
        let this = Self::default();
        metrics.add(&STORAGE_IN_USE, this.in_use.clone());
        metrics.add(&STORAGE_QUOTA, this.quota.clone());
        metrics.add(&REMOVED_LOGINS, this.removed.clone());
        metrics.add(&UNCHECKED_PROVIDERS, this.unchecked.clone());
        this
    }

    /// Sets how many bytes the storage has in use, and how many it may take.
    pub(crate) fn set_space(&self, in_use: u64, quota: u64) {
        self.in_use.set(in_use);
        self.quota.set(quota);
    }

    /// Bytes that the storage had in use, when it was observed last.
    #[must_use]
    pub fn in_use_bytes(&self) -> u64 {
        self.in_use.get()
    }

    /// Counts unfinished logins that the agent has removed.
    pub(crate) fn count_removed(&self, logins: u64) {
        self.removed.inc_by(logins);
    }

    /// Sets for how many providers the agent could not check the unfinished logins.
    pub(crate) fn set_unchecked(&self, providers: usize) {
        self.unchecked.set(u64::try_from(providers).unwrap_or(u64::MAX));
    }

    /// How many unfinished logins the agent has removed.
    #[must_use]
    pub fn removed_logins(&self) -> u64 {
        self.removed.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_lists_every_dex_agent_metric() {
        let table = runtime::metrics::reference_table(&DEFINITIONS);
        assert!(
            include_str!("../../../docs/metrics.md").contains(&table),
            "{table}"
        );
    }
}
