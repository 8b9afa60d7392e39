//! The region: its sites behind their locks, and the ledger behind them.
//!
//! Every step that changes something goes the same way: reserve a place in the ledger's queue, lock the site, decide
//! and stage, unlock, and wait until the ledger is durable up to what the answer says. No lock is held while waiting.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::{Duration, SystemTime},
};

use placement::{ClusterName, HostId};
use proto::inventory::v1 as inventory;
use tokio::sync::Notify;

use crate::{
    error::Error,
    ledger::{
        Change, Contents, Ledger, Position,
        commit::{Committer, Permit, Stopped},
    },
    policy::{self, Policies},
    record::Record,
    site::{Apply, Author, Fence, Outcome, Session, SessionId, Site},
};

/// Least time between two rounds of decisions for clusters that wait, per site.
const ROUND: Duration = Duration::from_secs(1);
/// Name in the audit log of steps that no caller asked for.
const SELF: &str = "scheduler";

/// A site, and the signal that a cluster that waits may fit now.
#[derive(Debug)]
pub struct SharedSite {
    state: Mutex<Site>,
    retry: Notify,
}

impl SharedSite {
    /// Locks the site. Never hold it across an await.
    pub fn lock(&self) -> MutexGuard<'_, Site> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
    policies: Policies,
    committer: Committer,
}

impl Region {
    /// The region with what the ledger holds; no site is synced yet.
    #[must_use]
    pub fn new(contents: Contents, policies: Policies, committer: Committer) -> Self {
        let revision = contents.position.revision;
        let mut by_site: BTreeMap<String, BTreeMap<ClusterName, Record>> = BTreeMap::new();
        for (key, record) in contents.records {
            by_site.entry(key.site).or_default().insert(key.cluster, record);
        }
        let sites = by_site
            .into_iter()
            .map(|(name, records)| {
                let site = Site::new(name.clone(), policy::of(&policies, &name), records, revision);
                (
                    name,
                    Arc::new(SharedSite {
                        state: Mutex::new(site),
                        retry: Notify::new(),
                    }),
                )
            })
            .collect();
        let inner = Inner {
            sites: RwLock::new(sites),
            appeared: Notify::new(),
            policies,
            committer,
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
            let revision = self.inner.committer.watch().borrow().revision;
            let policy = policy::of(&self.inner.policies, name);
            let site = Site::new(name.to_owned(), policy, BTreeMap::new(), revision);
            self.inner.appeared.notify_one();
            Arc::new(SharedSite {
                state: Mutex::new(site),
                retry: Notify::new(),
            })
        };
        Arc::clone(sites.entry(name.to_owned()).or_insert_with(new))
    }

    async fn reserve(&self) -> Result<Permit, Stopped> {
        self.inner.committer.reserve().await
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
        let permit = self.reserve().await?;
        let author = Author {
            caller,
            action: "apply",
            now: SystemTime::now(),
        };
        let outcome = site.lock().apply(apply, &author, permit)?;
        site.retry.notify_one();
        self.durable(outcome).await
    }

    /// [`Site::release`], durably. `None`: nothing is held.
    ///
    /// # Errors
    /// As there, and [`Error::Stopped`].
    pub async fn release(
        &self,
        site: &str,
        cluster: &ClusterName,
        uid: &str,
        caller: &str,
    ) -> Result<Option<Told>, Error> {
        let site = self.reporting_site(site)?;
        let permit = self.reserve().await?;
        let author = Author {
            caller,
            action: "release",
            now: SystemTime::now(),
        };
        let outcome = site.lock().release(cluster, uid, &author, permit)?;
        site.retry.notify_one();
        match outcome {
            Some(outcome) => Ok(Some(self.durable(outcome).await?)),
            None => Ok(None),
        }
    }

