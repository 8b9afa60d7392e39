//! Who reports a site, and what it reports: durable before it is acknowledged.

use std::collections::BTreeSet;

use placement::ClusterName;
use proto::inventory::v1 as inventory;

use super::{Region, SELF, SharedSite};
use crate::{
    error::Error,
    ledger::{Change, Fence, Position},
    site::{Author, Session, SessionId},
};

impl Region {
    /// Lets a reporter in. When it has seen an epoch or revision above the ledger's, the ledger was lost or restored:
    /// its epoch is raised durably first, so that nothing it says is taken for something older. Its fence is durable
    /// before it is let in.
    ///
    /// # Errors
    /// [`Error::Superseded`], [`Error::Stopped`].
    pub async fn open_session(
        &self,
        site: &str,
        fence: &Fence,
        seen: Option<Position>,
        caller: &str,
    ) -> Result<Reporter, Error> {
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
        let permit = self.reserve().await?;
        let author = Author {
            caller,
            action: "fence",
            now: self.now(),
        };
        let shared = self.site_or_new(site);
        let (session, revision) = shared.lock().open_session(fence, &author, permit)?;
        let reporter = Reporter {
            region: self.clone(),
            site: site.to_owned(),
            session,
        };
        self.inner.committer.durable(revision).await?;
        Ok(reporter)
    }

    /// [`Site::reset_fence`], durably. `None`: no reporter was known.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Stopped`].
    pub async fn reset_fence(&self, site: &str, caller: &str) -> Result<Option<Fence>, Error> {
        let shared = self.site(site)?;
        let permit = self.reserve().await?;
        let author = Author {
            caller,
            action: "reset-fence",
            now: self.now(),
        };
        let reset = shared.lock().reset_fence(&author, permit);
        match reset {
            Some((fence, revision)) => {
                self.inner.committer.durable(revision).await?;
                Ok(Some(fence))
            }
            None => Ok(None),
        }
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
        let touched = shared.lock().report(session, changes, self.now())?;
        self.settle(&shared, touched).await
    }

    /// Ends a snapshot.
    ///
    /// # Errors
    /// [`Error::Superseded`], [`Error::Protocol`], [`Error::Stopped`].
    pub async fn complete_snapshot(&self, site: &str, session: &SessionId) -> Result<(), Error> {
        let shared = self.site(site)?;
        let touched = shared.lock().complete_snapshot(session, self.now())?;
        self.settle(&shared, touched).await?;
        tracing::info!(site, hosts = shared.lock().hosts().len(), "the site is synced");
        Ok(())
    }

    fn close_session(&self, site: &str, session: &SessionId) {
        if let Ok(shared) = self.site(site) {
            shared.lock().close_session(session, self.now());
        }
    }

    async fn settle(&self, shared: &SharedSite, touched: BTreeSet<ClusterName>) -> Result<(), Error> {
        for cluster in touched {
            let permit = self.reserve().await?;
            let author = Author {
                caller: SELF,
                action: "observe",
                now: self.now(),
            };
            shared.lock().settle(&cluster, &author, permit);
        }
        shared.retry.notify_one();
        Ok(())
    }
}

/// The session of a site's reporter; dropping it ends the session, however the stream ended.
#[derive(Debug)]
pub struct Reporter {
    region: Region,
    site: String,
    session: Session,
}

impl Reporter {
    /// The session.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Its site.
    #[must_use]
    pub fn site(&self) -> &str {
        &self.site
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.region.close_session(&self.site, &self.session.id);
        tracing::info!(
            site = self.site,
            session = self.session.id.as_str(),
            "the site's reporter has gone"
        );
    }
}
