//! When the last record of each site was removed, out of a log from before the ledger kept it.

use std::collections::BTreeMap;

use prost::Message as _;
use proto::placement::v1 as api;

use super::Commit;

/// What the entries that were added tell, from the oldest to the newest. Every change of a record has one, so the newest of
/// a site is not older than its last removal, and what a site has seen is not newer.
#[derive(Debug, Default)]
pub(crate) struct Removals(BTreeMap<String, Commit>);

impl Removals {
    /// Adds the next entry. One that cannot be read tells nothing.
    pub(crate) fn add(&mut self, commit: Commit, entry: &[u8]) {
        if let Ok(decision) = api::Decision::decode(entry)
            && decision.cluster.is_some()
        {
            self.0.insert(decision.site, commit);
        }
    }

    /// By site.
    pub(crate) fn by_site(self) -> BTreeMap<String, Commit> {
        self.0
    }
}
