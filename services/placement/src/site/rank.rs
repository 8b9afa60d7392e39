//! The order of hosts by name as a number per host, kept while hosts come and go.
//!
//! The decision compares hosts by name in its innermost loop; comparing two `u64` there is many times quicker. The
//! numbers are labels with gaps: a new host gets one between its neighbours', and when there is no room, the smallest
//! sparse enough range of labels around it is spread out anew (Bender et al., "Two simplified algorithms for
//! maintaining order in a list"): O(log n) labels move per insertion, amortised, whatever the order of arrival. Labels
//! depend on that order, so only their comparison may be used.

use std::collections::BTreeMap;
use std::ops::Bound;

use vocabulary::HostName;

use super::set::{Slot, at};

#[derive(Debug, Clone, Default)]
pub(crate) struct Ranks {
    by_name: BTreeMap<HostName, Slot>,
    by_label: BTreeMap<u64, Slot>,
    label: Vec<u64>,
}

/// Distance to the last label for a host that comes after all others: as many labels fit between them.
const LABEL_GAP: u64 = 1 << 32;

impl Ranks {
    pub(crate) fn slot(&self, name: &HostName) -> Option<Slot> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// One more than the greatest slot there has been.
    pub(crate) fn width(&self) -> usize {
        self.label.len()
    }

    /// Slots in the order of names.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.by_name.values().copied()
    }

    /// Smaller for a smaller name. Only of hosts that are in.
    pub(crate) fn label(&self, host: Slot) -> u64 {
        self.label.get(at(host)).copied().unwrap_or(u64::MAX)
    }

    pub(crate) fn insert(&mut self, name: HostName, host: Slot) {
        let below = self
            .by_name
            .range(..&name)
            .next_back()
            .map(|(_, slot)| self.label(*slot));
        let above = self
            .by_name
            .range((Bound::Excluded(&name), Bound::Unbounded))
            .next()
            .map(|(_, slot)| self.label(*slot));
        let label = loop_until_room(self, below, above, &name);
        self.by_name.insert(name, host);
        self.set_label(host, label);
    }

    pub(crate) fn remove(&mut self, name: &HostName) -> Option<Slot> {
        let host = self.by_name.remove(name)?;
        self.by_label.remove(&self.label(host));
        Some(host)
    }

    fn set_label(&mut self, host: Slot, label: u64) {
        if self.label.len() <= at(host) {
            self.label.resize(at(host) + 1, 0);
        }
        self.label[at(host)] = label;
        self.by_label.insert(label, host);
    }

    /// Spreads out the labels around `label`.
    fn make_room(&mut self, label: u64) {
        for bits in 2..=63_u32 {
            let low = label >> bits << bits;
            let high = low + ((1_u64 << bits) - 1);
            let slots: Vec<Slot> = self.by_label.range(low..=high).map(|(_, slot)| *slot).collect();
            let count = u64::try_from(slots.len()).unwrap_or(u64::MAX);
            // The allowed density falls with the size of the range, by 2/3 each time: at most 1.33^bits labels in it.
            let room = (1..=bits).fold(1_u64, |room, _| room.saturating_add(room / 3 + 1));
            let gap = (1_u64 << bits) / (count + 1);
            if count < room && gap >= 2 {
                for old in slots.iter().map(|slot| self.label(*slot)).collect::<Vec<_>>() {
                    self.by_label.remove(&old);
                }
                let mut next = low;
                for slot in slots {
                    next += gap;
                    self.set_label(slot, next - 1);
                }
                return;
            }
        }
    }
}

/// A label between the neighbours'.
fn loop_until_room(ranks: &mut Ranks, below: Option<u64>, above: Option<u64>, name: &HostName) -> u64 {
    let (mut below, mut above) = (below, above);
    loop {
        let label = match (below, above) {
            (None, None) => Some(u64::MAX / 2),
            (Some(low), None) => {
                Some(low + ((u64::MAX - low) / 2).min(LABEL_GAP)).filter(|label| *label > low)
            }
            (None, Some(high)) => Some(high - (high / 2).min(LABEL_GAP)).filter(|label| *label < high),
            (Some(low), Some(high)) => Some(low + (high - low) / 2).filter(|label| *label > low),
        };
        if let Some(label) = label {
            return label;
        }
        ranks.make_room(below.or(above).unwrap_or_default());
        below = ranks
            .by_name
            .range(..name)
            .next_back()
            .map(|(_, slot)| ranks.label(*slot));
        above = ranks
            .by_name
            .range(name..)
            .next()
            .map(|(_, slot)| ranks.label(*slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_order(ranks: &Ranks) -> bool {
        ranks
            .slots()
            .map(|slot| ranks.label(slot))
            .is_sorted_by(|a, b| a < b)
            && ranks.by_label.len() == ranks.len()
    }

    #[test]
    fn labels_follow_names_whatever_the_order_of_arrival() {
        let orders: [fn(u32) -> u32; 5] = [
            |i| i,
            |i| 5000 - i,
            |i| i.wrapping_mul(2_654_435_761) % 5003,
            |i| if i % 2 == 0 { i } else { 10_000 - i },
            |i| {
                if i == 0 {
                    9999
                } else if i == 1 {
                    0
                } else {
                    9000 - i
                }
            },
        ];
        for order in orders {
            let mut ranks = Ranks::default();
            for i in 0..5000 {
                let name = HostName::new("n", format!("h{:06}", order(i))).expect("valid");
                if ranks.slot(&name).is_none() {
                    ranks.insert(name, i);
                }
            }
            assert!(in_order(&ranks));
            let odd: Vec<HostName> = ranks
                .by_name
                .iter()
                .filter(|(_, slot)| *slot % 2 == 1)
                .map(|(name, _)| name.clone())
                .collect();
            for name in odd {
                assert!(ranks.remove(&name).is_some());
            }
            assert!(in_order(&ranks));
        }
    }
}
