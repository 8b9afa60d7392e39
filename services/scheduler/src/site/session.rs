//! Who reports a site, and whether what was reported is complete.

use std::collections::BTreeSet;

use ::placement::{ClusterName, HostName};
use tokio_util::sync::CancellationToken;

use crate::error::Error;

/// Names one stream of reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionId(String);

impl SessionId {
    /// A new one, unlike every other.
    #[must_use]
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4().to_string())
    }

    /// As the agent sees it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Which election made the reporter: `leaseTransitions` of the Lease with that uid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// uid of the Lease.
    pub lease: String,
    /// Its `leaseTransitions`.
    pub transitions: i64,
}

/// The stream that may report.
#[derive(Clone, Debug)]
pub struct Session {
    /// Its name.
    pub id: SessionId,
    /// Cancelled when another session takes its place.
    pub superseded: CancellationToken,
}

#[derive(Debug)]
struct Current {
    id: SessionId,
    superseded: CancellationToken,
    /// What the snapshot has named so far; `None` when it is complete.
    snapshot: Option<Seen>,
}

/// What a snapshot has named.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) hosts: BTreeSet<HostName>,
    pub(super) clusters: BTreeSet<ClusterName>,
}

/// The session of a site, and the highest fence that it ever showed.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    current: Option<Current>,
    highest: Option<Fence>,
}

impl Sessions {
    /// Lets a new stream report, in the place of the one before.
    ///
    /// With the Lease of before, its counter must not be lower. Another Lease is believed only when no
    /// session of the earlier one is alive: then nobody else can be acting under it.
    pub(super) fn open(&mut self, site: &str, fence: Fence) -> Result<Session, Error> {
        let superseded = |by: &Fence| Error::Superseded {
            what: format!("reporter {}#{} of site {site}", fence.lease, fence.transitions),
            by: format!("{}#{}", by.lease, by.transitions),
        };
        if let Some(highest) = &self.highest {
            if highest.lease == fence.lease {
                if fence.transitions < highest.transitions {
                    return Err(superseded(highest));
                }
            } else if self.current.is_some() {
                return Err(superseded(highest));
            } else {
                tracing::warn!(site, before = ?highest, now = ?fence, "the site's reporter comes with another Lease");
            }
        }
        if let Some(current) = self.current.take() {
            current.superseded.cancel();
        }
        let session = Session {
            id: SessionId::random(),
            superseded: CancellationToken::new(),
        };
        self.current = Some(Current {
            id: session.id.clone(),
            superseded: session.superseded.clone(),
            snapshot: Some(Seen::default()),
        });
        self.highest = Some(fence);
        Ok(session)
    }

    /// What the snapshot of this session has named; `Ok(None)` when it is complete.
    pub(super) fn seen(&mut self, site: &str, id: &SessionId) -> Result<Option<&mut Seen>, Error> {
        Ok(self.require(site, id)?.snapshot.as_mut())
    }

    /// Ends the snapshot, and returns what it named.
    pub(super) fn complete(&mut self, site: &str, id: &SessionId) -> Result<Seen, Error> {
        self.require(site, id)?
            .snapshot
            .take()
            .ok_or(Error::Protocol("the snapshot has ended already"))
    }

    /// Ends a session; one that is not current any more is ended already.
    pub(super) fn close(&mut self, id: &SessionId) {
        if self.current.as_ref().is_some_and(|current| current.id == *id) {
            self.current = None;
        }
    }

    fn require(&mut self, site: &str, id: &SessionId) -> Result<&mut Current, Error> {
        self.current
            .as_mut()
            .filter(|current| current.id == *id)
            .ok_or_else(|| Error::Superseded {
                what: format!("session {} of site {site}", id.as_str()),
                by: "a newer one".to_owned(),
            })
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
