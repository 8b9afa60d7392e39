//! The region: its sites behind their locks, and the ledger behind them.
//!
//! Every step that changes something goes the same way: reserve a place in the ledger's queue, lock the site, decide
//! and stage, unlock, and wait until the ledger is durable up to what the answer says. No lock is held while waiting.

mod policies;
mod reporting;
mod retries;

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::SystemTime,
};

use placement::{ClusterName, HostId};
use tokio::sync::Notify;

pub use reporting::Reporter;

use crate::{
    error::Error,
    ledger::{
        Contents, Ledger, Position,
        commit::{Committer, Permit, Stopped},
    },
    load,
    policy::{self, Policies},
    record::Record,
    site::{Apply, Author, Outcome, Site},
};

/// Name in the audit log of steps that no caller asked for.
const SELF: &str = "scheduler";

/// A site, and the signal that a cluster that waits may fit now.
#[derive(Debug)]
pub struct SharedSite {
    state: RwLock<Site>,
    retry: Notify,
}

impl SharedSite {
    fn new(site: Site) -> Self {
        Self {
            state: RwLock::new(site),
            retry: Notify::new(),
        }
    }

    /// Locks the site for a change. Never hold it across an await.
    pub fn lock(&self) -> RwLockWriteGuard<'_, Site> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the site for a look, together with others that only look. Never hold it across an await.
    pub fn read(&self) -> RwLockReadGuard<'_, Site> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All sites of a region. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Region {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    sites: RwLock<BTreeMap<String, Arc<SharedSite>>>,
    /// Told of each new site.
    appeared: Notify,
    policies: RwLock<Policies>,
    committer: Committer,
    clock: Clock,
}

/// What time it is.
struct Clock(Box<dyn Fn() -> SystemTime + Send + Sync>);

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clock").finish_non_exhaustive()
    }
}

impl Region {
    /// The region with what the ledger holds; no site is synced yet.
    #[must_use]
    pub fn new(contents: Contents, policies: Policies, committer: Committer) -> Self {
        Self::with_clock(contents, policies, committer, SystemTime::now)
    }

