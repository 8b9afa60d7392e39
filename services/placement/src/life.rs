//! A member's life: the one account of the states that a member can be in, and of what each counts for.
//!
//! The ledger records few facts of a member ([`Member`]: how far its claim is, what it was taken for, whether its
//! release is only requested), and the site shows the rest (the host's marks, its consumer, whether it is there).
//! [`Stage::of_member`] turns both into one stage: what a role has, what a quota and the
//! limits of replacement count, which domains are in use and in which order members go come from
//! [`Stage::counts`]. The decision sets members that are releasing apart before, and outgoing ones beside their replacements; of these
//! the rows state what comes of that. `docs/replacement.md` has the same table; a test compares the two.
//!
//! Two members are a *pair* while one is to be moved and the other was claimed to come in its place: together
//! they fill one place, that of the replacement. The pair ends when
//! - the replacement is bound: the old one is released ([`ReleaseReason::Moved`](crate::ReleaseReason::Moved));
//! - the old one fails: it is released, its replacement is there already;
//! - the replacement fails: it is released, and the old one waits for another; if both have failed, a bound one stays instead;
//! - the request is withdrawn: a new one that is not bound goes, whatever else the role needs; one that is bound is an ordinary member
//!   beside the old one, and counts as growth;
//! - the role shrinks and the place is surplus: both go.
//!
//! While the host of one of them is not in the inventory and has not failed, the pair waits: nobody can say whether the
//! request still stands, or whether the new one will be there.

mod transitions;

use std::fmt;

use crate::request::{FailReason, Member, MemberState};

pub use transitions::{Actor, TRANSITIONS, Transition};

/// Where a member is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Decided and recorded, not labelled yet; taken to let the role grow.
    Claimed,
    /// Claimed in place of another member, and not bound yet. It is not moved before it is bound.
    Replacement,
    /// Labelled and well.
    Bound,
    /// Bound, surplus and in use: its release is requested, and can be withdrawn.
    ReleaseRequested,
    /// Well, and asked to be moved off; no replacement is claimed for it yet.
    MovePending,
    /// Asked to be moved off, and kept beside its claimed replacement.
    Outgoing,
    /// Failed, and not replaced yet.
    Failed,
    /// Claimed in place of another member, and failed before it was bound.
    FailedReplacement,
    /// Its release is final.
    Releasing,
}

/// What a stage counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Whether it is one of the members that its role wants.
    pub place: bool,
    /// Whether its namespace's quota counts it.
    pub quota: Quota,
    /// Whether it is a replacement under way: at most one of a control plane, and a tenth of any other role.
    pub under_way: bool,
    /// What it does to its topology domain.
    pub domain: DomainUse,
    /// When it is released if its role has too many members; None: never for that.
    pub release_order: Option<ReleaseOrder>,
}

/// How a quota counts a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quota {
    /// It counts, and was counted when it was claimed.
    Counted,
    /// Its release is requested, so it does not count; to keep it is to grow.
    CountedAsGrowth,
    /// It does not count.
    NotCounted,
}

/// What a member does to its topology domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DomainUse {
    /// Nobody else of the role may be in it.
    Used,
    /// Only its own replacement may come into it.
    YieldsToItsReplacement,
    /// Any replacement of a failed member of the role may come into it.
    Yields,
}

/// The first part of the order in which members of a role are released when it has too many. Within each those that nobody
/// uses come first, then (of the failed) those with the most pressing reason, then those that are not bound, then those whose release is
/// requested, then those from crowded domains, then by name, the last first. In `docs/replacement.md` it is the column "Released when surplus".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReleaseOrder {
    /// Failed ones.
    First,
    /// Those that are to be moved. A pair goes as its old member does until its replacement is bound, and then as that does.
    Second,
    /// Those that are well.
    Last,
}

/// What decides on a member's stage besides its record: how its host is, and what has become of the member that it is paired with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Circumstances {
    /// Why it must be replaced, the most pressing reason.
    pub failed: Option<FailReason>,
    /// A claimed member that is well is kept beside it as its replacement.
    pub paired: bool,
}

impl Stage {
    /// All of them, in the order of a member's life.
    pub const ALL: [Self; 9] = [
        Self::Claimed,
        Self::Replacement,
        Self::Bound,
        Self::ReleaseRequested,
        Self::MovePending,
        Self::Outgoing,
        Self::Failed,
        Self::FailedReplacement,
        Self::Releasing,
    ];

    /// The stage of a member.
    #[must_use]
    pub fn of_member(member: &Member, circumstances: Circumstances) -> Self {
        let Circumstances { failed, paired } = circumstances;
        if !member.is_live() {
            return Self::Releasing;
        }
        let replaces = member.is_unbound_replacement();
        match failed {
            Some(
                FailReason::Gone
                | FailReason::MarkedFailed
                | FailReason::InError
                | FailReason::UsedBeforeLabelled
                | FailReason::WriteRefused,
            ) => {
                if replaces {
                    Self::FailedReplacement
                } else {
                    Self::Failed
                }
            }
            Some(FailReason::MoveRequested) | None if paired => Self::Outgoing,
            Some(FailReason::MoveRequested) | None if replaces => Self::Replacement,
            Some(FailReason::MoveRequested) => Self::MovePending,
            None if member.requested => Self::ReleaseRequested,
            None => match member.state {
                MemberState::Claimed => Self::Claimed,
                MemberState::Bound | MemberState::Releasing => Self::Bound,
            },
        }
    }

    /// What it counts for.
    #[must_use]
    pub const fn counts(self) -> Counts {
        let well = Counts {
            place: true,
            quota: Quota::Counted,
            under_way: false,
            domain: DomainUse::Used,
            release_order: Some(ReleaseOrder::Last),
        };
        match self {
            Self::Claimed | Self::Bound => well,
            Self::Replacement => Counts {
                under_way: true,
                ..well
            },
            Self::ReleaseRequested => Counts {
                quota: Quota::CountedAsGrowth,
                ..well
            },
            Self::MovePending => Counts {
                domain: DomainUse::YieldsToItsReplacement,
                release_order: Some(ReleaseOrder::Second),
                ..well
            },
            Self::Outgoing => Counts {
                place: false,
                release_order: Some(ReleaseOrder::Second),
                ..well
            },
            Self::Failed => Counts {
                domain: DomainUse::Yields,
                release_order: Some(ReleaseOrder::First),
                ..well
            },
            Self::FailedReplacement => Counts {
                under_way: true,
                domain: DomainUse::Yields,
                release_order: Some(ReleaseOrder::First),
                ..well
            },
            Self::Releasing => Counts {
                place: false,
                quota: Quota::NotCounted,
                under_way: false,
                domain: DomainUse::Used,
                release_order: None,
            },
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Claimed => "claimed",
            Self::Replacement => "replacement",
            Self::Bound => "bound",
            Self::ReleaseRequested => "release requested",
            Self::MovePending => "move pending",
            Self::Outgoing => "outgoing",
            Self::Failed => "failed",
            Self::FailedReplacement => "failed replacement",
            Self::Releasing => "releasing",
        })
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counted => "yes",
            Self::CountedAsGrowth => "as growth",
            Self::NotCounted => "no",
        })
    }
}

impl fmt::Display for DomainUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Used => "used",
            Self::YieldsToItsReplacement => "yields to its own replacement",
            Self::Yields => "yields to a replacement",
        })
    }
}

impl fmt::Display for ReleaseOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "first",
            Self::Second => "second",
            Self::Last => "last",
        })
    }
}
