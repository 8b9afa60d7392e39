//! What has become of each replacement and the member that it was taken for.

use std::collections::{BTreeMap, BTreeSet};

use vocabulary::HostId;

use super::located_member::LocatedMember;
use crate::decision::ReleaseReason;
use crate::request::{FailReason, MemberState, Replaces};

/// What follows for the members of a role.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    /// Members that are kept beside their claimed replacement, by host, with the replacement's host.
    pub(crate) outgoing: BTreeMap<HostId, HostId>,
    /// Members whose place another one has: they are released.
    pub(crate) ended: BTreeMap<HostId, ReleaseReason>,
    /// Bound members whose move was withdrawn before the old one was released: to keep one beside the old one is to grow.
    pub(crate) extra: BTreeSet<HostId>,
}

/// Condition of one member of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    Well,
    MovePending,
    /// Its host is not in the inventory, and does not count as failed yet.
    Unknown,
    Failed(FailReason),
}

fn condition(known: &LocatedMember<'_>) -> Condition {
    match known.failed {
        Some(
            reason @ (FailReason::Gone
            | FailReason::MarkedFailed
            | FailReason::InError
            | FailReason::UsedBeforeLabelled
            | FailReason::WriteRefused),
        ) => Condition::Failed(reason),
        Some(FailReason::MoveRequested) => Condition::MovePending,
        None if known.slot.is_none() => Condition::Unknown,
        None => Condition::Well,
    }
}

impl Pairs {
    /// Of the live members of one role, in the order of hosts.
    pub(crate) fn new(live: &[LocatedMember<'_>]) -> Self {
        let by_host: BTreeMap<&HostId, &LocatedMember<'_>> =
            live.iter().map(|known| (&known.member.host, known)).collect();
        let mut pairs = Self::default();
        let mut met = BTreeSet::new();
        for new in live {
            let Some(Replaces::Beside(host)) = &new.member.replaces else {
                continue;
            };
            let Some(old) = by_host.get(host).filter(|_| *host != new.member.host) else {
                continue;
            };
            if !met.insert(host) {
                continue;
            }
            let is_bound = new.member.state != MemberState::Claimed;
            match (condition(new), condition(old)) {
                // The move is withdrawn: neither member replaces the other any more, whether or not they failed. An unbound replacement is released
                // at once, whatever else the role needs or could release: kept, it would be one more replacement under way, or growth that no quota
                // has counted.
                (_, Condition::Well) if !is_bound => {
                    pairs
                        .ended
                        .insert(new.member.host.clone(), ReleaseReason::Surplus);
                }
                (_, Condition::Well) => {
                    pairs.extra.insert(new.member.host.clone());
                }
                // A bound replacement has the place, and stays until it is itself replaced.
                (Condition::Failed(_), Condition::Failed(reason)) if is_bound => {
                    pairs.ended.insert(host.clone(), ReleaseReason::Failed(reason));
                }
                (Condition::Failed(reason), _) => {
                    let reason = ReleaseReason::Failed(reason);
                    pairs.ended.insert(new.member.host.clone(), reason);
                }
                (_, Condition::Failed(reason)) => {
                    pairs.ended.insert(host.clone(), ReleaseReason::Failed(reason));
                }
                // Only if both hosts are in the inventory: a new one that is missing may never come back.
                (Condition::Well | Condition::MovePending, Condition::MovePending) if is_bound => {
                    pairs.ended.insert(host.clone(), ReleaseReason::Moved);
                }
                (_, Condition::MovePending | Condition::Unknown) => {
                    pairs.outgoing.insert(host.clone(), new.member.host.clone());
                }
            }
        }
        pairs
    }

    /// What a member still replaces.
    pub(crate) fn replaces(&self, known: &LocatedMember<'_>) -> Option<Replaces> {
        let replaces = known.member.replaces.as_ref()?;
        if self.outgoing.get(replaces.host()) == Some(&known.member.host) {
            return Some(replaces.clone());
        }
        let is_under_way = known.member.state == MemberState::Claimed;
        is_under_way.then(|| Replaces::Alone(replaces.host().clone()))
    }
}
