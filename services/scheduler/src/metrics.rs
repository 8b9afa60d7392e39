//! The scheduler's metrics, in one table. `docs/metrics.md` is held to it.

use runtime::metrics::{Definition, Kind};

/// Calls and streams that have ended, by gRPC status code.
pub const CALLS: Definition = Definition {
    name: "sip_scheduler_calls_total",
    kind: Kind::Counter,
    labels: &["method", "code"],
    help: "Calls and streams that have ended, by gRPC status code",
};
/// Calls and streams in progress.
pub const CALLS_IN_PROGRESS: Definition = Definition {
    name: "sip_scheduler_calls_in_progress",
    kind: Kind::Gauge,
    labels: &["method"],
    help: "Calls and streams in progress",
};
/// Calls of identities that are not authorized for them.
pub const CALLS_DENIED: Definition = Definition {
    name: "sip_scheduler_calls_denied_total",
    kind: Kind::Counter,
    labels: &["method"],
    help: "Calls of identities that are not authorized for them",
};
/// Calls that were refused because a limit was reached.
pub const CALLS_SHED: Definition = Definition {
    name: "sip_scheduler_calls_shed_total",
    kind: Kind::Counter,
    labels: &["method", "limit"],
    help: "Calls that were refused because a limit was reached",
};
/// Connections that were ended because their caller exceeded a limit by far.
pub const DISCONNECTIONS: Definition = Definition {
    name: "sip_scheduler_disconnections_total",
    kind: Kind::Counter,
    labels: &["cause"],
    help: "Connections that the scheduler closed, by cause: rate, denials, identities (the caller exceeded this limit by far), unread (the caller left too many answers unread)",
};
/// Time for which a change waits for a place in the ledger's queue.
pub const QUEUE_WAIT: Definition = Definition {
    name: "sip_scheduler_queue_wait_duration_seconds",
    kind: Kind::Histogram,
    labels: &[],
    help: "Time for which a change waits for a place in the ledger's queue",
};
/// Time in which one decision is made.
pub const DECISION: Definition = Definition {
    name: "sip_scheduler_decision_duration_seconds",
    kind: Kind::Histogram,
    labels: &["action"],
    help: "Time that one decision takes, by action; decisions of plan and capacity claim nothing",
};
/// Time in which one batch of changes is stored durably, fsync included.
pub const COMMIT: Definition = Definition {
    name: "sip_scheduler_commit_duration_seconds",
    kind: Kind::Histogram,
    labels: &[],
    help: "Time in which one batch of changes is stored durably, fsync included",
};
/// Changes in one batch.
pub const BATCH: Definition = Definition {
    name: "sip_scheduler_commit_batch_changes",
    kind: Kind::Histogram,
    labels: &[],
    help: "Changes in one batch",
};
/// Panics of the scheduler's own work for a site.
pub const SITE_PANICS: Definition = Definition {
    name: "sip_scheduler_site_panics_total",
    kind: Kind::Counter,
    labels: &["site", "work"],
    help: "Panics of the scheduler's own work for a site; the work is retried",
};
/// 1 while this process may write the ledger, otherwise 0.
pub const LEADER: Definition = Definition {
    name: "sip_scheduler_is_leader",
    kind: Kind::Gauge,
    labels: &[],
    help: "1 while this process may write the ledger, otherwise 0",
};
/// Terms in which this process could write the ledger, the present one included.
pub const TERMS: Definition = Definition {
    name: "sip_scheduler_terms_total",
    kind: Kind::Counter,
    labels: &[],
    help: "Terms in which this process could write the ledger, the present one included",
};
/// Changes of the leader that this process has observed.
pub const LEADER_CHANGES: Definition = Definition {
    name: "sip_scheduler_leader_changes_total",
    kind: Kind::Counter,
    labels: &[],
    help: "Changes of the leader that this process has observed",
};
/// Size of the ledger's file, in bytes; absent on etcd, which reports its own size.
pub const LEDGER_BYTES: Definition = Definition {
    name: "sip_scheduler_ledger_bytes",
    kind: Kind::Gauge,
    labels: &[],
    help: "Size of the ledger's file, in bytes; absent on etcd, which reports its own size",
};
/// Size of the database of the ledger's etcd, in bytes.
pub const ETCD_BYTES: Definition = Definition {
    name: "sip_scheduler_ledger_etcd_bytes",
    kind: Kind::Gauge,
    labels: &[],
    help: "Size of the database of the ledger's etcd, in bytes, as a member of etcd reports it; absent on a file, and while this process is not the leader",
};
/// Size at which the ledger's etcd takes nothing more, in bytes.
pub const ETCD_QUOTA: Definition = Definition {
    name: "sip_scheduler_ledger_etcd_quota_bytes",
    kind: Kind::Gauge,
    labels: &[],
    help: "Size from which on the ledger's etcd refuses writes, in bytes; 2 GiB if etcd does not report it",
};
/// Age of the newest complete export in the backup directory, in seconds; infinite when there is none, or when each has a time in the future.
pub const BACKUP_AGE: Definition = Definition {
    name: "sip_scheduler_ledger_backup_age_seconds",
    kind: Kind::Gauge,
    labels: &[],
    help: "Age of the newest complete export in the backup directory, in seconds; infinite when there is none, or when each has a time in the future",
};
/// Exports written.
pub const BACKUPS_WRITTEN: Definition = Definition {
    name: "sip_scheduler_ledger_backups_written_total",
    kind: Kind::Counter,
    labels: &[],
    help: "Exports written",
};
/// Exports that failed.
pub const BACKUPS_FAILED: Definition = Definition {
    name: "sip_scheduler_ledger_backups_failed_total",
    kind: Kind::Counter,
    labels: &[],
    help: "Exports that failed",
};
/// 1 while the site's snapshot is complete and its stream up, otherwise 0.
pub const SITE_SYNCED: Definition = Definition {
    name: "sip_scheduler_site_synced",
    kind: Kind::Gauge,
    labels: &["site"],
    help: "1 while the site's snapshot is complete and its stream up, otherwise 0",
};
/// Time of the site's last report, in seconds since 1970; absent before the first one to this process.
pub const SITE_LAST_REPORT: Definition = Definition {
    name: "sip_scheduler_site_last_report_timestamp_seconds",
    kind: Kind::Gauge,
    labels: &["site"],
    help: "Time of the site's last report, in seconds since 1970; absent before the first one to this process",
};
/// About how much memory a site takes, in bytes: what it reports, and its records.
pub const SITE_MEMORY: Definition = Definition {
    name: "sip_scheduler_site_memory_bytes",
    kind: Kind::Gauge,
    labels: &["site", "contents"],
    help: "Approximate memory that a site takes, in bytes, by contents: inventory (what the site reports) or records (of the ledger)",
};
/// Reported hosts by the state of their claim: claimed, bound, releasing, orphaned or free; free includes hosts that are not eligible.
pub const HOSTS: Definition = Definition {
    name: "sip_scheduler_hosts",
    kind: Kind::Gauge,
    labels: &["site", "state"],
    help: "Reported hosts by the state of their claim: claimed, bound, releasing, orphaned or free; free includes hosts that are not eligible",
};
/// `SIPCluster`s that do not hold all hosts that they want, by kind of refusal.
pub const PENDING: Definition = Definition {
    name: "sip_scheduler_clusters_pending",
    kind: Kind::Gauge,
    labels: &["site", "reason"],
    help: "SIPClusters that were refused and wait for hosts, by kind of refusal",
};
/// Creation of the oldest pending `SIPCluster`, in seconds since 1970; absent when none is pending.
pub const OLDEST_PENDING: Definition = Definition {
    name: "sip_scheduler_oldest_pending_cluster_created_timestamp_seconds",
    kind: Kind::Gauge,
    labels: &["site"],
    help: "Creation of the oldest pending SIPCluster, in seconds since 1970; absent when none is pending",
};
/// Contradictions between the ledger and what the site reports.
pub const CONFLICTS: Definition = Definition {
    name: "sip_scheduler_conflicts",
    kind: Kind::Gauge,
    labels: &["site", "kind"],
    help: "Contradictions between the ledger and what the site reports",
};

