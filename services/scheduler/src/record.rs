//! What the ledger holds of one cluster: a plain value, changed only by [`crate::claims`].

use std::{collections::BTreeMap, net::IpAddr, time::SystemTime};

use placement::{ClusterName, Domain, HostId, MemberState, NetworkId, Replaces, RoleName};
use proto::{inventory::v1 as inventory, placement::v1 as api};

use crate::spec::Spec;

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
    pub refusal: Option<api::Refusal>,
    /// What people should know.
    pub reports: Vec<api::Report>,
    /// Where the site contradicts the ledger.
    pub conflicts: Vec<api::Report>,
    /// It only gives hosts back.
    pub releasing: bool,
    /// Commit number of the last change.
    pub revision: u64,
}

/// A host that a cluster holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Role that it serves.
    pub role: RoleName,
    /// Its topology domain when it was claimed, or when its role got that key.
    pub domain: Option<Domain>,
    /// How far the claim has come.
    pub state: MemberState,
    /// Revision of the claim, or of the release once releasing.
    pub revision: u64,
    /// Addresses as last known, of every network of the host.
    pub addresses: BTreeMap<NetworkId, IpAddr>,
    /// BMC address as last known.
    pub bmc_address: String,
    /// Since when it counts as failed.
    pub failed_since: Option<SystemTime>,
    /// Since when its host has been in error, or gone, where that makes it fail only after a time.
    pub unwell_since: Option<SystemTime>,
    /// Its host was paused or detached when it was seen last: metal3 was told to leave it alone.
    pub suspended: bool,
    /// The member in whose place it comes, until it is bound; only the decision sets it.
    pub replaces: Option<Replaces>,
    /// Why it is releasing.
    pub release_reason: Option<ReleaseReason>,
    /// The agent has confirmed that the release is written on the host.
    pub confirmed: bool,
}

/// Why a member is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseReason {
    /// More members than wanted.
    Surplus,
    /// Failed, and replaced.
    Failed,
    /// Its `BareMetalHost` is gone.
    Gone,
    /// The cluster is being deleted.
    Deleted,
    /// The cluster does not exist, and an operator asked for it.
    Orphaned,
}

impl ReleaseReason {
    const ALL: [Self; 5] = [
        Self::Surplus,
        Self::Failed,
        Self::Gone,
        Self::Deleted,
        Self::Orphaned,
    ];

    /// The stable name that callers see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Surplus => "surplus",
            Self::Failed => "failed",
            Self::Gone => "gone",
            Self::Deleted => "deleted",
            Self::Orphaned => "orphaned",
        }
    }

    /// The reason of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }
}

impl Member {
    /// Whether another member is kept until this one is bound.
    #[must_use]
    pub fn is_beside(&self) -> bool {
        match self.replaces {
            Some(Replaces::Beside(_)) => true,
            Some(Replaces::Alone(_)) | None => false,
        }
    }
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

    /// How the record's cluster is named in requests and answers.
    #[must_use]
    pub fn reference(&self) -> inventory::ClusterRef {
        inventory::ClusterRef {
            namespace: self.cluster.namespace().as_str().to_owned(),
            name: self.cluster.name().to_owned(),
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
