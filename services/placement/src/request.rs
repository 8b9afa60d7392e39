//! What a cluster wants and what it has.

use std::collections::BTreeSet;
use std::time::Duration;

use vocabulary::{ClusterName, HostId, LabelKey, NetworkId, RoleName, Selector};

use crate::policy::Domain;

/// One role of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// Its name.
    pub name: RoleName,
    /// The hosts that fit.
    pub selector: Selector,
    /// At most one member that has not failed per value of this label. None: no such limit.
    pub topology_key: Option<LabelKey>,
    /// How many hosts: active and standby together.
    pub want: u32,
    /// How long a member may be in error before it counts as failed. None: error is never failure.
    pub replace_after_error: Option<Duration>,
}

/// Everything that one cluster wants. A role that is not in it is wanted 0 times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The cluster.
    pub cluster: ClusterName,
    /// The roles, at most one of a name; their order does not matter.
    pub roles: Vec<Role>,
    /// The networks in which every new host must have an address.
    pub networks: BTreeSet<NetworkId>,
}

/// A host that a cluster has: the facts that its record holds. What they mean is [`crate::life::Stage`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Which host.
    pub host: HostId,
    /// Its role; it never changes.
    pub role: RoleName,
    /// How far its claim is.
    pub state: MemberState,
    /// Its release as surplus is only requested, and can be withdrawn: it has its labels, and an object uses it.
    pub requested: bool,
    /// Its topology domain as last known, with the key that the role had then; used while the host is not in the
    /// inventory and the role still has that key.
    pub domain: Option<Domain>,
    /// Why it must be replaced, if so (see [`crate::failure`]).
    pub failed: Option<FailReason>,
    /// What it was taken for, from [`crate::Take::replaces`] and since then from [`crate::Keep::replaces`].
    pub replaces: Option<Replaces>,
}

impl Member {
    /// Whether it may stay: its release has not begun, or is only requested.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.requested || self.state != MemberState::Releasing
    }

    /// Whether it was claimed in place of another one and is not bound yet.
    #[must_use]
    pub fn is_unbound_replacement(&self) -> bool {
        self.state == MemberState::Claimed && self.replaces.is_some()
    }
}

/// The member in whose place a claimed one comes. Only the decision states so, and it says when that is over: a host that
/// was released, and is taken again, has nothing to do with who replaced it before.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Replaces {
    /// That member is to be moved, and is kept beside it until it is bound.
    Beside(HostId),
    /// That one was released. It says only that this one is a replacement under way.
    Alone(HostId),
}

impl Replaces {
    /// That member's host.
    #[must_use]
    pub fn host(&self) -> &HostId {
        match self {
            Self::Beside(host) | Self::Alone(host) => host,
        }
    }
}

/// How far a member's claim is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberState {
    /// Decided and recorded, not labelled yet.
    Claimed,
    /// Its host has the labels of the cluster.
    Bound,
    /// Being released; it uses its domain until its host is free.
    Releasing,
}

/// Why a member must be replaced, the most pressing first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailReason {
    /// The `BareMetalHost` no longer exists.
    Gone,
    /// An annotation marks the host as failed.
    MarkedFailed,
    /// In error for longer than the role allows.
    InError,
    /// Claimed, and used by somebody before it had its labels.
    UsedBeforeLabelled,
    /// Claimed, and the API server refuses every write of its host, so that it cannot get its labels.
    WriteRefused,
    /// An annotation requests to move it off; it is kept until its replacement is bound.
    MoveRequested,
}

impl FailReason {
    /// Whether the member has failed, and is not only to be moved.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        match self {
            Self::Gone
            | Self::MarkedFailed
            | Self::InError
            | Self::UsedBeforeLabelled
            | Self::WriteRefused => true,
            Self::MoveRequested => false,
        }
    }
}

/// Who has a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// A cluster.
    Cluster {
        /// Which cluster.
        cluster: ClusterName,
        /// In which role.
        role: RoleName,
        /// How far the claim is.
        state: MemberState,
    },
    /// Labelled for a SIPCluster that does not exist: never free by itself.
    Orphaned,
}