/// Every metric of the scheduler besides those of each process, in the order of the documentation.
pub const DEFINITIONS: [&Definition; 26] = [
    &CALLS,
    &CALLS_IN_PROGRESS,
    &CALLS_DENIED,
    &CALLS_SHED,
    &DISCONNECTIONS,
    &QUEUE_WAIT,
    &DECISION,
    &COMMIT,
    &BATCH,
    &SITE_PANICS,
    &LEADER,
    &TERMS,
    &LEADER_CHANGES,
    &LEDGER_BYTES,
    &ETCD_BYTES,
    &ETCD_QUOTA,
    &BACKUP_AGE,
    &BACKUPS_WRITTEN,
    &BACKUPS_FAILED,
    &SITE_SYNCED,
    &SITE_LAST_REPORT,
    &SITE_MEMORY,
    &HOSTS,
    &PENDING,
    &OLDEST_PENDING,
    &CONFLICTS,
];

#[cfg(test)]
mod tests {
    use runtime::metrics;

    use super::*;

    const DOCUMENT: &str = include_str!("../../../docs/metrics.md");

    #[test]
    fn the_reference_has_these_tables() {
        for definitions in [&DEFINITIONS[..], &metrics::DEFINITIONS] {
            let table = metrics::reference_table(definitions);
            assert!(DOCUMENT.contains(&table), "{table}");
        }
    }
}
