//! Sets of hosts by slot number: numbers in the order of names while there are few, bits when there are many.

use fixedbitset::FixedBitSet;

use super::rank::Ranks;

/// A number of a host in a [`crate::Site`]; given again after the host is gone.
pub(crate) type Slot = u32;

/// A slot as an index.
pub(crate) const fn at(slot: Slot) -> usize {
    // Targets have at least 32 bits, see the assertion.
    const { assert!(usize::BITS >= u32::BITS) };
    slot as usize
}

/// An index below 2³² as a slot. [`crate::Site`] never has more hosts.
pub(crate) fn slot(index: usize) -> Slot {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// Which hosts. Few hosts in a big site take 4 bytes each; many take one bit for every host of the site.
#[derive(Debug, Clone)]
pub(crate) enum Set {
    /// By name.
    Few(Vec<Slot>),
    Many {
        bits: FixedBitSet,
        len: usize,
    },
}

impl Default for Set {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

/// Bytes that a set of one host allocates besides its owner.
pub(super) const SMALL_SET_BYTES: usize = 16;

/// Above this many hosts bits are used; below a quarter of it numbers again, so that a set at the border is not turned
/// back and forth. A 32nd of the site is where both take the same memory.
fn many(site: usize) -> usize {
    (site / 32).max(32)
}

impl Set {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few(slots) => slots.len(),
            Self::Many { len, .. } => *len,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The hosts by name, while they are few.
    pub(crate) fn by_name(&self) -> Option<&[Slot]> {
        match self {
            Self::Few(slots) => Some(slots),
            Self::Many { .. } => None,
        }
    }

    /// Adds a host. `ranks` must already have it.
    pub(crate) fn insert(&mut self, host: Slot, ranks: &Ranks) {
        match self {
            Self::Few(slots) => {
                if let Err(place) = place(slots, host, ranks) {
                    slots.insert(place, host);
                }
                if slots.len() > many(ranks.width()) {
                    let len = slots.len();
                    let mut bits = FixedBitSet::with_capacity(ranks.width());
                    for host in slots.iter() {
                        put(&mut bits, *host);
                    }
                    *self = Self::Many { bits, len };
                }
            }
            Self::Many { bits, len } => {
                if !bits.contains(at(host)) {
                    put(bits, host);
                    *len += 1;
                }
            }
        }
    }

    /// Removes a host. `ranks` must still have it.
    pub(crate) fn remove(&mut self, host: Slot, ranks: &Ranks) {
        match self {
            Self::Few(slots) => {
                if let Ok(place) = place(slots, host, ranks) {
                    slots.remove(place);
                }
            }
            Self::Many { bits, len } => {
                if bits.contains(at(host)) {
                    bits.set(at(host), false);
                    *len -= 1;
                }
                if *len < many(ranks.width()) / 4 {
                    let mut slots: Vec<Slot> = bits.ones().map(slot).collect();
                    slots.sort_unstable_by_key(|host| ranks.label(*host));
                    *self = Self::Few(slots);
                }
            }
        }
    }

    /// The hosts that are in both.
    pub(crate) fn among<'a>(&'a self, mask: &'a FixedBitSet) -> impl Iterator<Item = Slot> + 'a {
        let (few, many) = match self {
            Self::Few(slots) => (Some(slots), None),
            Self::Many { bits, len: _ } => (None, Some(bits)),
        };
        let few = few.into_iter().flatten().copied();
        let many = many
            .into_iter()
            .flat_map(|bits| bits.intersection(mask).map(slot));
        few.filter(|host| mask.contains(at(*host))).chain(many)
    }

    /// Whether any host is in both.
    pub(crate) fn meets(&self, mask: &FixedBitSet) -> bool {
        match self {
            Self::Few(slots) => slots.iter().any(|host| mask.contains(at(*host))),
            Self::Many { bits, .. } => !bits.is_disjoint(mask),
        }
    }

    /// `mask ∩= self`.
    pub(crate) fn keep_in(&self, mask: &mut FixedBitSet) {
        match self {
            Self::Few(slots) => {
                let kept: Vec<Slot> = slots
                    .iter()
                    .copied()
                    .filter(|host| mask.contains(at(*host)))
                    .collect();
                mask.clear();
                for host in kept {
                    put(mask, host);
                }
            }
            Self::Many { bits, .. } => mask.intersect_with(bits),
        }
    }

    /// `mask ∖= self`.
    pub(crate) fn drop_from(&self, mask: &mut FixedBitSet) {
        match self {
            Self::Few(slots) => slots.iter().for_each(|host| assign(mask, *host, false)),
            Self::Many { bits, .. } => mask.difference_with(bits),
        }
    }

    /// `mask ∪= self`.
    pub(crate) fn add_to(&self, mask: &mut FixedBitSet) {
        match self {
            Self::Few(slots) => slots.iter().for_each(|host| put(mask, *host)),
            Self::Many { bits, .. } => mask.union_with(bits),
        }
    }
}

/// Where a host is among others that are in the order of names, or would be.
fn place(slots: &[Slot], host: Slot, ranks: &Ranks) -> Result<usize, usize> {
    slots.binary_search_by_key(&ranks.label(host), |other| ranks.label(*other))
}

/// Sets one bit, growing the set when needed.
pub(crate) fn put(bits: &mut FixedBitSet, host: Slot) {
    bits.grow_and_insert(at(host));
}

/// Sets or clears one bit.
pub(crate) fn assign(bits: &mut FixedBitSet, host: Slot, value: bool) {
    if value {
        put(bits, host);
    } else if at(host) < bits.len() {
        bits.set(at(host), false);
    }
}
