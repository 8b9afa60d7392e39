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

/// What many hosts share. The fields are in order of importance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class {
    /// How many other roles of the request it matches: leave it to them.
    pub(crate) scarce: u32,
    /// Its hardware is not known.
    pub(crate) uninspected: bool,
    /// It is off.
    pub(crate) unpowered: bool,
}

impl Class {
    pub(crate) fn new(scarce: u32, uninspected: bool, unpowered: bool) -> Self {
        Self {
            scarce,
            uninspected,
            unpowered,
        }
    }
}
