//! Who reports a site, and what it reports: durable before it is acknowledged.

use std::collections::BTreeSet;

use placement::ClusterName;
use proto::inventory::v1 as inventory;

use super::{Region, SELF, SharedSite};
use crate::{
    error::{Error, Violation},
    ledger::{Change, Fence, Position},
    site::{Author, HIGHEST, Session, SessionId},
};

impl Region {
    /// Lets a reporter in. When it has seen an epoch or revision above the ledger's, the ledger was lost or restored:
    /// its epoch is raised durably first, so that nothing it says is taken for something older. Its fence is durable
    /// before it is let in.
    ///
    /// # Errors
    /// [`Error::Superseded`], [`Error::Stopped`]; [`Error::Invalid`] when no ledger can have come as far.
    pub async fn open_session(
        &self,
        site: &str,
        fence: &Fence,
        seen: Option<Position>,
        caller: &str,
    ) -> Result<Reporter, Error> {
        if let Some(seen) = seen.filter(|seen| seen.epoch.max(seen.revision) > HIGHEST) {
            return Err(Error::Invalid(vec![Violation::new(
                "hello.highest_seen",
                format_args!("{seen}: neither number can be above {HIGHEST}"),
            )]));
        }
        let shared = self.site_or_new(site);
        if let Some(seen) = seen {
            // What this site can have seen is what was committed for it, whatever other sites have committed since.
            let latest = shared.read().latest();
            let reached = self.inner.committer.staged();
            if seen.epoch > reached.epoch || seen.epoch == reached.epoch && seen.revision > latest {
                tracing::warn!(site, %seen, %reached, latest, "the site has seen more than the ledger holds");
                self.raise_epoch(seen).await?;
            } else {
                self.raise_above(seen.revision).await?;
            }
        }
        let permit = self.reserve().await?;
        let author = Author {
            caller,
            action: "fence",
            now: self.now(),
        };
        let (session, revision) = shared.lock().open_session(fence, &author, permit)?;
        let reporter = Reporter {
            region: self.clone(),
            site: site.to_owned(),
            session,
        };
        self.inner.committer.durable(revision).await?;
        Ok(reporter)
    }

    /// Makes every revision from now on higher than one that a site shows; a higher epoch says that history has a gap.
    async fn raise_above(&self, revision: u64) -> Result<(), Error> {
        let staged = self.inner.committer.staged();
        if revision > staged.revision {
            tracing::warn!(revision, %staged, "a site shows a revision that the ledger has not reached");
            self.raise_epoch(Position { revision, ..staged }).await?;
        }
        Ok(())
    }

    /// Continues the history above what was seen.
    async fn raise_epoch(&self, seen: Position) -> Result<(), Error> {
        let permit = self.reserve().await?;
        let raised = permit.stage(|position| Change::Epoch {
            epoch: seen.epoch.max(position.epoch) + 1,
            revision: seen.revision.max(position.revision) + 1,
        });
        self.inner.committer.durable(raised).await?;
        Ok(())
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
        let (touched, mark) = {
            let mut site = shared.lock();
            (site.report(session, changes, self.now())?, site.highest_mark())
        };
        self.raise_above(mark).await?;
        self.settle(&shared, touched).await
    }

    /// Ends a snapshot.
    ///
    /// # Errors
    /// [`Error::Superseded`], [`Error::Protocol`], [`Error::Stopped`].
    pub async fn complete_snapshot(&self, site: &str, session: &SessionId) -> Result<(), Error> {
        let shared = self.site(site)?;
        let epoch = self.inner.committer.staged().epoch;
        let touched = shared.lock().complete_snapshot(session, epoch, self.now())?;
        self.settle(&shared, touched).await?;
        tracing::info!(site, hosts = shared.read().hosts().len(), "the site is synced");
        Ok(())
    }

    fn close_session(&self, site: &str, session: &SessionId) {
        if let Ok(shared) = self.site(site) {
            shared.lock().close_session(session, self.now());
        }
    }

    async fn settle(&self, shared: &SharedSite, touched: BTreeSet<ClusterName>) -> Result<(), Error> {
        let notes = shared.lock().take_notes();
        for note in notes {
            let permit = self.reserve().await?;
            let author = Author {
                caller: SELF,
                action: "observe",
                now: self.now(),
            };
            shared.lock().log(note, &author, permit);
        }
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
