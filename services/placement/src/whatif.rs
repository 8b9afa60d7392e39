//! Questions about what would be, answered by the same code that decides.

use std::collections::BTreeMap;

use vocabulary::{ClusterName, RoleName};

use crate::decide::needs_replacement;
use crate::policy::Domain;
use crate::request::{Holder, Member, MemberState, Request};
use crate::site::Site;

/// When a cluster is decided among several; the smallest comes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Priority {
    /// Replacements go before growth, and growth before new clusters.
    pub kind: PriorityClass,
    /// Whether the cluster's creation time is unknown; such clusters come last.
    pub undated: bool,
    /// The SIPCluster's `creationTimestamp` in seconds since 1970, 0 when unknown.
    pub created: i64,
    /// Which cluster.
    pub cluster: ClusterName,
}

/// What a cluster waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PriorityClass {
    /// A member is to be replaced: it has failed, or is asked to be moved.
    Replacement,
    /// It has members, and none is to be replaced.
    Growth,
    /// It has no member.
    New,
}

impl Priority {
    /// A cluster's turn. `created` is its `creationTimestamp` in seconds since 1970.
    #[must_use]
    pub fn new(site: &Site, request: &Request, members: &[Member], created: Option<i64>) -> Self {
        let kind = if needs_replacement(site, request, members) {
            PriorityClass::Replacement
        } else if members
            .iter()
            .any(|member| member.state != MemberState::Releasing)
        {
            PriorityClass::Growth
        } else {
            PriorityClass::New
        };
        let (undated, created) = (created.is_none(), created.unwrap_or_default());
        Self {
            kind,
            undated,
            created,
            cluster: request.cluster.clone(),
        }
    }
}

/// What one role of one cluster loses with a domain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss {
    /// The cluster.
    pub cluster: ClusterName,
    /// The role.
    pub role: RoleName,
    /// Its members now; releasing ones do not count.
    pub members: u32,
    /// How many of them are in the domain.
    pub lost: u32,
}

impl Loss {
    /// Whether the rest is no majority: a control plane would lose its quorum.
    #[must_use]
    pub fn loses_majority(&self) -> bool {
        let Self {
            cluster: _,
            role: _,
            members,
            lost,
        } = self;
        (members - lost).saturating_mul(2) <= *members
    }
}

/// What the clusters of a site lose if all hosts of a domain are gone; sorted, only roles that lose something.
#[must_use]
pub fn lose_domain(site: &Site, domain: &Domain) -> Vec<Loss> {
    let mut roles: BTreeMap<(&ClusterName, &RoleName), (u32, u32)> = BTreeMap::new();
    for (id, holder) in site.holders() {
        let Holder::Cluster {
            cluster,
            role,
            state: MemberState::Claimed | MemberState::Bound,
        } = holder
        else {
            continue;
        };
        let (members, lost) = roles.entry((cluster, role)).or_default();
        let label = site.slot_of(id).and_then(|slot| site.label(&domain.key, slot));
        *members += 1;
        *lost += u32::from(label.as_ref() == Some(&domain.value));
    }
    let loss = |((cluster, role), (members, lost)): ((&ClusterName, &RoleName), (u32, u32))| {
        (lost > 0).then(|| Loss {
            cluster: cluster.clone(),
            role: role.clone(),
            members,
            lost,
        })
    };
    roles.into_iter().filter_map(loss).collect()
}
