//! A change that the storage refuses takes its site back to what is durable; no other site notices.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{Inner, Region, SharedSite};
use crate::{
    error::Error,
    ledger::{Commit, Refusal},
};

/// How often a site was reset. Whoever reads the site and waits for the ledger compares it: what was read may not be so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resets(u64);

/// The latest reset of a site.
#[derive(Debug, Default)]
pub(super) struct Latest(Mutex<State>);

#[derive(Clone, Debug, Default)]
struct State {
    number: u64,
    /// Number of the refused change.
    commit: Commit,
    cause: Arc<str>,
}

impl Latest {
    fn state(&self) -> State {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl SharedSite {
    /// How often the site was reset so far.
    pub(crate) fn resets(&self) -> Resets {
        Resets(self.reset.state().number)
    }

    /// Refuses to tell what was read or decided before a reset.
    ///
    /// # Errors
    /// [`Error::Refused`] for the change that the storage has refused, [`Error::SiteReset`] for all others.
    pub(crate) fn require_kept(&self, since: Resets, commit: Commit) -> Result<(), Error> {
        let State {
            number,
            commit: refused,
            cause,
        } = self.reset.state();
        let cause = || cause.to_string();
        if number == since.0 {
            Ok(())
        } else if commit == refused {
            Err(Error::Refused { cause: cause() })
        } else {
            Err(Error::SiteReset { cause: cause() })
        }
    }
}

/// Resets sites of a region, as long as there is one.
#[derive(Debug)]
pub struct Undo(Weak<Inner>);

impl Region {
    /// How sites are reset, by the ledger's thread: it does not keep the region alive.
    #[must_use]
    pub fn undo(&self) -> Undo {
        Undo(Arc::downgrade(&self.inner))
    }

    /// How often sites were reset so far, all together.
    #[must_use]
    pub fn resets(&self) -> Resets {
        Resets(self.sites().values().map(|site| site.resets().0).sum())
    }

    /// Refuses to tell what was read before a site was reset.
    ///
    /// # Errors
    /// [`Error::SiteReset`].
    pub fn require_kept(&self, since: Resets) -> Result<(), Error> {
        if self.resets() == since {
            return Ok(());
        }
        Err(Error::SiteReset {
            cause: "the storage has refused a change of a site".to_owned(),
        })
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
            // Nobody is left who could stage anything.
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
        {
            let mut latest = shared.reset.0.lock().unwrap_or_else(PoisonError::into_inner);
            *latest = State {
                number: latest.number + 1,
                commit: *commit,
                cause: (*cause).into(),
            };
        }
        let history = durable.histories.get(*name).copied().unwrap_or_default();
        site.reset(records, durable.fences.get(*name).cloned(), history, upto);
        upto
    }
}
