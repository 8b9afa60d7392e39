//! Resets a site to what is durable after the storage has refused one of its changes. Other sites are not affected.

use std::sync::{Arc, Weak};

use super::{Inner, Region};
use crate::ledger::{Commit, Refusal};

/// Resets sites of a region, as long as there is one.
#[derive(Debug)]
pub struct Undo(Weak<Inner>);

impl Region {
    /// How sites are reset, by the ledger's thread: it does not keep the region alive.
    #[must_use]
    pub fn undo(&self) -> Undo {
        Undo(Arc::downgrade(&self.inner))
    }
}

impl Undo {
    /// Resets the site of a refused change to what is durable. Returns the last commit that was staged by then: nothing of
    /// the site is staged on what is forgotten after it.
    #[must_use]
    pub fn reset(&self, refusal: &Refusal<'_>) -> Commit {
        let Refusal {
            site: name,
            commit,
            cause,
            durable,
        } = refusal;
        let Some(inner) = self.0.upgrade() else {
            // The region is dropped, so nothing can be staged any more.
            return Commit::MAX;
        };
        let region = Region { inner };
        let Ok(shared) = region.site(name) else {
            return *commit;
        };
        let records = durable.records.iter().filter(|(key, _)| key.site == *name);
        let records = records
            .map(|(key, record)| (key.cluster.clone(), Arc::clone(record)))
            .collect();
        let mut site = shared.lock();
        let upto = region.committer().staged().max(*commit);
        let history = durable.histories.get(*name).copied().unwrap_or_default();
        site.reset(records, durable.fences.get(*name).cloned(), history, upto);
        // Who reads without the lock learns of the reset unless what it has read is of after it.
        site.publish();
        shared.reset.count(*commit, cause);
        upto
    }
}
