//! How often a site was reset to what is durable, and why.

use std::sync::{Arc, Mutex, PoisonError};

use crate::ledger::Commit;

/// How often a site was reset. Whoever reads the site and waits for the ledger compares it: what was read may not be so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resets(u64);

impl Resets {
    pub(super) fn new(number: u64) -> Self {
        Self(number)
    }

    pub(super) fn number(self) -> u64 {
        self.0
    }
}

/// The latest reset of a site.
#[derive(Debug, Default)]
pub(super) struct Latest(Mutex<State>);

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) number: u64,
    /// Number of the refused change.
    pub(super) commit: Commit,
    pub(super) cause: Arc<str>,
}

impl Latest {
    pub(super) fn state(&self) -> State {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records that the site is reset, since this change was refused.
    pub(super) fn count(&self, commit: Commit, cause: &str) {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *latest = State {
            number: latest.number + 1,
            commit,
            cause: cause.into(),
        };
    }
}
