//! What makes one host a better choice than another.

use super::preferences::Preferences;
use crate::site::Slot;

/// What is better avoided in one host.
pub(crate) type Drawbacks = Preferences<u8, ()>;

impl Drawbacks {
    /// Of an ideal host.
    pub(crate) const NONE: Self = Self {
        outside: 0,
        spread: (),
        wanted_by_others: 0,
        uninspected: 0,
        impaired: 0,
    };

    /// So many other roles match the host; more than 255 are no worse.
    #[inline]
    pub(crate) fn roles(others: impl Iterator<Item = bool>) -> u8 {
        let roles: usize = others.map(usize::from).sum();
        u8::try_from(roles).unwrap_or(u8::MAX)
    }

    /// The same as one number.
    #[inline]
    pub(crate) const fn packed(self) -> Packed {
        let Self {
            outside,
            spread: (),
            wanted_by_others,
            uninspected,
            impaired,
        } = self;
        Packed(u32::from_be_bytes([
            outside,
            wanted_by_others,
            uninspected,
            impaired,
        ]))
    }
}

/// [`Drawbacks`] as one number in the same order: it is compared in the innermost loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Packed(u32);

impl Packed {
    pub(crate) const fn unpacked(self) -> Drawbacks {
        let [outside, wanted_by_others, uninspected, impaired] = self.0.to_be_bytes();
        Drawbacks {
            outside,
            spread: (),
            wanted_by_others,
            uninspected,
            impaired,
        }
    }
}

/// How good a host is for a role where the spread is the same; the smallest is the best. The fields are in order of
/// importance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Score {
    pub(crate) drawbacks: Packed,
    /// The order of names; decides between equal drawbacks, so that equal input gives equal output.
    pub(crate) rank: u64,
    /// Which host; no two have the same rank.
    pub(crate) host: Slot,
}

impl Score {
    /// Nothing is better.
    pub(crate) const BEST: Self = Self {
        drawbacks: Drawbacks::NONE.packed(),
        rank: 0,
        host: 0,
    };
    /// Everything is better.
    pub(crate) const WORST: Self = Self {
        drawbacks: Packed(u32::MAX),
        rank: u64::MAX,
        host: Slot::MAX,
    };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drawbacks() -> impl Strategy<Value = Drawbacks> {
        any::<[u8; 4]>().prop_map(|[outside, wanted_by_others, uninspected, impaired]| Drawbacks {
            outside,
            spread: (),
            wanted_by_others,
            uninspected,
            impaired,
        })
    }

    proptest! {
        #[test]
        fn packed_drawbacks_have_the_order_of_preferences(one in drawbacks(), other in drawbacks()) {
            prop_assert_eq!(one.packed().cmp(&other.packed()), one.cmp(&other));
            prop_assert_eq!(one.packed().unpacked(), one);
        }
    }
}
