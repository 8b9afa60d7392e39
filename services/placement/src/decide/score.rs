//! What makes one host a better choice than another.

use super::preferences::Preferences;
use crate::site::Slot;

/// What is better avoided in one host. Small, since it is compared in the innermost loop.
pub(crate) type Drawbacks = Preferences<u8, ()>;

impl Drawbacks {
    /// Of an ideal host.
    pub(crate) const NONE: Self = Self {
        outside: 0,
        spread: (),
        scarce: 0,
        uninspected: 0,
        unpowered: 0,
    };
    /// No host's: it is outside at most once.
    const MOST: Self = Self {
        outside: u8::MAX,
        spread: (),
        scarce: u8::MAX,
        uninspected: u8::MAX,
        unpowered: u8::MAX,
    };

    /// So many other roles match the host; more than 255 are no worse.
    #[inline]
    pub(crate) fn roles(others: impl Iterator<Item = bool>) -> u8 {
        others.fold(0, |roles: u8, matches| roles.saturating_add(u8::from(matches)))
    }
}

/// How good a host is for a role where the spread is the same; the smallest is the best. The fields are in order of
/// importance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Score {
    pub(crate) drawbacks: Drawbacks,
    /// The order of names; settles the rest, so that equal input gives equal output.
    pub(crate) rank: u64,
    /// Which host; no two have the same rank.
    pub(crate) host: Slot,
}

impl Score {
    /// Nothing is better.
    pub(crate) const BEST: Self = Self {
        drawbacks: Drawbacks::NONE,
        rank: 0,
        host: 0,
    };
    /// Everything is better.
    pub(crate) const WORST: Self = Self {
        drawbacks: Drawbacks::MOST,
        rank: u64::MAX,
        host: Slot::MAX,
    };
}
