//! Metrics of sites, computed at each scrape.

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
use crate::{metrics as table, site::Site};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BySite {
    site: String,
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
    for (_, site) in region.sites() {
        sample.add(&site.read());
    }
    let Sample {
        synced,
        last_report,
        hosts,
        pending,
        oldest_pending,
        conflicts,
    } = &sample;
    table::SITE_SYNCED.encode(encoder, synced)?;
    table::SITE_LAST_REPORT.encode(encoder, last_report)?;
    table::HOSTS.encode(encoder, hosts)?;
    table::PENDING.encode(encoder, pending)?;
    table::OLDEST_PENDING.encode(encoder, oldest_pending)?;
    table::CONFLICTS.encode(encoder, conflicts)
}

impl Sample {
    fn add(&self, site: &Site) {
        let name = || site.name().to_owned();
        let by_site = BySite { site: name() };
        let synced = site.require_synced().is_ok();
        self.synced.get_or_create(&by_site).set(synced.into());
        if let Some(time) = site.summary().last_report {
            self.last_report.get_or_create(&by_site).set(seconds(time));
        }
        // Those that are held are fewer than hosts: what this takes does not grow with the site.
        let mut hosts: BTreeMap<&'static str, i64> = BTreeMap::new();
        let mut held = 0;
        for (_, holder) in site.model().holders().filter(|(id, _)| site.model().contains(id)) {
            *hosts.entry(state(holder)).or_default() += 1;
            held += 1;
        }
        let all = i64::try_from(site.hosts().len()).unwrap_or(i64::MAX);
        hosts.insert("free", all - held);
        // A state without hosts is 0, not absent.
        for state in ["free", "claimed", "bound", "releasing", "orphaned"] {
            let count = hosts.remove(state).unwrap_or_default();
            self.hosts
                .get_or_create(&ByState { site: name(), state })
                .set(count);
        }
        for record in site.records().values() {
            if let Some(refusal) = &record.refusal {
                let by = ByReason {
                    site: name(),
                    reason: refusal.kind.to_string(),
                };
                self.pending.get_or_create(&by).inc();
            }
            for conflict in &record.conflicts {
                let by = ByKind {
                    site: name(),
                    kind: conflict.kind.to_string(),
                };
                self.conflicts.get_or_create(&by).inc();
            }
        }
        let pending = site.records().values().filter(|record| record.refusal.is_some());
        if let Some(created) = pending.filter_map(|record| record.created).min() {
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
