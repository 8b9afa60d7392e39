//! What makes one host a better choice than another.

use crate::site::Slot;

/// How good a host is for a role where the spread is the same; the smallest is the best. The fields are in order of
/// importance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Score {
    pub(crate) class: Class,
    /// The order of names; settles the rest, so that equal input gives equal output.
    pub(crate) rank: u64,
    /// Which host; no two have the same rank.
    pub(crate) host: Slot,
}

impl Score {
    /// Nothing is better.
    pub(crate) const BEST: Self = Self {
        class: Class(0),
        rank: 0,
        host: 0,
    };
    /// Everything is better.
    pub(crate) const WORST: Self = Self {
        class: Class::WORST,
        rank: u64::MAX,
        host: Slot::MAX,
    };
}

/// What many hosts share, as one number that is compared in the innermost loop. In order of importance:
/// - how many other roles of the request it matches: leave it to them;
/// - its hardware is not known (not inspected);
/// - it is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class(u32);

impl Class {
    /// No host's.
    pub(crate) const WORST: Self = Self(u32::MAX);

    /// The two flags are 0 or 1.
    pub(crate) fn new(scarce: u32, uninspected: u32, unpowered: u32) -> Self {
        Self(scarce << 2 | uninspected << 1 | unpowered)
    }

    pub(crate) fn scarce(self) -> u32 {
        self.0 >> 2
    }

    pub(crate) fn uninspected(self) -> u32 {
        self.0 >> 1 & 1
    }

    pub(crate) fn unpowered(self) -> u32 {
        self.0 & 1
    }
}
