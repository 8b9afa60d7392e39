//! The region: its sites behind their locks, and the ledger behind them.
//!
//! Every step that changes something goes the same way: reserve a place in the ledger's queue, lock the site, decide
//! and stage, unlock, and wait until the ledger is durable up to what the answer says. No lock is held while waiting.

mod answers;
mod caller_permits;
mod clock;
mod contained;
mod cooldowns;
mod copies;
mod copy_memory;
mod deciding;
#[cfg(test)]
pub(crate) mod fixtures;
mod pending_clusters;
mod policies;
mod reading;
mod reporting;
mod resets;
mod shared;
mod site_metrics;
mod undo;

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
    time::SystemTime,
};

use placement::{ClusterName, HostId};
use tokio::sync::Notify;

pub(crate) use answers::Answers;
pub(crate) use caller_permits::SLICE_DURATION;
pub use reporting::Reporter;
pub use resets::Resets;
pub use shared::SharedSite;
pub(crate) use site_metrics::encode as encode_metrics;
pub use undo::Undo;

use caller_permits::CallerPermits;
use clock::Clock;
use cooldowns::Cooldowns;
use copy_memory::CopyMemory;
use shared::run_blocking;

use crate::{
    error::Error,
    ledger::{Contents, SitePosition, commit::Committer},
    policy::{self, Policies},
    record::Record,
    site::{Apply, Author, Limit, Limits, Outcome, Repaired, Site},
};

/// Caller in the audit log of steps that the scheduler takes by itself.
const SCHEDULER_CALLER: &str = "scheduler";

/// Maximum number of hosts of a decision that the calling thread makes itself: it takes a few milliseconds.
const MAX_INLINE_HOSTS: u64 = 64;

