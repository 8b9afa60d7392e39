//! What the ledger holds of one cluster: plain values, without any encoding. Only the steps of [`crate::site`] change them.

mod member;
pub mod ordinals;
mod refusal;
mod report;

use std::{collections::BTreeMap, fmt, time::SystemTime};

use placement::{ClusterName, HostId, MemberState};

pub use member::{Member, ReleaseReason};
pub use refusal::{Funnel, Refusal};
pub use report::{Report, Subject};

use crate::spec::Spec;

/// One `SIPCluster`: its name, and the uid that tells it from others of that name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterId {
    /// Namespace and name.
    pub name: ClusterName,
    /// uid; empty where it is not known.
    pub uid: String,
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with uid {}", self.name, self.uid)
    }
}

/// All that the ledger knows of one cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Namespace and name of the `SIPCluster`.
    pub cluster: ClusterName,
    /// Its uid when it was applied last.
    pub uid: String,
    /// When it was created; older ones are served first.
    pub created: Option<SystemTime>,
    /// Its generation when it was applied last.
    pub generation: i64,
    /// The shape that was applied last.
    pub spec: Spec,
    /// The hosts that it holds.
    pub members: BTreeMap<HostId, Member>,
    /// Why it does not hold all that it wants; `None` when it does.
    pub refusal: Option<Refusal>,
    /// What people should know.
    pub reports: Vec<Report>,
    /// Where the site contradicts the ledger.
    pub conflicts: Vec<Report>,
    /// It only releases hosts.
    pub releasing: bool,
    /// Revision of the last change, in the site's history.
    pub revision: u64,
}

impl Record {
    /// An empty record for a cluster that has just been applied for the first time.
    #[must_use]
    pub fn new(
        cluster: ClusterName,
        uid: String,
        created: Option<SystemTime>,
        generation: i64,
        spec: Spec,
    ) -> Self {
        Self {
            cluster,
            uid,
            created,
            generation,
            spec,
            members: BTreeMap::new(),
            refusal: None,
            reports: Vec::new(),
            conflicts: Vec::new(),
            releasing: false,
            revision: 0,
        }
    }

    /// The `SIPCluster` that the record is of.
    #[must_use]
    pub fn id(&self) -> ClusterId {
        ClusterId {
            name: self.cluster.clone(),
            uid: self.uid.clone(),
        }
    }

    /// Whether another decision could bring the cluster nearer to what it wants.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.releasing
            && (self.refusal.is_some()
                || self.members.values().any(|m| {
                    (m.failed_since.is_some() || m.is_beside()) && m.state != MemberState::Releasing
                }))
    }
}
