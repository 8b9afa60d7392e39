//! An entry of the log of decisions.

use std::time::SystemTime;

use placement::HostId;

use super::position::{Commit, SitePosition};
use crate::record::{ClusterId, Report};

/// An entry of the log of decisions: who did what, when, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Time of the decision; `None`: not known.
    pub time: Option<SystemTime>,
    /// The position of the site's history with it.
    pub position: Option<SitePosition>,
    /// Number of the commit.
    pub commit: Commit,
    /// SPIFFE path of the caller, or `scheduler`.
    pub caller: String,
    /// The site.
    pub site: String,
    /// The cluster, when it is about one.
    pub cluster: Option<ClusterId>,
    /// What was done.
    pub action: String,
    /// Hosts that became claimed.
    pub taken: Vec<HostId>,
    /// Hosts whose release began.
    pub releasing: Vec<HostId>,
    /// Hosts that became bound.
    pub bound: Vec<HostId>,
    /// Hosts that are members no more.
    pub freed: Vec<HostId>,
    /// Why, or why not.
    pub reason: String,
    /// Reports that are new.
    pub found: Vec<Report>,
    /// Reports that no longer hold.
    pub resolved: Vec<Report>,
}

impl Decision {
    /// The entry at its place.
    #[must_use]
    pub fn placed(self, at: SitePosition, commit: Commit) -> Self {
        Self {
            position: Some(at),
            commit,
            ..self
        }
    }
}
