//! A site behind its lock.
//!
//! Tasks wait for the lock in the site's own queue, one after the other and without a thread, so that neither the calls nor the agents
//! of one site can use up threads that all sites share. What callers read of a site besides its decisions is published with each change,
//! and is read without the lock.

use std::{
    ops::{Bound, Deref, DerefMut},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError},
};

use runtime::quiet::Quiet;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::{Notify, Semaphore, watch},
};

use super::{
    copies::Copies,
    resets::{Latest, Resets, State},
    site_metrics::Counts,
};
use ::placement::ClusterName;

use crate::{
    error::Error,
    ledger::{Commit, History, Share, SitePosition},
    record::Record,
    site::{Outline, Site, Summary},
};

/// A site, and the signal that a cluster that waits may fit now.
#[derive(Debug)]
pub struct SharedSite {
    state: RwLock<Site>,
    outline: Mutex<Outline>,
    /// The queue for the lock: who is first in it holds its only place until it has the lock, and nobody overtakes.
    queue: Semaphore,
    /// The first in the queue may find the lock free.
    freed: Notify,
    counts: Mutex<Arc<Counts>>,
    pub(super) copies: Copies,
    /// Of the ledger's queue.
    pub(super) share: Share,
    pub(super) retry: Notify,
    /// Lines about its hosts: they come as often as its agent likes.
    pub(super) faults: Quiet,
    /// Lines about its reporters.
    pub(super) reporters: Quiet,
    pub(super) reset: Latest,
}

/// A site that is locked for a change. When this is dropped, what the change leaves is published.
#[derive(Debug)]
pub struct Changing<'a> {
    site: RwLockWriteGuard<'a, Site>,
    outline: &'a Mutex<Outline>,
    /// After the lock is free.
    _freed: Freed<'a>,
}

/// A site that is locked for reading.
#[derive(Debug)]
pub struct Reading<'a> {
    site: RwLockReadGuard<'a, Site>,
    /// After the lock is free.
    _freed: Freed<'a>,
}

/// Notifies the first in the queue when this is dropped.
#[derive(Debug)]
struct Freed<'a>(&'a Notify);

impl Drop for Freed<'_> {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Deref for Reading<'_> {
    type Target = Site;

    fn deref(&self) -> &Site {
        &self.site
    }
}

impl Deref for Changing<'_> {
    type Target = Site;

    fn deref(&self) -> &Site {
        &self.site
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut Site {
        &mut self.site
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        // While the site is locked: outlines follow each other as changes do.
        self.publish();
    }
}

impl Changing<'_> {
    /// Publishes what the change has left so far.
    pub(super) fn publish(&mut self) {
        self.site.outline(&mut lock(self.outline));
    }
}

fn lock(outline: &Mutex<Outline>) -> MutexGuard<'_, Outline> {
    outline.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedSite {
    pub(super) fn new(mut site: Site) -> Self {
        let mut outline = Outline::default();
        site.outline(&mut outline);
        Self {
            state: RwLock::new(site),
            outline: Mutex::new(outline),
            queue: Semaphore::new(1),
            freed: Notify::new(),
            counts: Mutex::default(),
            copies: Copies::default(),
            share: Share::default(),
            retry: Notify::new(),
            faults: Quiet::default(),
            reporters: Quiet::default(),
            reset: Latest::default(),
        }
    }

    /// Locks the site for a change, when it is this task's turn. Never hold it across an await.
    pub(super) async fn changing(&self) -> Changing<'_> {
        let _first = self.queue.acquire().await;
        loop {
            if let Some(site) = self.exclusive() {
                return site;
            }
            // What was told since it was looked for is not missed.
            self.freed.notified().await;
        }
    }

    /// Locks the site for reading, together with other readers, when it is this task's turn. Never hold it across an await.
    pub(crate) async fn reading(&self) -> Reading<'_> {
        let _first = self.queue.acquire().await;
        loop {
            if let Some(site) = self.shared() {
                return site;
            }
            self.freed.notified().await;
        }
    }

    /// Locks the site for a change, unless another caller has it or waits for it.
    pub(super) fn try_changing(&self) -> Option<Changing<'_>> {
        let _first = self.queue.try_acquire().ok()?;
        self.exclusive()
    }

    /// Locks the site for reading, unless another caller changes it or waits for it.
    pub(crate) fn try_reading(&self) -> Option<Reading<'_>> {
        let _first = self.queue.try_acquire().ok()?;
        self.shared()
    }

    /// Locks the site for a change, and keeps a thread until it has it: for threads that do nothing else. Never hold it across an
    /// await.
    pub fn lock(&self) -> Changing<'_> {
        self.exclusive().unwrap_or_else(|| {
            let site = run_blocking(|| self.state.write().unwrap_or_else(PoisonError::into_inner));
            self.changed(site)
        })
    }

    /// The same for reading, together with other readers.
    pub fn read(&self) -> Reading<'_> {
        self.shared().unwrap_or_else(|| {
            let site = run_blocking(|| self.state.read().unwrap_or_else(PoisonError::into_inner));
            self.read_locked(site)
        })
    }

    fn exclusive(&self) -> Option<Changing<'_>> {
        let site = match self.state.try_write() {
            Ok(site) => site,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(self.changed(site))
    }

    fn shared(&self) -> Option<Reading<'_>> {
        let site = match self.state.try_read() {
            Ok(site) => site,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(self.read_locked(site))
    }

    fn changed<'a>(&'a self, site: RwLockWriteGuard<'a, Site>) -> Changing<'a> {
        Changing {
            site,
            outline: &self.outline,
            _freed: Freed(&self.freed),
        }
    }

    fn read_locked<'a>(&'a self, site: RwLockReadGuard<'a, Site>) -> Reading<'a> {
        Reading {
            site,
            _freed: Freed(&self.freed),
        }
    }
}

