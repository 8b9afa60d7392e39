//! The changes that one call stages, for the audit log: what a method may change does not say whether a call of it has changed anything.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use super::Change;

/// Counts the changes that one call stages. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct CallChanges(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    count: AtomicU64,
    /// The site of the first one.
    site: OnceLock<String>,
}

impl CallChanges {
    /// Counts one more.
    pub(super) fn add(&self, change: &Change) {
        self.0.site.get_or_init(|| change.site().to_owned());
        self.0.count.fetch_add(1, Ordering::Relaxed);
    }

    /// How many the call has staged so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.count.load(Ordering::Relaxed)
    }

    /// The site of the first one; `None` until there is one.
    #[must_use]
    pub fn site(&self) -> Option<&str> {
        self.0.site.get().map(String::as_str)
    }
}
