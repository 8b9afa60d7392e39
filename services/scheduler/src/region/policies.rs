//! Sites decide by the policies of their files as they are now.

use std::{
    collections::{BTreeMap, BTreeSet},
    future,
    sync::{Arc, PoisonError},
};

use placement::{ClusterName, Policy};
use tokio::{sync::watch, task::JoinSet};

use super::{
    Region, SCHEDULER_CALLER,
    contained::{self, Contained},
    shared::SharedSite,
};
use crate::{
    ledger::commit::Stopped,
    policy::{self, Policies},
    site::Author,
};

/// Sites that have to follow, by name.
type Sites = BTreeMap<String, OutdatedSite>;

/// A site that has to follow.
#[derive(Debug)]
struct OutdatedSite {
    site: Arc<SharedSite>,
    /// Its clusters that are still to be settled by an earlier policy.
    unsettled: BTreeSet<ClusterName>,
}

impl Region {
    pub(super) fn policy_of(&self, site: &str) -> Policy {
        let policies = self.inner.policies.read().unwrap_or_else(PoisonError::into_inner);
        policy::for_site(&policies, site)
    }

    /// Follows the policies. Ends when the ledger has stopped.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn run_policies(self, mut policies: watch::Receiver<Policies>) -> Result<(), Stopped> {
        // Sites that a panic has kept from following the policies.
        let (mut late, mut pauses) = (Sites::new(), contained::pauses());
        loop {
            let pause = if late.is_empty() { None } else { pauses.next() };
            let again = async {
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => future::pending().await,
                }
            };
            late = tokio::select! {
                changed = policies.changed() => {
                    if changed.is_err() {
                        return future::pending().await;
                    }
                    pauses = contained::pauses();
                    let next = policies.borrow_and_update().clone();
                    self.replace_policies(next, late).await?
                }
                () = again => self.follow(late).await?,
            };
        }
    }

    /// Makes every site decide by these policies from now on. Clusters keep their hosts, and each cluster is settled again.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn set_policies(&self, policies: Policies) -> Result<(), Stopped> {
        self.replace_policies(policies, Sites::new()).await.map(drop)
    }

    /// Does the same, and retries the sites in `late`, which have not followed earlier policies. Returns the sites that a panic keeps from
    /// following.
    async fn replace_policies(&self, policies: Policies, mut late: Sites) -> Result<Sites, Stopped> {
        *self
            .inner
            .policies
            .write()
            .unwrap_or_else(PoisonError::into_inner) = policies;
        for (name, site) in self.sites() {
            let unsettled = BTreeSet::new();
            late.entry(name).or_insert(OutdatedSite { site, unsettled });
        }
        self.follow(late).await
    }

    /// Makes these sites decide by the present policies. Returns the sites that a panic keeps from following.
    async fn follow(&self, sites: Sites) -> Result<Sites, Stopped> {
        // Concurrently, so that a busy site delays no other one.
        let mut following = JoinSet::new();
        for (name, behind) in sites {
            let region = self.clone();
            following.spawn(async move {
                let left = region.follow_policy(&name, behind).await;
                (name, left)
            });
        }
        let mut late = Sites::new();
        while let Some(followed) = following.join_next().await {
            let (name, left) = followed.map_err(|_| Stopped)?;
            if let Some(left) = left? {
                late.insert(name, left);
            }
        }
        Ok(late)
    }

    /// Runs work of a site so that a panic affects that site only.
    pub(super) fn contained(&self, site: String, work: &'static str) -> Contained {
        let metrics = self.inner.committer.metrics().clone();
        Contained { site, work, metrics }
    }

    /// A site decides by its policy of now. Returns what a panic has kept from it; a panic over one cluster does not keep
    /// the others from being settled.
    async fn follow_policy(&self, name: &str, behind: OutdatedSite) -> Result<Option<OutdatedSite>, Stopped> {
        let OutdatedSite { site, mut unsettled } = behind;
        let contained = self.contained(name.to_owned(), "policy");
        let Some(changed) = contained.once(self.take_policy(name, &site)).await else {
            return Ok(Some(OutdatedSite { site, unsettled }));
        };
        unsettled.extend(changed?);
        let mut left = BTreeSet::new();
        for cluster in unsettled {
            match contained.once(self.settle_by_policy(&site, &cluster)).await {
                Some(settled) => settled?,
                None => drop(left.insert(cluster)),
            }
        }
        site.retry.notify_one();
        let unsettled = left;
        Ok((!unsettled.is_empty()).then_some(OutdatedSite { site, unsettled }))
    }

    /// Makes the site decide by its present policy. Returns the clusters to be settled by it.
    async fn take_policy(&self, name: &str, site: &SharedSite) -> Result<Vec<ClusterName>, Stopped> {
        let permit = self.reserve(site).await?;
        let author = self.by_policy();
        let mut site = site.changing().await;
        Ok(site.set_policy(self.policy_of(name), &author, permit))
    }

    async fn settle_by_policy(&self, site: &SharedSite, cluster: &ClusterName) -> Result<(), Stopped> {
        let permit = self.reserve(site).await?;
        site.changing().await.settle(cluster, &self.by_policy(), permit);
        Ok(())
    }

    /// The author of what a policy changes.
    fn by_policy(&self) -> Author<'static> {
        Author {
            caller: SCHEDULER_CALLER,
            action: "policy",
            now: self.now(),
        }
    }
}
