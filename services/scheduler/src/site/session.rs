//! Who reports a site, and whether what was reported is complete.

use std::{
    cmp::Ordering,
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use ::placement::{ClusterName, HostName};
use tokio_util::sync::CancellationToken;

use crate::{
    error::Error,
    ledger::{Fence, SiteFence},
};

/// How long after its last sign of life a reporter counts as alive: as long as its connection may be silent.
pub const KEEPALIVE: Duration = Duration::from_secs(30);

/// Maximum number of replaced Leases that the site records. The site never drops one by itself, since its reporters could then report
/// again.
const MAX_RETIRED_LEASES: usize = 256;

/// Names one stream of reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionId(String);

impl SessionId {
    /// A new one, unlike every other.
    #[must_use]
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4().to_string())
    }

    /// As the agent has it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The stream that may report.
#[derive(Clone, Debug)]
pub struct Session {
    /// Its name.
    pub id: SessionId,
    /// Cancelled when another session takes its place.
    pub superseded: CancellationToken,
}

#[derive(Clone, Debug)]
struct Current {
    id: SessionId,
    superseded: CancellationToken,
    /// What the snapshot has named so far; `None` when it is complete.
    snapshot: Option<Seen>,
}

/// What a snapshot has named.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) hosts: BTreeSet<HostName>,
    pub(super) clusters: BTreeSet<ClusterName>,
    /// Whether the site has discarded all clusters that this snapshot has not named.
    pub(super) forgotten: bool,
}

/// The session of a site, and which reporters it has had.
#[derive(Clone, Debug)]
pub(super) struct Sessions {
    current: Option<Current>,
    fence: Option<SiteFence>,
    /// Last sign of life of a reporter; `None` when it was before this process began, whenever that was.
    heard: Option<SystemTime>,
}

/// Result of admitting a reporter.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) session: Session,
    /// The new fence and a sentence on its cause; `None` if the fence stays as it was.
    pub(super) raised: Option<(SiteFence, String)>,
    /// To be cancelled when the new session is: the one in whose place it is.
    pub(super) replaced: Option<CancellationToken>,
}

/// Why a site does not admit a reporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// The Lease has had a later holder.
    EarlierHolder,
    /// The Lease was replaced by another one.
    RetiredLease,
    /// The reporter with the other Lease may still run.
    LiveReporter,
    /// Too many Leases were replaced.
    TooManyLeases,
}

impl Refusal {
    /// Who reports instead, for [`Error::Superseded`], and what would help.
    fn superseded_by(self, site: &str, highest: &Fence) -> String {
        match self {
            Self::EarlierHolder => highest.to_string(),
            Self::RetiredLease => format!(
                "{highest}, whose Lease is newer; if the refused Lease is the right one, because the site's API server was restored, an operator runs `sipctl site reset-fence {site}`"
            ),
            Self::LiveReporter => format!(
                "{highest}, which may still run; the scheduler accepts another Lease when {highest} has sent nothing for {} s",
                KEEPALIVE.as_secs()
            ),
            Self::TooManyLeases => format!(
                "{highest}; {MAX_RETIRED_LEASES} earlier Leases are recorded, which is the limit: an operator runs `sipctl site reset-fence {site}`"
            ),
        }
    }
}

/// The fence with a reporter that has the Lease of the present one; `None` if it stays as it is.
fn same_lease(present: &SiteFence, fence: &Fence) -> Result<Option<(SiteFence, String)>, Refusal> {
    let SiteFence { highest, retired } = present;
    match fence.transitions.cmp(&highest.transitions) {
        Ordering::Less => Err(Refusal::EarlierHolder),
        Ordering::Equal => Ok(None),
        Ordering::Greater => {
            let raised = SiteFence {
                highest: fence.clone(),
                retired: retired.clone(),
            };
            Ok(Some((
                raised,
                format!("reporter {fence} takes over from {highest}"),
            )))
        }
    }
}

impl Sessions {
    pub(super) fn new(fence: Option<SiteFence>) -> Self {
        Self {
            current: None,
            fence,
            heard: None,
        }
    }

    /// The fence: which reporters were admitted.
    pub(super) fn fence(&self) -> Option<SiteFence> {
        self.fence.clone()
    }

    /// Lets a new stream report, in the place of the one before.
    ///
    /// With the Lease of before, its counter must not be lower. Another Lease is accepted only when no session of the
    /// earlier one can be alive, and then the earlier one is never accepted again.
    pub(super) fn open(&mut self, site: &str, fence: &Fence, now: SystemTime) -> Result<Opened, Error> {
        let raised = self.raise(site, fence, now)?;
        if let Some((fence, _)) = &raised {
            self.fence = Some(fence.clone());
        }
        let replaced = self.current.take().map(|current| current.superseded);
        let session = Session {
            id: SessionId::random(),
            superseded: CancellationToken::new(),
        };
        self.current = Some(Current {
            id: session.id.clone(),
            superseded: session.superseded.clone(),
            snapshot: Some(Seen::default()),
        });
        self.heard = Some(now);
        Ok(Opened {
            session,
            raised,
            replaced,
        })
    }

