//! When the last record of each site was removed, out of a log from before the ledger kept it.

use std::collections::BTreeMap;

use prost::Message as _;
use proto::placement::v1 as api;

/// What the entries that were looked at tell, from the oldest to the newest. Every change of a record has one, so the newest of
/// a site is not older than its last removal, and what a site has seen is not newer.
#[derive(Debug, Default)]
pub(crate) struct Told(BTreeMap<String, u64>);

impl Told {
    /// Looks at the next entry. One that cannot be read tells nothing.
    pub(crate) fn look(&mut self, revision: u64, entry: &[u8]) {
        if let Ok(decision) = api::Decision::decode(entry)
            && decision.cluster.is_some()
        {
            self.0.insert(decision.site, revision);
        }
    }

    /// By site.
    pub(crate) fn by_site(self) -> BTreeMap<String, u64> {
        self.0
    }
}
