//! What a rehearsal finds.

use serde::Serialize;

use crate::report::Remark;

/// What a restore would do to a site.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rehearsal {
    /// The site.
    pub site: String,
    /// Epoch and revision of the site in the export, `EPOCH.REVISION`.
    pub exported: String,
    /// The highest epoch and the highest revision that the site's statuses and release marks show, `EPOCH.REVISION`.
    pub observed: String,
    /// Where the scheduler would raise the site's position to, `EPOCH.REVISION`; none if the site shows nothing beyond the export.
    pub raised: Option<String>,
    /// Each cluster that the export or the site has, sorted by name.
    pub clusters: Vec<Rehearsed>,
    /// What is in conflict and concerns no cluster of the export or the site.
    pub conflicts: Vec<Remark>,
}

/// What a restore would do to one cluster.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rehearsed {
    /// The cluster, `namespace/name`.
    pub cluster: String,
    /// Hosts that it holds in the export, and by the site's labels or status; each with its role.
    pub keeps: Vec<String>,
    /// What the export does not know, or the site does not, and the scheduler brings in line without a loss.
    pub reported: Vec<Remark>,
    /// Claims that would be lost, replaced, or brought back though the site does not know them.
    pub conflicts: Vec<Remark>,
}

impl Rehearsal {
    /// Whether nothing is in conflict.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let Self {
            site: _,
            exported: _,
            observed: _,
            raised: _,
            clusters,
            conflicts,
        } = self;
        conflicts.is_empty() && clusters.iter().all(|cluster| cluster.conflicts.is_empty())
    }
}
