//! Questions about what would be, answered by the same code that decides.

use std::collections::{BTreeMap, BTreeSet};

use vocabulary::{ClusterName, HostId, RoleName};

use crate::decide::needs_replacement;
use crate::policy::Domain;
use crate::request::{FailReason, Member, MemberState, Replaces, Request};
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
    /// A member is to be replaced: it has failed, or is to be moved.
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
    /// Its members that have come as far as their labels: claims do not run anything yet. Surplus ones in use are among them; of a member
    /// that is moved and its replacement only the one that serves.
    pub members: u32,
    /// How many of them have failed already, or have no host in the site.
    pub failed: u32,
    /// How many of the others are in the domain.
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
            failed,
            lost,
        } = self;
        members.saturating_sub(failed + lost).saturating_mul(2) <= *members
    }
}

/// What clusters lose if all hosts of a domain are gone; sorted, only roles that lose something. `clusters`: with all their members.
#[must_use]
pub fn lose_domain<'a>(
    site: &Site,
    clusters: impl IntoIterator<Item = (&'a ClusterName, &'a [Member])>,
    domain: &Domain,
) -> Vec<Loss> {
    let mut losses = Vec::new();
    for (cluster, members) in clusters {
        let mut roles: BTreeMap<&RoleName, Loss> = BTreeMap::new();
        let replaced = out_of_service(site, members);
        let serving = members
            .iter()
            .filter(|member| is_labelled(member) && !replaced.contains(&member.host));
        for member in serving {
            let loss = roles.entry(&member.role).or_insert_with(|| Loss {
                cluster: cluster.clone(),
                role: member.role.clone(),
                members: 0,
                failed: 0,
                lost: 0,
            });
            let slot = site.slot_of(&member.host);
            let label = slot.and_then(|slot| site.label(&domain.key, slot));
            loss.members += 1;
            if has_failed(site, member) {
                loss.failed += 1;
            } else if label.as_ref() == Some(&domain.value) {
                loss.lost += 1;
            }
        }
        losses.extend(roles.into_values().filter(|loss| loss.lost > 0));
    }
    losses.sort();
    losses
}

/// Whether a member's claim has come as far as its labels, and its release is not final.
fn is_labelled(member: &Member) -> bool {
    member.is_live() && member.state != MemberState::Claimed
}

/// Of each pair whose replacement has its labels, the one that the next decision releases.
fn out_of_service<'a>(site: &Site, members: &'a [Member]) -> BTreeSet<&'a HostId> {
    let pair = |new: &'a Member| {
        let Some(Replaces::Beside(old)) = &new.replaces else {
            return None;
        };
        let mut live = members.iter().filter(|member| member.is_live());
        let old = live.find(|member| member.host == *old && member.role == new.role)?;
        (old.host != new.host).then_some((old, new))
    };
    let goes = |(old, new): (&'a Member, &'a Member)| {
        let (old_failed, new_failed) = (has_failed(site, old), has_failed(site, new));
        if new_failed && !old_failed {
            is_to_be_moved(site, old).then_some(&new.host)
        } else {
            (old_failed || is_to_be_moved(site, old)).then_some(&old.host)
        }
    };
    let labelled = members.iter().filter(|member| is_labelled(member));
    labelled.filter_map(pair).filter_map(goes).collect()
}

/// Whether nothing of a member is known to run.
fn has_failed(site: &Site, member: &Member) -> bool {
    let row = site.slot_of(&member.host).and_then(|slot| site.row(slot));
    let Some(row) = row else { return true };
    row.is_marked_failed() || member.failed.is_some_and(FailReason::is_failure)
}

fn is_to_be_moved(site: &Site, member: &Member) -> bool {
    let row = site.slot_of(&member.host).and_then(|slot| site.row(slot));
    row.is_some_and(crate::site::Row::is_to_be_moved) || member.failed == Some(FailReason::MoveRequested)
}