    /// The fence with this reporter, if it is another than now, and a sentence on its cause.
    fn raise(
        &mut self,
        site: &str,
        fence: &Fence,
        now: SystemTime,
    ) -> Result<Option<(SiteFence, String)>, Error> {
        let Some(present) = self.fence.clone() else {
            let first = SiteFence {
                highest: fence.clone(),
                retired: BTreeSet::new(),
            };
            return Ok(Some((first, format!("reporter {fence} is the first"))));
        };
        let raised = if present.highest.lease == fence.lease {
            same_lease(&present, fence)
        } else {
            self.another_lease(&present, fence, now).map(Some)
        };
        raised.map_err(|refusal| Error::Superseded {
            what: format!("reporter {fence} of site {site}"),
            by: refusal.superseded_by(site, &present.highest),
        })
    }

    /// The fence with a reporter whose Lease is not that of the present one.
    fn another_lease(
        &mut self,
        present: &SiteFence,
        fence: &Fence,
        now: SystemTime,
    ) -> Result<(SiteFence, String), Refusal> {
        let SiteFence { highest, retired } = present;
        if retired.contains(&fence.lease) {
            return Err(Refusal::RetiredLease);
        }
        if self.may_have_reporter(now) {
            return Err(Refusal::LiveReporter);
        }
        if retired.len() >= MAX_RETIRED_LEASES {
            return Err(Refusal::TooManyLeases);
        }
        let mut retired = retired.clone();
        retired.insert(highest.lease.clone());
        let why = format!("reporter {fence} has another Lease and replaces {highest}");
        let raised = SiteFence {
            highest: fence.clone(),
            retired,
        };
        Ok((raised, why))
    }

    /// Whether an admitted reporter may still run: one has a session, or gave a sign of life less than [`KEEPALIVE`] ago.
    ///
    /// If it is unknown since when nobody has given one, the wait begins now, which is recorded.
    fn may_have_reporter(&mut self, now: SystemTime) -> bool {
        // If the clock was set back since then, the wait begins again: it must not last until the clock shows that time once more.
        let heard = self.heard.map_or(now, |heard| heard.min(now));
        self.heard = Some(heard);
        let silence = now.duration_since(heard).unwrap_or_default();
        self.current.is_some() || silence < KEEPALIVE
    }

    /// Forgets all reporters, and ends the present session. Returns the former fence.
    pub(super) fn reset(&mut self) -> Option<SiteFence> {
        if let Some(current) = self.current.take() {
            current.superseded.cancel();
        }
        self.fence.take()
    }

    /// What the snapshot of this session has named; `Ok(None)` when it is complete.
    pub(super) fn seen(
        &mut self,
        site: &str,
        id: &SessionId,
        now: SystemTime,
    ) -> Result<Option<&mut Seen>, Error> {
        Ok(self.require(site, id, now)?.snapshot.as_mut())
    }

    /// What the snapshot of this session has named so far, while it lasts.
    pub(super) fn snapshot(&self, id: &SessionId) -> Option<&Seen> {
        let current = self.current.as_ref().filter(|current| current.id == *id)?;
        current.snapshot.as_ref()
    }

    /// The same, to be changed.
    pub(super) fn snapshot_mut(&mut self, id: &SessionId) -> Option<&mut Seen> {
        let current = self.current.as_mut().filter(|current| current.id == *id)?;
        current.snapshot.as_mut()
    }

    /// How many hosts the present snapshot has named so far; none when it is complete.
    pub(super) fn named_hosts(&self) -> usize {
        let snapshot = self
            .current
            .as_ref()
            .and_then(|current| current.snapshot.as_ref());
        snapshot.map_or(0, |seen| seen.hosts.len())
    }

    /// Ends the snapshot, and returns what it named.
    pub(super) fn complete(&mut self, site: &str, id: &SessionId, now: SystemTime) -> Result<Seen, Error> {
        self.require(site, id, now)?
            .snapshot
            .take()
            .ok_or(Error::Protocol("the snapshot has ended already"))
    }

    /// Ends a session; one that is no longer current is ended already.
    pub(super) fn close(&mut self, id: &SessionId, now: SystemTime) {
        if self.current.as_ref().is_some_and(|current| current.id == *id) {
            self.current = None;
            self.heard = Some(now);
        }
    }

    /// Refuses a session that is no longer current.
    ///
    /// # Errors
    /// [`Error::Superseded`].
    pub(super) fn require_current(&self, site: &str, id: &SessionId) -> Result<(), Error> {
        let is_current = self.current.as_ref().is_some_and(|current| current.id == *id);
        is_current.then_some(()).ok_or_else(|| superseded(site, id))
    }

    fn require(&mut self, site: &str, id: &SessionId, now: SystemTime) -> Result<&mut Current, Error> {
        let current = self.current.as_mut().filter(|current| current.id == *id);
        let current = current.ok_or_else(|| superseded(site, id))?;
        self.heard = Some(now);
        Ok(current)
    }

    pub(super) fn synced(&self) -> bool {
        self.current
            .as_ref()
            .is_some_and(|current| current.snapshot.is_none())
    }

    pub(super) fn require_synced(&self, site: &str) -> Result<(), Error> {
        let not_synced = |why| Error::NotSynced {
            site: site.to_owned(),
            why,
        };
        match &self.current {
            None => Err(not_synced("no cluster agent reports it at present")),
            Some(Current {
                snapshot: Some(_),
                id: _,
                superseded: _,
            }) => Err(not_synced("its snapshot is not complete")),
            Some(Current {
                snapshot: None,
                id: _,
                superseded: _,
            }) => Ok(()),
        }
    }
}

fn superseded(site: &str, id: &SessionId) -> Error {
    Error::Superseded {
        what: format!("session {} of site {site}", id.as_str()),
        by: "a newer one".to_owned(),
    }
}

#[cfg(test)]
mod tests;