    /// [`Site::confirm`], durably. `None`: nothing is held.
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
    ) -> Result<Option<Told>, Error> {
        let site = self.reporting_site(site)?;
        let permit = self.reserve().await?;
        let author = Author {
            caller,
            action: "confirm",
            now: SystemTime::now(),
        };
        let outcome = site.lock().confirm(cluster, uid, released, &author, permit)?;
        site.retry.notify_one();
        match outcome {
            Some(outcome) => Ok(Some(self.durable(outcome).await?)),
            None => Ok(None),
        }
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
        let record = self
            .site(site)?
            .lock()
            .record(cluster)
            .cloned()
            .ok_or_else(not_found)?;
        if !uid.is_empty() && uid != record.uid {
            return Err(not_found());
        }
        self.durable(Outcome {
            revision: record.revision,
            record: Some(record),
        })
        .await
    }

    /// Lets a reporter in. When it has seen an epoch or revision above the ledger's, the ledger was lost or restored:
    /// its epoch is raised durably first, so that nothing it says is taken for something older.
    ///
    /// # Errors
    /// [`Error::Superseded`], [`Error::Stopped`].
    pub async fn open_session(
        &self,
        site: &str,
        fence: Fence,
        seen: Option<Position>,
    ) -> Result<Session, Error> {
        let reached = *self.inner.committer.watch().borrow();
        if let Some(seen) = seen.filter(|seen| *seen > reached) {
            tracing::warn!(site, %seen, %reached, "the site has seen more than the ledger holds: raising the epoch above it");
            let permit = self.reserve().await?;
            let raised = permit.stage(|position| Change::Epoch {
                epoch: seen.epoch.max(position.epoch) + 1,
                revision: seen.revision.max(position.revision) + 1,
            });
            self.inner.committer.durable(raised).await?;
        }
        self.site_or_new(site).lock().open_session(fence)
    }

    /// Takes a report in.
    ///
    /// # Errors
    /// [`Error::Superseded`], [`Error::Stopped`].
    pub async fn report(
        &self,
        site: &str,
        session: &SessionId,
        changes: inventory::HostChanges,
    ) -> Result<(), Error> {
        let shared = self.site(site)?;
        let touched = shared.lock().report(session, changes, SystemTime::now())?;
        self.settle(&shared, touched).await
    }

    /// Ends a snapshot.
    ///
    /// # Errors
    /// [`Error::Superseded`], [`Error::Protocol`], [`Error::Stopped`].
    pub async fn complete_snapshot(&self, site: &str, session: &SessionId) -> Result<(), Error> {
        let shared = self.site(site)?;
        let touched = shared.lock().complete_snapshot(session)?;
        self.settle(&shared, touched).await?;
        tracing::info!(site, hosts = shared.lock().hosts().len(), "the site is synced");
        Ok(())
    }

    /// Ends a session.
    pub fn close_session(&self, site: &str, session: &SessionId) {
        if let Ok(shared) = self.site(site) {
            shared.lock().close_session(session);
        }
    }

    async fn settle(&self, shared: &SharedSite, touched: BTreeSet<ClusterName>) -> Result<(), Error> {
        for cluster in touched {
            let permit = self.reserve().await?;
            let author = Author {
                caller: SELF,
                action: "observe",
                now: SystemTime::now(),
            };
            shared.lock().settle(&cluster, &author, permit);
        }
        shared.retry.notify_one();
        Ok(())
    }

    /// Decides again for clusters that wait, whenever claims or inventory have changed, at most once a second per
    /// site. Ends when the ledger has stopped.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn run_retries(self) -> Result<(), Stopped> {
        let mut rounds = tokio::task::JoinSet::new();
        let mut known = BTreeSet::new();
        loop {
            for (name, site) in self.sites() {
                if known.insert(name) {
                    rounds.spawn(self.clone().retry_site(site));
                }
            }
            tokio::select! {
                () = self.inner.appeared.notified() => {}
                Some(ended) = rounds.join_next() => return ended.unwrap_or(Err(Stopped)),
            }
        }
    }

    async fn retry_site(self, site: Arc<SharedSite>) -> Result<(), Stopped> {
        let mut pace = tokio::time::interval(ROUND);
        pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            site.retry.notified().await;
            pace.tick().await;
            let order = waiting(site.lock().records());
            for cluster in order {
                let permit = self.reserve().await?;
                let author = Author {
                    caller: SELF,
                    action: "retry",
                    now: SystemTime::now(),
                };
                site.lock().retry(&cluster, &author, permit);
            }
        }
    }
}

/// What may be told of a cluster: it is durable.
#[derive(Clone, Debug)]
pub struct Told {
    /// The record; `None` when the cluster holds nothing any more.
    pub record: Option<Record>,
    /// Epoch of the ledger.
    pub epoch: u64,
}

/// Clusters that wait, in the order in which they are served: replacements, then growth, then new ones; among equals
/// the older `SIPCluster` first, then by name.
fn waiting(records: &BTreeMap<ClusterName, Record>) -> Vec<ClusterName> {
    let mut order: Vec<_> = records
        .iter()
        .filter(|(_, record)| record.waits())
        .map(|(name, record)| {
            let replaces = record
                .members
                .values()
                .any(|member| member.failed_since.is_some());
            let new = record.members.is_empty();
            (
                !replaces,
                new,
                record.created.is_none(),
                record.created,
                name.clone(),
            )
        })
        .collect();
    order.sort();
    order.into_iter().map(|(_, _, _, _, name)| name).collect()
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