/// All sites of a region. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Region {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    sites: RwLock<BTreeMap<String, Arc<SharedSite>>>,
    /// Notified of each new site.
    appeared: Notify,
    policies: RwLock<Policies>,
    limits: RwLock<Limits>,
    committer: Committer,
    /// Permits to compute a slice of a question.
    permits: CallerPermits,
    answers: Answers,
    /// Permits of callers that keep a copy of a site for their question.
    copies: CallerPermits,
    /// Pauses of callers after long computations with a copy.
    cooldowns: Cooldowns,
    /// Memory for copies of sites.
    copy_memory: CopyMemory,
    clock: Clock,
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
            commit: _,
            mut histories,
            records,
            mut removals,
            mut fences,
        } = contents;
        let mut by_site: BTreeMap<String, BTreeMap<ClusterName, Arc<Record>>> = BTreeMap::new();
        for name in fences.keys().chain(removals.keys()).chain(histories.keys()) {
            by_site.entry(name.clone()).or_default();
        }
        for (key, record) in records {
            by_site.entry(key.site).or_default().insert(key.cluster, record);
        }
        let sites = by_site
            .into_iter()
            .map(|(name, records)| {
                let fence = fences.remove(&name);
                let policy = policy::for_site(&policies, &name);
                let removed = removals.remove(&name).unwrap_or_default();
                let history = histories.remove(&name).unwrap_or_default();
                let site = Site::new(name.clone(), policy, records, removed, fence, history);
                (name, Arc::new(SharedSite::new(site)))
            })
            .collect();
        let inner = Inner {
            sites: RwLock::new(sites),
            appeared: Notify::new(),
            policies: RwLock::new(policies),
            limits: RwLock::default(),
            committer,
            permits: CallerPermits::beside_others(),
            answers: Answers::default(),
            copies: CallerPermits::of_copies(),
            cooldowns: Cooldowns::default(),
            copy_memory: CopyMemory::default(),
            clock: Clock::new(clock),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The same, in which each site may have so much.
    #[must_use]
    pub fn limited(self, limits: Limits) -> Self {
        *self.inner.limits.write().unwrap_or_else(PoisonError::into_inner) = limits;
        for site in self.sites().values() {
            site.lock().set_limits(limits);
        }
        self
    }

    fn limits(&self) -> Limits {
        *self.inner.limits.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ledger's queue.
    #[must_use]
    pub fn committer(&self) -> &Committer {
        &self.inner.committer
    }

    fn now(&self) -> SystemTime {
        self.inner.clock.now()
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

    /// The site, or a new one while there are fewer than the region may have: so each of them has memory whatever the others report.
    fn site_or_new(&self, name: &str) -> Result<Arc<SharedSite>, Error> {
        let mut sites = self.inner.sites.write().unwrap_or_else(PoisonError::into_inner);
        if !sites.contains_key(name) {
            Limit::Sites.require(name, sites.len() + 1, self.limits().sites)?;
        }
        let new = || {
            let mut site = Site::without_records(name, self.policy_of(name));
            site.set_limits(self.limits());
            self.inner.appeared.notify_one();
            Arc::new(SharedSite::new(site))
        };
        Ok(Arc::clone(sites.entry(name.to_owned()).or_insert_with(new)))
    }

    /// Waits until a caller may get an outcome: it is durable, and the site was not reset since the caller began.
    async fn durable(
        &self,
        site: &SharedSite,
        since: Resets,
        outcome: Outcome,
    ) -> Result<DurablePlacement, Error> {
        let Outcome { record, commit } = outcome;
        let durable = self.inner.committer.durable(commit).await?;
        // Not that of a raise which is staged and not durable.
        let epoch = site.position(durable).epoch();
        site.require_kept(since, commit)?;
        Ok(DurablePlacement { record, epoch })
    }

    /// [`Site::apply`], durably.
    ///
    /// # Errors
    /// As there, and [`Error::Stopped`].
    pub async fn apply(&self, site: &str, apply: Apply, caller: &str) -> Result<DurablePlacement, Error> {
        let site = self.reporting_site(site)?;
        let since = site.resets();
        let permit = self.reserve_in_time(&site).await?;
        let author = Author {
            caller,
            action: "apply",
            now: self.now(),
        };
        let is_large =
            apply.spec.wanted() > MAX_INLINE_HOSTS || site.reading().await.is_refused(&apply.cluster);
        let outcome = if is_large {
            self.decide_blocking(&site, author.action, |site| site.apply(apply, &author, permit))
                .await
        } else {
            self.decide(&site, author.action, |site| site.apply(apply, &author, permit))
                .await
        }?;
        site.retry.notify_one();
        self.durable(&site, since, outcome).await
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
    ) -> Result<DurablePlacement, Error> {
        let site = self.reporting_site(site)?;
        let since = site.resets();
        let permit = self.reserve_in_time(&site).await?;
        let author = Author {
            caller,
            action: "release",
            now: self.now(),
        };
        let outcome = self
            .decide(&site, author.action, |site| {
                site.release(cluster, uid, &author, permit)
            })
            .await?;
        site.retry.notify_one();
        self.durable(&site, since, outcome).await
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
    ) -> Result<DurablePlacement, Error> {
        let site = self.reporting_site(site)?;
        let since = site.resets();
        let permit = self.reserve_in_time(&site).await?;
        let author = Author {
            caller,
            action: "confirm",
            now: self.now(),
        };
        let outcome = self
            .decide(&site, author.action, |site| {
                site.confirm(cluster, uid, released, &author, permit)
            })
            .await?;
        site.retry.notify_one();
        self.durable(&site, since, outcome).await
    }

    /// [`Site::release_orphan`], durably.
    ///
    /// # Errors
    /// As there, and [`Error::Stopped`].
    pub async fn release_orphan(
        &self,
        site: &str,
        host: &HostId,
        caller: &str,
    ) -> Result<DurablePlacement, Error> {
        let site = self.reporting_site(site)?;
        let since = site.resets();
        let permit = self.reserve_in_time(&site).await?;
        let author = Author {
            caller,
            action: "release-orphan",
            now: self.now(),
        };
        let outcome = self
            .decide(&site, author.action, |site| {
                site.release_orphan(host, &author, permit)
            })
            .await?;
        self.durable(&site, since, outcome).await
    }

    /// How recent what is read of a site under its lock is. Everything that is durable is in it.
    pub(crate) fn state(&self, site: &Site) -> SiteState {
        SiteState {
            site: site.name().to_owned(),
            position: site.position(self.inner.committer.last_durable()),
            synced: site.require_synced().is_ok(),
        }
    }

    /// A cluster's record once it is durable, and not older than `at_least`; and how recent that is.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Superseded`] for a position that the site has not reached with all that is staged;
    /// [`Error::Stopped`].
    pub async fn placement(
        &self,
        site: &str,
        cluster: &ClusterName,
        uid: &str,
        at_least: Option<SitePosition>,
    ) -> Result<(DurablePlacement, SiteState), Error> {
        let shared = self.site(site)?;
        let since = shared.resets();
        if let Some(asked) = at_least {
            let history = shared.history();
            let reached = history.at(self.inner.committer.staged());
            if asked.epoch() > reached.epoch() || asked.revision() > reached.revision() {
                return Err(Error::Superseded {
                    what: format!("position {asked} of site {site:?} (at_least)"),
                    by: format!("this ledger, which has issued {reached} at most"),
                });
            }
            self.inner
                .committer
                .durable(history.commit(asked.revision()))
                .await?;
        }
        let not_found = || Error::NotFound {
            what: format!("cluster {cluster} in site {site:?}"),
        };
        let (record, staged, state) = {
            let site = shared.reading().await;
            let record = site.record(cluster).cloned();
            let record = record.filter(|record| uid.is_empty() || uid == record.uid);
            let commit = record
                .as_ref()
                .map(|record| site.history().commit(record.revision));
            (record, commit, self.state(&site))
        };
        // That there is none may be so only since a change that is not durable yet.
        let commit = staged.unwrap_or_else(|| self.inner.committer.staged());
        let durable = self.durable(&shared, since, Outcome { record, commit }).await?;
        if durable.record.is_some() {
            Ok((durable, state))
        } else {
            Err(not_found())
        }
    }

    /// [`Site::repair`], durably.
    ///
    /// # Errors
    /// As there, and [`Error::Stopped`].
    pub async fn repair(&self, site: &str, dry_run: bool, caller: &str) -> Result<Repaired, Error> {
        let shared = self.site(site)?;
        let since = shared.resets();
        let permit = self.reserve_in_time(&shared).await?;
        let author = Author {
            caller,
            action: "repair",
            now: self.now(),
        };
        let repaired = {
            let mut site = shared.changing().await;
            run_blocking(|| site.repair(dry_run, &author, permit))
        }?;
        shared.retry.notify_one();
        self.inner.committer.durable(repaired.commit).await?;
        shared.require_kept(since, repaired.commit)?;
        Ok(repaired)
    }
}

/// How recent an answer about a site is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteState {
    /// The site.
    pub site: String,
    /// The answer includes every durable change up to here.
    pub position: SitePosition,
    /// Whether the site's snapshot is complete and its stream up.
    pub synced: bool,
}

/// A cluster's placement that is durable, so that callers may have it.
#[derive(Clone, Debug)]
pub struct DurablePlacement {
    /// The record; `None` when the cluster holds nothing now.
    pub record: Option<Arc<Record>>,
    /// Epoch of the site.
    pub epoch: u64,
}
