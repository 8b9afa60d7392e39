//! Sites decide by the policies of their files as they are now.

use std::{
    future,
    sync::{Arc, PoisonError},
};

use placement::Policy;
use tokio::{sync::watch, task::JoinSet};

use super::{Region, SELF, shared::SharedSite};
use crate::{
    ledger::commit::Stopped,
    policy::{self, Policies},
    site::Author,
};

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
        loop {
            if policies.changed().await.is_err() {
                return future::pending().await;
            }
            let next = policies.borrow_and_update().clone();
            self.set_policies(next).await?;
        }
    }

    /// Every site decides by these from now on; what its clusters hold stays, and is looked at again.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn set_policies(&self, policies: Policies) -> Result<(), Stopped> {
        *self
            .inner
            .policies
            .write()
            .unwrap_or_else(PoisonError::into_inner) = policies;
        // Beside each other: nobody waits for a site that is at work.
        let mut following = JoinSet::new();
        for (name, site) in self.sites() {
            following.spawn(self.clone().follow_policy(name, site));
        }
        while let Some(followed) = following.join_next().await {
            followed.unwrap_or(Err(Stopped))?;
        }
        Ok(())
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
