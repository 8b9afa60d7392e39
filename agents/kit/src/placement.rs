//! What the scheduler decides about a cluster, as agents act on it. Values are checked when they are parsed
//! ([`crate::scheduler_client`]); past that nothing is checked again.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use api::{MemberState, NetworkId, SIPCluster};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

/// Namespace and name of an object of the site.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectKey {
    /// The key of an object in a namespace.
    #[must_use]
    pub fn for_object(object: &impl ResourceExt) -> Self {
        Self {
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name } = self;
        write!(f, "{namespace}/{name}")
    }
}

/// One incarnation of a `SIPCluster`. Without a uid: any incarnation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId {
    key: ObjectKey,
    uid: String,
}

impl ClusterId {
    /// The incarnation that an object is of.
    #[must_use]
    pub fn for_object(object: &SIPCluster) -> Self {
        Self::new(ObjectKey::for_object(object), object.uid().unwrap_or_default())
    }

    /// The incarnation with this `metadata.uid`; any, if it is empty.
    pub fn new(key: ObjectKey, uid: impl Into<String>) -> Self {
        Self { key, uid: uid.into() }
    }

    /// Namespace and name.
    #[must_use]
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Namespace of the `SIPCluster`.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.key.namespace
    }

    /// Name of the `SIPCluster`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.key.name
    }

    /// `metadata.uid`; empty where any incarnation is meant.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }
}

/// One incarnation of a `BareMetalHost`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId {
    key: ObjectKey,
    uid: String,
}

impl HostId {
    /// The incarnation with this `metadata.uid`.
    pub fn new(key: ObjectKey, uid: impl Into<String>) -> Self {
        Self { key, uid: uid.into() }
    }

    /// Namespace and name.
    #[must_use]
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// `metadata.uid`. Empty only in [`Member::replaces`], where the replaced host is gone.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }
}

/// Namespace and name, for messages.
impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.fmt(f)
    }
}

/// A place in the history of one site. A higher epoch is newer than every revision of a lower one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    epoch: u64,
    revision: u64,
}

impl Position {
    /// The place of a revision in an epoch.
    #[must_use]
    pub const fn new(epoch: u64, revision: u64) -> Self {
        Self { epoch, revision }
    }

    /// Part of the site's history.
    #[must_use]
    pub const fn epoch(self) -> u64 {
        self.epoch
    }

    /// Number of the change.
    #[must_use]
    pub const fn revision(self) -> u64 {
        self.revision
    }
}

/// A host that a cluster holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub(crate) host: HostId,
    pub(crate) role: String,
    pub(crate) ordinal: Option<u32>,
    pub(crate) domain: Option<String>,
    pub(crate) state: MemberState,
    pub(crate) revision: u64,
    pub(crate) addresses: BTreeMap<String, IpAddr>,
    pub(crate) failed_since: Option<Timestamp>,
    pub(crate) move_requested: bool,
    pub(crate) release_reason: Option<String>,
    pub(crate) replaces: Option<HostId>,
}

impl Member {
    /// Which host.
    #[must_use]
    pub fn host(&self) -> &HostId {
        &self.host
    }

    /// Role that it serves; never empty.
    #[must_use]
    pub fn role(&self) -> &str {
        &self.role
    }

    /// Its number in the role, from 0: constant, and inherited by a replacement. Absent from a scheduler that gives none.
    #[must_use]
    pub fn ordinal(&self) -> Option<u32> {
        self.ordinal
    }

    /// Value of the role's topology key when it was claimed; absent without key.
    #[must_use]
    pub fn domain(&self) -> Option<&str> {
        self.domain.as_deref()
    }

    /// The state of the claim.
    #[must_use]
    pub fn state(&self) -> MemberState {
        self.state
    }

    /// Whether it is being released.
    #[must_use]
    pub fn is_releasing(&self) -> bool {
        self.state == MemberState::Releasing
    }

    /// Revision of the claim, or of its release once it is releasing.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Its address in a network, as last known.
    #[must_use]
    pub fn address(&self, network: &NetworkId) -> Option<IpAddr> {
        self.addresses.get(network.as_str()).copied()
    }

    /// Its addresses in every network, as last known.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.values().copied()
    }

    /// Whether it has every address that another member has, in the same network.
    #[must_use]
    pub fn has_addresses_of(&self, other: &Self) -> bool {
        let mut addresses = other.addresses.iter();
        addresses.all(|(network, address)| self.addresses.get(network) == Some(address))
    }

    /// Since when it is to be replaced: it has failed, or a user has requested that. If it fails after a request, the time changes.
    #[must_use]
    pub fn failed_since(&self) -> Option<Timestamp> {
        self.failed_since
    }

    /// Whether it is to be replaced only because a user has requested that, and its host has not failed.
    #[must_use]
    pub fn is_move_requested(&self) -> bool {
        self.move_requested
    }

    /// Why it is releasing: `surplus`, `failed`, `gone`, `deleted` or `orphaned`; absent otherwise.
    #[must_use]
    pub fn release_reason(&self) -> Option<&str> {
        self.release_reason.as_deref()
    }

    /// The host that it replaces, until it is bound; absent if it replaces none.
    #[must_use]
    pub fn replaces(&self) -> Option<&HostId> {
        self.replaces.as_ref()
    }

    /// Its release, as the agent confirms it once the API server has the write to the host.
    #[must_use]
    pub fn release(&self) -> Release {
        Release {
            host: self.host.clone(),
            revision: self.revision,
        }
    }
}

/// A host that a cluster releases, and by which revision.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    host: HostId,
    revision: u64,
}

impl Release {
    /// Which host.
    #[must_use]
    pub fn host(&self) -> &HostId {
        &self.host
    }

    /// Revision that the write to the host carries.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }
}

/// Why a cluster does not get what it wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub(crate) kind: String,
    pub(crate) message: String,
}

impl Refusal {
    /// Stable kind, for example `no-fit`, `quota` or `older-first`.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// All of it in a sentence for messages, at most 1,024 bytes.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// What a cluster holds, and what it still wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    pub(crate) cluster: ClusterId,
    pub(crate) generation: i64,
    pub(crate) position: Position,
    pub(crate) members: Vec<Member>,
    pub(crate) refusal: Option<Refusal>,
    pub(crate) reports: Vec<String>,
}

impl Placement {
    /// Which cluster.
    #[must_use]
    pub fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    /// Generation of the `SIPCluster` that the scheduler has applied last.
    #[must_use]
    pub fn generation(&self) -> i64 {
        self.generation
    }

    /// Place of its last change in the site's history.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// In the order of namespace and name. Where a host was made again both incarnations may be members.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Why not all wanted hosts are held; absent when they are.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }

    /// Members and hosts that break a rule and stay where they are; sentences for messages.
    #[must_use]
    pub fn reports(&self) -> &[String] {
        &self.reports
    }
}

/// The hosts that the scheduler's ledger gives to a cluster, also where nothing else of its placement can be read: a newer scheduler may have
/// recorded it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldHosts {
    pub(crate) cluster: ClusterId,
    pub(crate) hosts: Vec<HostId>,
    pub(crate) unknown: usize,
}

impl HeldHosts {
    /// Which cluster.
    #[must_use]
    pub fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    /// The hosts. The name of one that cannot be read is empty, and so is such a uid.
    #[must_use]
    pub fn hosts(&self) -> &[HostId] {
        &self.hosts
    }

    /// How many members there are of which not even the namespace can be read.
    #[must_use]
    pub fn unknown(&self) -> usize {
        self.unknown
    }
}
