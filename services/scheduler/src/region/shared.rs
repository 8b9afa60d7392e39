//! A site behind its lock.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use runtime::quiet::Quiet;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::Notify,
};

use super::resets::{Latest, Resets, State};
use crate::{
    error::Error,
    ledger::{Commit, Share},
    site::Site,
};

/// A site, and the signal that a cluster that waits may fit now.
#[derive(Debug)]
pub struct SharedSite {
    state: RwLock<Site>,
    /// Of the ledger's queue.
    pub(super) share: Share,
    pub(super) retry: Notify,
    /// Lines about its hosts: they come as often as its agent likes.
    pub(super) faults: Quiet,
    /// Lines about its reporters.
    pub(super) reporters: Quiet,
    pub(super) reset: Latest,
}

impl SharedSite {
    pub(super) fn new(site: Site) -> Self {
        Self {
            state: RwLock::new(site),
            share: Share::default(),
            retry: Notify::new(),
            faults: Quiet::default(),
            reporters: Quiet::default(),
            reset: Latest::default(),
        }
    }

    /// Locks the site for a change. Never hold it across an await.
    pub fn lock(&self) -> RwLockWriteGuard<'_, Site> {
        match self.state.try_write() {
            Ok(site) => site,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                aside(|| self.state.write().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }

    /// Locks the site for reading, together with other readers. Never hold it across an await.
    pub fn read(&self) -> RwLockReadGuard<'_, Site> {
        match self.state.try_read() {
            Ok(site) => site,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                aside(|| self.state.read().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }
}

impl SharedSite {
    /// How often the site was reset so far.
    pub(crate) fn resets(&self) -> Resets {
        Resets::new(self.reset.state().number)
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
        if number == since.number() {
            Ok(())
        } else if commit == refused {
            Err(Error::Refused { cause: cause() })
        } else {
            Err(Error::SiteReset { cause: cause() })
        }
    }
}

/// Does what may take long while another thread takes over the other tasks of this one, so that waiting for one site, or deciding in it,
/// delays no other site.
pub(super) fn aside<T>(work: impl FnOnce() -> T) -> T {
    let threads = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    if matches!(threads, Ok(RuntimeFlavor::MultiThread)) {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}
