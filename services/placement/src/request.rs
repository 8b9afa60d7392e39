//! What a cluster wants and what it has.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::names::{ClusterName, HostId, LabelKey, LabelValue, NetworkId, RoleName};
use crate::selector::Selector;

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
    /// Who asks.
    pub cluster: ClusterName,
    /// The roles, at most one of a name; their order does not matter.
    pub roles: Vec<Role>,
    /// The networks in which every new host must have an address.
    pub networks: BTreeSet<NetworkId>,
}

/// A host that a cluster has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Which host.
    pub host: HostId,
    /// Its role; it never changes.
    pub role: RoleName,
    /// How far its claim is.
    pub state: MemberState,
    /// The value of the role's topology key as last known; used while the host is not in the inventory.
    pub domain: Option<LabelValue>,
    /// Why it must be replaced, if so (see [`crate::failure`]).
    pub failed: Option<FailReason>,
    /// The member whose place this one was taken for, from [`crate::Take::replaces`]; it counts against the limit of
    /// replacements until it is bound.
    pub replaces: Option<HostId>,
}

/// How far a member's claim is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberState {
    /// Decided and recorded, not labelled yet.
    Claimed,
    /// Labelled.
    Bound,
    /// On its way out; it uses its domain until it is freed.
    Releasing,
}

/// Why a member must be replaced, the most pressing first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailReason {
    /// The `BareMetalHost` does not exist any more.
    Gone,
    /// Somebody marked the host as failed.
    Marked,
    /// In error for longer than the role allows.
    InError,
    /// Claimed, and used by somebody before it had its labels.
    Taken,
    /// Somebody asked to move it off; it is kept until its replacement is bound.
    ReplaceRequested,
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
