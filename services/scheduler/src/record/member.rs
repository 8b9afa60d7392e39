//! A host that a cluster holds.

use std::{collections::BTreeMap, net::IpAddr, time::SystemTime};

use placement::{Domain, FailReason, MemberState, NetworkId, Replaces, RoleName};

/// Revision of a claim or release that is decided and gets its number when it is staged.
const UNNUMBERED: u64 = 0;

/// A host that a cluster holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Role that it serves.
    pub role: RoleName,
    /// Its number in the role, see [`super::ordinals`]; `None` until its step is stored.
    pub ordinal: Option<u32>,
    /// Its topology domain when it was claimed, when its role got that key, or when its host was gone.
    pub domain: Option<Domain>,
    /// How far the claim has come.
    pub state: MemberState,
    /// Revision of the claim, or of the release once releasing.
    pub revision: u64,
    /// Addresses as last known, of every network of the host.
    pub addresses: BTreeMap<NetworkId, IpAddr>,
    /// BMC address as last known.
    pub bmc_address: String,
    /// Since when it counts as failed, or is to be moved off.
    pub failed_since: Option<SystemTime>,
    /// It is to be replaced only since its move was requested: it has not failed.
    pub move_requested: bool,
    /// Since when its host has been in error, or gone, if such a state counts as a failure only after a time.
    pub unwell_since: Option<SystemTime>,
    /// Its host was paused or detached when it was observed last: metal3 was told to leave it alone.
    pub suspended: bool,
    /// The member in whose place it comes, until it is bound; only the decision sets it.
    pub replaces: Option<Replaces>,
    /// Why it is releasing.
    pub release_reason: Option<ReleaseReason>,
    /// The agent has confirmed that the release is written on the host.
    pub confirmed: bool,
}

impl Member {
    /// A host that begins to be a member; the claim is numbered when it is staged.
    #[must_use]
    pub fn new(role: RoleName, domain: Option<Domain>, state: MemberState) -> Self {
        Self {
            role,
            ordinal: None,
            domain,
            state,
            revision: UNNUMBERED,
            addresses: BTreeMap::new(),
            bmc_address: String::new(),
            failed_since: None,
            move_requested: false,
            unwell_since: None,
            suspended: false,
            replaces: None,
            release_reason: None,
            confirmed: false,
        }
    }

    /// Whether another member stays until this one is bound.
    #[must_use]
    pub fn is_beside(&self) -> bool {
        match self.replaces {
            Some(Replaces::Beside(_)) => true,
            Some(Replaces::Alone(_)) | None => false,
        }
    }

    /// Begins to release it; a release that has begun stands as it is.
    pub fn begin_release(&mut self, reason: ReleaseReason) {
        if self.state != MemberState::Releasing {
            self.state = MemberState::Releasing;
            self.renumber();
            self.release_reason = Some(reason);
            self.confirmed = false;
        }
    }

    /// The same, when its cluster ends: a release that was only requested, of a surplus member in use, is no longer withdrawn.
    pub fn begin_final_release(&mut self, reason: ReleaseReason) {
        self.begin_release(reason);
        if self.release_reason == Some(ReleaseReason::Surplus) {
            self.release_reason = Some(reason);
        }
    }

    /// Makes it a claim or release of the step that is being decided.
    pub fn renumber(&mut self) {
        self.revision = UNNUMBERED;
    }

    /// Whether its claim or release has a number: it is from an earlier step.
    #[must_use]
    pub fn is_numbered(&self) -> bool {
        self.revision != UNNUMBERED
    }

    /// Gives it the number of its step, unless it has one.
    pub fn number(&mut self, revision: u64) {
        if !self.is_numbered() {
            self.revision = revision;
        }
    }
}

/// Why a member is released.
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

impl From<placement::ReleaseReason> for ReleaseReason {
    fn from(reason: placement::ReleaseReason) -> Self {
        match reason {
            placement::ReleaseReason::Surplus => Self::Surplus,
            placement::ReleaseReason::Failed(FailReason::Gone) => Self::Gone,
            placement::ReleaseReason::Failed(
                FailReason::MarkedFailed
                | FailReason::InError
                | FailReason::UsedBeforeLabelled
                | FailReason::WriteRefused
                | FailReason::MoveRequested,
            )
            | placement::ReleaseReason::Moved => Self::Failed,
        }
    }
}