    /// The same, with another clock than the system's.
    #[must_use]
    pub fn with_clock(
        contents: Contents,
        policies: Policies,
        committer: Committer,
        clock: impl Fn() -> SystemTime + Send + Sync + 'static,
    ) -> Self {
        let Contents {
            position: _,
            records,
            mut removals,
            mut fences,
        } = contents;
        let mut by_site: BTreeMap<String, BTreeMap<ClusterName, Arc<Record>>> = BTreeMap::new();
        for name in fences.keys().chain(removals.keys()) {
            by_site.entry(name.clone()).or_default();
        }
        for (key, record) in records {
            by_site.entry(key.site).or_default().insert(key.cluster, record);
        }
        let sites = by_site
            .into_iter()
            .map(|(name, records)| {
                let fence = fences.remove(&name);
                let policy = policy::of(&policies, &name);
                let removed = removals.remove(&name).unwrap_or_default();
                let site = Site::new(name.clone(), policy, records, removed, fence);
                (name, Arc::new(SharedSite::new(site)))
            })
            .collect();
        let inner = Inner {
            sites: RwLock::new(sites),
            appeared: Notify::new(),
            policies: RwLock::new(policies),
            committer,
            clock: Clock(Box::new(clock)),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The ledger's queue.
    #[must_use]
    pub fn committer(&self) -> &Committer {
        &self.inner.committer
    }

    fn now(&self) -> SystemTime {
        (self.inner.clock.0)()
    }

    /// Every site, by name.
    #[must_use]
    pub fn sites(&self) -> BTreeMap<String, Arc<SharedSite>> {
        self.inner
            .sites
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// A site that has reported or that the ledger knows.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn site(&self, name: &str) -> Result<Arc<SharedSite>, Error> {
        let sites = self.inner.sites.read().unwrap_or_else(PoisonError::into_inner);
        sites.get(name).cloned().ok_or_else(|| Error::NotFound {
            what: format!("site {name:?}"),
        })
    }

    /// The site, for a call that must tell its agent to report first rather than that it does not exist.
    fn reporting_site(&self, name: &str) -> Result<Arc<SharedSite>, Error> {
        let why = "no cluster agent has reported it yet";
        self.site(name).map_err(|_| Error::NotSynced {
            site: name.to_owned(),
            why,
        })
    }

    fn site_or_new(&self, name: &str) -> Arc<SharedSite> {
        let mut sites = self.inner.sites.write().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let policy = self.policy_of(name);
            let site = Site::new(name.to_owned(), policy, BTreeMap::new(), 0, None);
            self.inner.appeared.notify_one();
            Arc::new(SharedSite::new(site))
        };
        Arc::clone(sites.entry(name.to_owned()).or_insert_with(new))
    }

    async fn reserve(&self) -> Result<Permit, Stopped> {
        self.inner.committer.reserve().await
    }

    /// A place in the ledger's queue for a caller who still waits for the answer.
    async fn reserve_in_time(&self) -> Result<Permit, Error> {
        let permit = self.reserve().await?;
        load::require_time()?;
        Ok(permit)
    }

    async fn durable(&self, outcome: Outcome) -> Result<Told, Error> {
        let position = self.inner.committer.durable(outcome.revision).await?;
        Ok(Told {
            record: outcome.record,
            epoch: position.epoch,
        })
    }

    /// [`Site::apply`], durably.
    ///
    /// # Errors
    /// As there, and [`Error::Stopped`].
    pub async fn apply(&self, site: &str, apply: Apply, caller: &str) -> Result<Told, Error> {
        let site = self.reporting_site(site)?;
        let permit = self.reserve_in_time().await?;
        let author = Author {
            caller,
            action: "apply",
            now: self.now(),
        };
        let outcome = site.lock().apply(apply, &author, permit)?;
        site.retry.notify_one();
        self.durable(outcome).await
    }

    /// [`Site::release`], durably.
    ///
    /// # Errors
    /// As there, and [`Error::Stopped`].
    pub async fn release(
        &self,
        site: &str,
        cluster: &ClusterName,
        uid: &str,
        caller: &str,
    ) -> Result<Told, Error> {
        let site = self.reporting_site(site)?;
        let permit = self.reserve_in_time().await?;
        let author = Author {
            caller,
            action: "release",
            now: self.now(),
        };
        let outcome = site.lock().release(cluster, uid, &author, permit)?;
        site.retry.notify_one();
        self.durable(outcome).await
    }

    /// [`Site::confirm`], durably.
    ///
    /// # Errors
    /// As there, and [`Error::Stopped`].
    pub async fn confirm(
        &self,
        site: &str,
        cluster: &ClusterName,
        uid: &str,
        released: &BTreeMap<HostId, u64>,
        caller: &str,
    ) -> Result<Told, Error> {
        let site = self.reporting_site(site)?;
        let permit = self.reserve_in_time().await?;
        let author = Author {
            caller,
            action: "confirm",
            now: self.now(),
        };
        let outcome = site.lock().confirm(cluster, uid, released, &author, permit)?;
        site.retry.notify_one();
        self.durable(outcome).await
    }

    /// [`Site::release_orphan`], durably.
    ///
    /// # Errors
    /// As there, and [`Error::Stopped`].
    pub async fn release_orphan(&self, site: &str, host: &HostId, caller: &str) -> Result<Told, Error> {
        let site = self.reporting_site(site)?;
        let permit = self.reserve_in_time().await?;
        let author = Author {
            caller,
            action: "release-orphan",
            now: self.now(),
        };
        let outcome = site.lock().release_orphan(host, &author, permit)?;
        self.durable(outcome).await
    }

    /// A cluster's record once it is durable, and not older than `at_least`.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Invalid`] for a revision of another epoch, [`Error::Stopped`].
    pub async fn placement(
        &self,
        site: &str,
        cluster: &ClusterName,
        uid: &str,
        at_least: Option<Position>,
    ) -> Result<Told, Error> {
        if let Some(asked) = at_least {
            let reached = self.inner.committer.durable(asked.revision).await?;
            if asked.epoch > reached.epoch {
                return Err(Error::Superseded {
                    what: format!("this ledger at {reached}"),
                    by: format!("revision {asked}, which was seen already"),
                });
            }
        }
        let not_found = || Error::NotFound {
            what: format!("cluster {cluster} in site {site:?}"),
        };
        let record = self.site(site)?.read().record(cluster).cloned();
        let record = record.filter(|record| uid.is_empty() || uid == record.uid);
        // That there is none may be so only since a change that is not durable yet.
        let staged = || self.inner.committer.staged().revision;
        let revision = record.as_ref().map_or_else(staged, |record| record.revision);
        let told = self.durable(Outcome { record, revision }).await?;
        if told.record.is_some() {
            Ok(told)
        } else {
            Err(not_found())
        }
    }
}

/// What may be told of a cluster: it is durable.
#[derive(Clone, Debug)]
pub struct Told {
    /// The record; `None` when the cluster holds nothing any more.
    pub record: Option<Arc<Record>>,
    /// Epoch of the ledger.
    pub epoch: u64,
}

/// Reads and writes of a ledger's log, off the async threads.
pub(crate) async fn decisions(
    ledger: Arc<dyn Ledger>,
    before: u64,
    limit: usize,
    wanted: impl Fn(&proto::placement::v1::Decision) -> bool + Send + 'static,
) -> Result<Vec<proto::placement::v1::Decision>, Error> {
    let read = tokio::task::spawn_blocking(move || ledger.decisions(before, limit, &wanted));
    match read.await {
        Ok(decisions) => Ok(decisions?),
        Err(_) => Err(Error::Stopped(Stopped)),
    }
}
