//! A decision: a place in the ledger's queue, the site's lock, and the thread that it takes.

use super::{
    Region,
    shared::{SharedSite, run_blocking},
};
use crate::{
    error::Error,
    ledger::commit::{Permit, Stopped},
    load,
    site::Site,
};

impl Region {
    /// A place in the ledger's queue, for a change of this site. Between this and staging only the site's lock is waited for. The change
    /// counts as one of the call that this task serves, if it serves one.
    pub(super) async fn reserve(&self, site: &SharedSite) -> Result<Permit, Stopped> {
        let permit = self.inner.committer.reserve_within(&site.share).await?;
        Ok(permit.counted(load::changes()))
    }

    /// Makes a decision under the site's lock.
    pub(super) async fn decide<T>(
        &self,
        site: &SharedSite,
        action: &'static str,
        decide: impl FnOnce(&mut Site) -> T,
    ) -> T {
        let mut site = site.changing().await;
        self.inner
            .committer
            .metrics()
            .decide(action, || decide(&mut site))
    }

    /// The same where it may take long.
    pub(super) async fn decide_blocking<T>(
        &self,
        site: &SharedSite,
        action: &'static str,
        decide: impl FnOnce(&mut Site) -> T,
    ) -> T {
        self.decide(site, action, |site| run_blocking(|| decide(site)))
            .await
    }

    /// A place in the ledger's queue for a caller who still waits for the answer.
    pub(super) async fn reserve_in_time(&self, site: &SharedSite) -> Result<Permit, Error> {
        let permit = self.reserve(site).await?;
        load::require_time()?;
        Ok(permit)
    }
}
