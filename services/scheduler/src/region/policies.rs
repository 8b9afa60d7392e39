//! Sites decide by the policies of their files as they are now.

use std::{
    collections::BTreeMap,
    future,
    sync::{Arc, PoisonError},
};

use placement::Policy;
use tokio::{sync::watch, task::JoinSet};

use super::{
    Region, SELF,
    contained::{self, Contained},
    shared::SharedSite,
};
use crate::{
    ledger::commit::Stopped,
    policy::{self, Policies},
    site::Author,
};

type Sites = BTreeMap<String, Arc<SharedSite>>;

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
        // Sites that a bug has kept from following.
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
                    self.replace_policies(next).await?
                }
                () = again => self.follow(late).await?,
            };
        }
    }

    /// Every site decides by these from now on; what its clusters hold stays, and is looked at again.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn set_policies(&self, policies: Policies) -> Result<(), Stopped> {
        self.replace_policies(policies).await.map(drop)
    }

    /// The same. Returns the sites that have not followed because of a bug.
    async fn replace_policies(&self, policies: Policies) -> Result<Sites, Stopped> {
        *self
            .inner
            .policies
            .write()
            .unwrap_or_else(PoisonError::into_inner) = policies;
        self.follow(self.sites()).await
    }

    /// These sites decide by the policies of now. Returns those that have not followed because of a bug.
    async fn follow(&self, sites: Sites) -> Result<Sites, Stopped> {
        // Beside each other: nobody waits for a site that is at work.
        let mut following = JoinSet::new();
        for (name, site) in sites {
            let (region, contained) = (self.clone(), self.contained(name.clone(), "policy"));
            following.spawn(async move {
                let follow = region.follow_policy(name.clone(), Arc::clone(&site));
                (contained.once(follow).await, name, site)
            });
        }
        let mut late = Sites::new();
        while let Some(followed) = following.join_next().await {
            let (followed, name, site) = followed.map_err(|_| Stopped)?;
            match followed {
                Some(followed) => followed?,
                None => drop(late.insert(name, site)),
            }
        }
        Ok(late)
    }

    /// Work of a site whose panic is its own.
    pub(super) fn contained(&self, site: String, work: &'static str) -> Contained {
        let metrics = self.inner.committer.metrics().clone();
        Contained { site, work, metrics }
    }

    /// A site decides by its policy of now.
    async fn follow_policy(self, name: String, site: Arc<SharedSite>) -> Result<(), Stopped> {
        let author = || Author {
            caller: SELF,
            action: "policy",
            now: self.now(),
        };
        let permit = self.reserve(&site).await?;
        let clusters = {
            let mut site = site.changing().await;
            site.set_policy(self.policy_of(&name), &author(), permit)
        };
        for cluster in clusters {
            let permit = self.reserve(&site).await?;
            site.changing().await.settle(&cluster, &author(), permit);
        }
        site.retry.notify_one();
        Ok(())
    }
}
