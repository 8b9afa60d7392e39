//! A `SIPCluster` as its site reports it.

use std::time::SystemTime;

use placement::{Domain, HostId, HostName, MemberState, RoleName, Uid, size::text};

use crate::{
    ledger::SitePosition,
    record::{ClusterId, ReleaseReason},
};

/// Approximate bytes of the record that a host is held for a cluster whose status names it.
const PROMISE_BYTES: usize = 512;

/// A `SIPCluster` as it was reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    pub(crate) id: ClusterId,
    pub(crate) generation: i64,
    pub(crate) created: Option<SystemTime>,
    pub(crate) deleting: bool,
    pub(crate) position: Option<SitePosition>,
    pub(crate) members: Vec<Member>,
}

/// A host that a `SIPCluster`'s status names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which host.
    pub host: HostId,
    /// Its role; `None` when it is not valid.
    pub role: Option<RoleName>,
    /// The topology domain that the status names; `None` when its key is not known.
    pub domain: Option<Domain>,
    /// How far its claim had come; `None` when it is not known.
    pub state: Option<MemberState>,
    /// Revision of its claim or release.
    pub revision: u64,
    /// The member in whose place it comes.
    pub replaces: Option<Replaced>,
    /// Its number in the role.
    pub ordinal: Option<u32>,
    /// Why it is releasing.
    pub release_reason: Option<ReleaseReason>,
}

/// A member in whose place another one comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// Its host.
    pub name: HostName,
    /// uid of the host, if the status has it still.
    pub uid: Option<Uid>,
}

impl Cluster {
    /// Name and uid.
    #[must_use]
    pub fn id(&self) -> &ClusterId {
        &self.id
    }

    /// `metadata.generation`.
    #[must_use]
    pub fn generation(&self) -> i64 {
        self.generation
    }

    /// `metadata.creationTimestamp`.
    #[must_use]
    pub fn created(&self) -> Option<SystemTime> {
        self.created
    }

    /// Whether `metadata.deletionTimestamp` is set.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.deleting
    }

    /// The position of its status in the site's history.
    #[must_use]
    pub fn position(&self) -> Option<SitePosition> {
        self.position
    }

    /// Hosts that its status names.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// About how many bytes it takes here, with what is kept of each host that its status may promise it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let name = |host: &HostName| host.namespace().as_str().len() + host.name().len();
        let members = self.members.iter().map(|member| {
            let replaces = member
                .replaces
                .as_ref()
                .map_or(0, |replaced| name(&replaced.name));
            let domain = member.domain.as_ref().map_or(0, |Domain { key, value }| {
                text(key.as_str().len()) + text(value.as_str().len())
            });
            size_of::<Member>()
                + PROMISE_BYTES
                + name(&member.host.name)
                + member.host.uid.as_str().len()
                + replaces
                + domain
        });
        size_of::<Self>() + self.id.uid.len() + self.id.name.to_string().len() + members.sum::<usize>()
    }

    /// Whether another report of it has the same status.
    #[must_use]
    pub fn has_status_of(&self, other: &Self) -> bool {
        (self.position, &self.members) == (other.position, &other.members)
    }
}
