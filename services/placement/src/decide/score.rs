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
        class: Class::IDEAL,
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

/// What is better avoided in a host, in order of importance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Drawbacks {
    /// It is not in the namespaces of the cluster's members. More important than the spread.
    pub(crate) outside: bool,
    /// How many other roles of the request it matches: leave it to them.
    pub(crate) scarce: u32,
    /// Its hardware is not known.
    pub(crate) uninspected: bool,
    /// It is off.
    pub(crate) unpowered: bool,
}

/// [`Drawbacks`] as one number of the same order, which is compared in the innermost loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class(u32);

impl Class {
    /// Of a host without drawbacks.
    pub(crate) const IDEAL: Self = Self(0);
    /// No host's.
    pub(crate) const WORST: Self = Self(u32::MAX);

    const OUTSIDE: u32 = 30;

    #[inline]
    pub(crate) fn of(drawbacks: Drawbacks) -> Self {
        let Drawbacks {
            outside,
            scarce,
            uninspected,
            unpowered,
        } = drawbacks;
        Self(
            u32::from(outside) << Self::OUTSIDE
                | scarce << 2
                | u32::from(uninspected) << 1
                | u32::from(unpowered),
        )
    }

    #[inline]
    pub(crate) fn drawbacks(self) -> Drawbacks {
        Drawbacks {
            outside: self.0 >> Self::OUTSIDE & 1 == 1,
            scarce: (self.0 & !(1 << Self::OUTSIDE)) >> 2,
            uninspected: self.0 >> 1 & 1 == 1,
            unpowered: self.0 & 1 == 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drawbacks() -> impl Strategy<Value = Drawbacks> {
        (any::<bool>(), 0..64_u32, any::<bool>(), any::<bool>()).prop_map(
            |(outside, scarce, uninspected, unpowered)| Drawbacks {
                outside,
                scarce,
                uninspected,
                unpowered,
            },
        )
    }

    proptest! {
        #[test]
        fn classes_have_the_order_of_drawbacks(one in drawbacks(), other in drawbacks()) {
            prop_assert_eq!(Class::of(one).drawbacks(), one);
            prop_assert_eq!(Class::of(one).cmp(&Class::of(other)), one.cmp(&other));
            prop_assert!(Class::of(one) < Class::WORST && Class::IDEAL <= Class::of(one));
        }
    }
}
