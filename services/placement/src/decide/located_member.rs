//! A member with what the site shows of it.

use vocabulary::{LabelKey, LabelValue};

use crate::host::Consumer;
use crate::life::{Circumstances, Quota, Stage};
use crate::request::{FailReason, Member, Replaces};
use crate::site::{Site, Slot};

/// A member, with what the site shows of its host now.
#[derive(Debug, Clone)]
pub(crate) struct LocatedMember<'a> {
    pub(crate) member: &'a Member,
    pub(crate) slot: Option<Slot>,
    /// Its topology domain: what its label says now, and as last known while the host is not there. Never empty.
    pub(crate) domain: Option<LabelValue>,
    pub(crate) failed: Option<FailReason>,
    pub(crate) consumer: Option<Consumer>,
    pub(crate) stage: Stage,
    /// What it still replaces.
    pub(crate) replaces: Option<Replaces>,
    /// It was claimed beside a member that stays after all, and is bound: it is one place more than the quota has counted.
    pub(crate) is_extra: bool,
}

impl<'a> LocatedMember<'a> {
    pub(crate) fn new(site: &Site, key: Option<&LabelKey>, member: &'a Member) -> Self {
        let slot = site.slot_of(&member.host);
        let row = slot.and_then(|slot| site.row(slot));
        let domain = match (slot, key) {
            (Some(slot), Some(key)) => site.label(key, slot),
            (None, Some(key)) => last_known(member, key),
            (_, None) => None,
        };
        let marked = row
            .is_some_and(crate::site::Row::is_marked_failed)
            .then_some(FailReason::MarkedFailed);
        let asked = row
            .is_some_and(crate::site::Row::is_to_be_moved)
            .then_some(FailReason::MoveRequested);
        let failed = [member.failed, marked, asked].into_iter().flatten().min();
        Self {
            member,
            slot,
            domain: domain.filter(|value| !value.is_empty()),
            failed,
            consumer: row.and_then(|row| row.consumer.as_deref().cloned()),
            stage: Stage::of_member(
                member,
                Circumstances {
                    failed,
                    paired: false,
                },
            ),
            replaces: member.replaces.clone(),
            is_extra: false,
        }
    }

    /// It is to be moved, but not before it is bound.
    pub(crate) fn is_postponed(&self) -> bool {
        self.stage == Stage::Replacement && self.failed == Some(FailReason::MoveRequested)
    }
}

/// The value of a topology key as a member's record has it; an empty one, or one of another key, says nothing.
pub(crate) fn last_known(member: &Member, key: &LabelKey) -> Option<LabelValue> {
    let domain = member.domain.as_ref().filter(|domain| domain.key == *key);
    domain
        .map(|domain| domain.value.clone())
        .filter(|value| !value.is_empty())
}

impl LocatedMember<'_> {
    /// How its namespace's quota counts it.
    pub(crate) fn quota(&self) -> Quota {
        if self.member.requested || self.is_extra {
            Quota::CountedAsGrowth
        } else {
            self.stage.counts().quota
        }
    }
}
