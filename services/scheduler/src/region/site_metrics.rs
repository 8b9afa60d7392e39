//! Computes the metrics of sites at each scrape; [`crate::metrics`] defines them. No scrape waits for a site that is at work.

use std::{
    collections::BTreeMap,
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

use ::placement::{Holder, MemberState};
use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeLabelSet},
    metrics::{family::Family, gauge::Gauge},
};

use super::Region;
use crate::{
    metrics as table,
    site::{Site, Summary},
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BySite {
    site: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByContents {
    site: String,
    contents: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByState {
    site: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    site: String,
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByKind {
    site: String,
    kind: String,
}

/// What the sites of a region look like at one scrape.
#[derive(Debug, Default)]
struct Sample {
    synced: Family<BySite, Gauge>,
    last_report: Family<BySite, Gauge>,
    memory: Family<ByContents, Gauge>,
    hosts: Family<ByState, Gauge>,
    pending: Family<ByReason, Gauge>,
    oldest_pending: Family<BySite, Gauge>,
    conflicts: Family<ByKind, Gauge>,
}

/// Encodes the metrics of the sites of a region.
///
/// # Errors
/// When they fail to encode themselves.
pub(crate) fn encode(region: &Region, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let sample = Sample::default();
    for (name, site) in region.sites() {
        sample.add(&name, &site.summary(), &site.counts());
    }
    let Sample {
        synced,
        last_report,
        memory,
        hosts,
        pending,
        oldest_pending,
        conflicts,
    } = &sample;
    table::SITE_SYNCED.encode(encoder, synced)?;
    table::SITE_LAST_REPORT.encode(encoder, last_report)?;
    table::SITE_MEMORY.encode(encoder, memory)?;
    table::HOSTS.encode(encoder, hosts)?;
    table::PENDING.encode(encoder, pending)?;
    table::OLDEST_PENDING.encode(encoder, oldest_pending)?;
    table::CONFLICTS.encode(encoder, conflicts)
}

/// What there is of a site.
#[derive(Debug, Default)]
pub(super) struct Counts {
    hosts: BTreeMap<&'static str, i64>,
    pending: BTreeMap<String, i64>,
    oldest_pending: Option<SystemTime>,
    conflicts: BTreeMap<String, i64>,
}

impl Counts {
    /// Of this site. What this takes grows with what is held and with records, not with hosts.
    pub(super) fn found(site: &Site) -> Self {
        let mut counts = Self::default();
        let mut held = 0;
        for (_, holder) in site.model().holders().filter(|(id, _)| site.model().contains(id)) {
            *counts.hosts.entry(state(holder)).or_default() += 1;
            held += 1;
        }
        let all = i64::try_from(site.hosts().len()).unwrap_or(i64::MAX);
        counts.hosts.insert("free", all - held);
        for record in site.records().values() {
            if let Some(refusal) = &record.refusal {
                *counts.pending.entry(refusal.kind.to_string()).or_default() += 1;
            }
            for conflict in &record.conflicts {
                *counts.conflicts.entry(conflict.kind.to_string()).or_default() += 1;
            }
        }
        let pending = site.records().values().filter(|record| record.refusal.is_some());
        counts.oldest_pending = pending.filter_map(|record| record.created).min();
        counts
    }
}

impl Sample {
    fn add(&self, name: &str, summary: &Summary, counts: &Counts) {
        let name = || name.to_owned();
        let by_site = BySite { site: name() };
        self.synced.get_or_create(&by_site).set(summary.synced.into());
        if let Some(time) = summary.last_report {
            self.last_report.get_or_create(&by_site).set(seconds(time));
        }
        let memory = [
            ("inventory", summary.inventory_bytes),
            ("records", summary.record_bytes),
        ];
        for (contents, bytes) in memory {
            let by = ByContents {
                site: name(),
                contents,
            };
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            self.memory.get_or_create(&by).set(bytes);
        }
        // A state without hosts is 0, not absent.
        for state in ["free", "claimed", "bound", "releasing", "orphaned"] {
            let count = counts.hosts.get(state).copied().unwrap_or_default();
            self.hosts
                .get_or_create(&ByState { site: name(), state })
                .set(count);
        }
        for (reason, count) in &counts.pending {
            let by = ByReason {
                site: name(),
                reason: reason.clone(),
            };
            self.pending.get_or_create(&by).set(*count);
        }
        for (kind, count) in &counts.conflicts {
            let by = ByKind {
                site: name(),
                kind: kind.clone(),
            };
            self.conflicts.get_or_create(&by).set(*count);
        }
        if let Some(created) = counts.oldest_pending {
            self.oldest_pending.get_or_create(&by_site).set(seconds(created));
        }
    }
}

fn state(holder: &Holder) -> &'static str {
    match holder {
        Holder::Orphaned => "orphaned",
        Holder::Cluster {
            state,
            cluster: _,
            role: _,
        } => match state {
            MemberState::Claimed => "claimed",
            MemberState::Bound => "bound",
            MemberState::Releasing => "releasing",
        },
    }
}

/// Seconds since 1970.
fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
