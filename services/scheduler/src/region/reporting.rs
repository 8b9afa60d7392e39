//! Who reports a site, and what it reports: durable before it is acknowledged.

use std::collections::BTreeSet;

use placement::ClusterName;
use runtime::identity::Name;
use tokio::runtime::Handle;

use super::{
    Region, SCHEDULER_CALLER,
    shared::{SharedSite, run_blocking},
};
use crate::{
    error::Error,
    ledger::{Fence, SitePosition},
    observed::Changes,
    site::{Author, HostFault, MAX_FAULTS, Session, SessionId, Summary},
    violation::Violation,
};

impl Region {
    /// Admits a reporter. When it has seen a position of its site that the ledger has not issued, the ledger was lost or
    /// restored: the site's history continues above it, so that none of its data is taken for something older. That and its
    /// fence are durable before it is admitted.
    ///
    /// # Errors
    /// [`Error::Superseded`], [`Error::Stopped`]; [`Error::SiteFull`] when the region has as many sites as it may;
    /// [`Error::Invalid`] when the site's or the Lease's name breaks a rule.
    pub async fn open_session(
        &self,
        site: &str,
        fence: &Fence,
        seen: Option<SitePosition>,
        caller: &str,
    ) -> Result<Reporter, Error> {
        Fence::parse(fence.lease.clone(), fence.transitions)
            .map_err(|violation| Error::Invalid(vec![violation]))?;
        site.parse::<Name>()
            .map_err(|error| Error::Invalid(vec![Violation::new("hello.site", error)]))?;
        let shared = self.site_or_new(site)?;
        let since = shared.resets();
        let permit = self.reserve(&shared).await?;
        let author = Author {
            caller,
            action: "fence",
            now: self.now(),
        };
        let (session, mut commit) = shared.changing().await.open_session(fence, &author, permit)?;
        let reporter = Reporter {
            region: self.clone(),
            site: site.to_owned(),
            session,
        };
        if let Some(seen) = seen {
            let permit = self.reserve(&shared).await?;
            let author = Author {
                action: "raise",
                ..author
            };
            let raised = shared.changing().await.seen(seen, &author, permit)?;
            commit = commit.max(raised);
        }
        self.inner.committer.durable(commit).await?;
        shared.require_kept(since, commit)?;
        Ok(reporter)
    }

    /// [`Site::reset_fence`], durably. `None`: no reporter was known.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Stopped`].
    pub async fn reset_fence(&self, site: &str, caller: &str) -> Result<Option<Fence>, Error> {
        let shared = self.site(site)?;
        let since = shared.resets();
        let permit = self.reserve(&shared).await?;
        let author = Author {
            caller,
            action: "reset-fence",
            now: self.now(),
        };
        let reset = shared.changing().await.reset_fence(&author, permit)?;
        match reset {
            Some((fence, commit)) => {
                self.inner.committer.durable(commit).await?;
                shared.require_kept(since, commit)?;
                Ok(Some(fence))
            }
            None => Ok(None),
        }
    }

    /// Takes a report in. Returns the hosts in it that show a release mark which was not issued.
    ///
    /// # Errors
    /// As [`report_slices`](Self::report_slices).
    pub async fn report(
        &self,
        site: &str,
        session: &SessionId,
        changes: Changes,
    ) -> Result<Vec<HostFault>, Error> {
        self.report_slices(site, session, [changes]).await
    }

    /// The same, slice by slice: what it names is settled once all of it is in.
    ///
    /// # Errors
    /// [`Error::Superseded`], [`Error::Stopped`].
    pub async fn report_slices(
        &self,
        site: &str,
        session: &SessionId,
        slices: impl IntoIterator<Item = Changes, IntoIter: Send>,
    ) -> Result<Vec<HostFault>, Error> {
        let shared = self.site(site)?;
        let (mut touched, mut faults) = (BTreeSet::new(), Vec::new());
        for slice in slices {
            for fault in &slice.faults {
                if let Some(withheld) = shared.faults.line() {
                    tracing::warn!(site, withheld, "{fault}");
                }
            }
            {
                let mut site = shared.changing().await;
                touched.append(&mut site.report(session, slice, self.now())?);
                faults.append(&mut site.take_faults());
            }
            // One message must not hold up what else this thread has to do.
            tokio::task::yield_now().await;
        }
        faults.truncate(MAX_FAULTS);
        self.settle(&shared, session, touched).await?;
        Ok(faults)
    }

    /// Ends a snapshot.
    ///
    /// # Errors
    /// [`Error::Superseded`], [`Error::Protocol`], [`Error::Stopped`].
    pub async fn complete_snapshot(&self, site: &str, session: &SessionId) -> Result<(), Error> {
        let shared = self.site(site)?;
        let permit = self.reserve(&shared).await?;
        let author = Author {
            caller: SCHEDULER_CALLER,
            action: "raise",
            now: self.now(),
        };
        let touched = {
            let mut site = shared.changing().await;
            run_blocking(|| site.complete_snapshot(session, &author, permit))
        }?;
        self.settle(&shared, session, touched).await?;
        if let Some(withheld) = shared.reporters.line() {
            let Summary { hosts, left_out, .. } = shared.summary();
            tracing::info!(site, hosts, left_out, withheld, "the site is synced");
        }
        Ok(())
    }

    /// Ends a session; when its site is at work, as soon as it is not.
    fn close_session(&self, site: &str, session: &SessionId) {
        let Ok(shared) = self.site(site) else { return };
        let now = self.now();
        if let Some(mut site) = shared.try_changing() {
            site.close_session(session, now);
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            shared.lock().close_session(session, now);
            return;
        };
        let session = session.clone();
        runtime.spawn(async move { shared.changing().await.close_session(&session, now) });
    }

    /// Settles what a report has touched, as long as its session is current: the snapshot of a newer one settles every record.
    async fn settle(
        &self,
        shared: &SharedSite,
        session: &SessionId,
        touched: BTreeSet<ClusterName>,
    ) -> Result<(), Error> {
        let notes = shared.changing().await.take_notes();
        for note in notes {
            let permit = self.reserve(shared).await?;
            let author = Author {
                caller: SCHEDULER_CALLER,
                action: "observe",
                now: self.now(),
            };
            shared.changing().await.log(note, &author, permit);
        }
        for cluster in touched {
            let permit = self.reserve(shared).await?;
            let author = Author {
                caller: SCHEDULER_CALLER,
                action: "observe",
                now: self.now(),
            };
            let mut site = shared.changing().await;
            site.require_session(session)?;
            site.settle(&cluster, &author, permit);
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

    /// Says something of it, unless reporters of the site come and go too often.
    pub(crate) fn log(&self, what: &str) {
        let shared = self.region.site(&self.site);
        if let Some(withheld) = shared.ok().and_then(|site| site.reporters.line()) {
            let session = self.session.id.as_str();
            tracing::info!(site = self.site, session, withheld, "{what}");
        }
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
        self.log("the reporter of the site has disconnected");
    }
}