/// What callers read besides decisions, and needs no lock: as the last change has left it.
impl SharedSite {
    /// A summary for people.
    pub(crate) fn summary(&self) -> Summary {
        lock(&self.outline).summary
    }

    /// About how many bytes a copy of its hosts takes.
    pub(super) fn copy_bytes(&self) -> usize {
        lock(&self.outline).copy
    }

    /// How to learn of changes of it that are durable now, or are refused.
    pub(crate) fn stored(&self) -> watch::Receiver<()> {
        self.share.stored()
    }

    /// At most so many records after a cluster, of one namespace unless it is empty; with the epoch of the site, and how recent that is when
    /// all up to `durable` is durable. They may not be durable yet.
    pub(crate) fn page(
        &self,
        from: Bound<ClusterName>,
        namespace: &str,
        most: usize,
        durable: Commit,
    ) -> (Vec<Arc<Record>>, u64, SitePosition, bool) {
        let outline = lock(&self.outline);
        let records = outline.records.range((from, Bound::Unbounded));
        let records = records
            .map(|(_, record)| record)
            .filter(|record| namespace.is_empty() || record.cluster.namespace().as_str() == namespace);
        let records = records.take(most).map(Arc::clone).collect();
        let (histories, synced) = (&outline.histories, outline.summary.synced);
        (
            records,
            histories.now().epoch(),
            histories.durable(durable),
            synced,
        )
    }

    /// How its revisions are numbered.
    pub(crate) fn history(&self) -> History {
        *lock(&self.outline).histories.now()
    }

    /// What there is of it for its metrics; while a caller changes it, as they were found last.
    pub(super) fn counts(&self) -> Arc<Counts> {
        let found = self.try_reading().map(|site| Arc::new(Counts::found(&site)));
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = found {
            *counts = found;
        }
        Arc::clone(&counts)
    }

    /// Its position when all up to `durable` is durable.
    pub(crate) fn position(&self, durable: Commit) -> SitePosition {
        lock(&self.outline).histories.durable(durable)
    }
}

impl SharedSite {
    /// How often the site was reset so far.
    pub(crate) fn resets(&self) -> Resets {
        Resets::new(self.reset.state().number)
    }

    /// Refuses to return what was read or decided before a reset.
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
pub(super) fn run_blocking<T>(work: impl FnOnce() -> T) -> T {
    let threads = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    if matches!(threads, Ok(RuntimeFlavor::MultiThread)) {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ::placement::Policy;
    use futures::FutureExt as _;

    use super::*;

    fn site() -> SharedSite {
        let (removed, history) = (Commit::NONE, History::default());
        let site = Site::new(
            "a".to_owned(),
            Policy::default(),
            BTreeMap::new(),
            removed,
            None,
            history,
        );
        SharedSite::new(site)
    }

    #[tokio::test]
    async fn who_waits_for_the_lock_is_not_overtaken() {
        let shared = site();
        let reads = shared.reading().await;
        assert!(shared.try_reading().is_some(), "readers read together");
        let mut change = Box::pin(shared.changing());
        assert!((&mut change).now_or_never().is_none());
        // Others who read do not keep who wants to change from it.
        let mut later = Box::pin(shared.reading());
        assert!((&mut later).now_or_never().is_none());
        assert!(shared.try_reading().is_none());
        drop(reads);
        let changes = (&mut change).now_or_never().unwrap();
        assert!((&mut later).now_or_never().is_none());
        drop((change, changes));
        assert!((&mut later).now_or_never().is_some());
    }

    #[tokio::test]
    async fn who_has_left_the_queue_holds_nobody_up() {
        let shared = site();
        let changes = shared.changing().await;
        let mut first = Box::pin(shared.changing());
        let mut second = Box::pin(shared.changing());
        assert!((&mut first).now_or_never().is_none());
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        drop(changes);
        assert!((&mut second).now_or_never().is_some());
    }
}
