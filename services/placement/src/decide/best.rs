//! The best host of each domain: by asking each domain, or while a site is read once.

use std::collections::BTreeSet;

use fixedbitset::FixedBitSet;

use super::score::{Packed, Score};
use crate::site::{Column, Slot, Value, at};

/// Asks each domain that is not closed for the best of its hosts. `ideal` is what none of them has less of:
/// the first by name that has no more is the best, whatever comes after it. None when a domain is too large to be asked.
pub(crate) fn best_by_domain(
    column: &Column,
    hosts: &FixedBitSet,
    closed: &BTreeSet<Value>,
    ideal: Packed,
    score: impl Fn(Slot) -> Score,
) -> Option<Vec<(Value, Score)>> {
    let best = |domain: &[Slot]| {
        let mut best: Option<Score> = None;
        for host in domain.iter().filter(|host| hosts.contains(at(**host))) {
            let offer = score(*host);
            if best.is_none_or(|best| offer < best) {
                best = Some(offer);
            }
            if offer.drawbacks == ideal {
                break;
            }
        }
        best
    };
    let open = column.each().filter(|(domain, _)| !closed.contains(domain));
    let open: Option<Vec<(Value, &[Slot])>> =
        open.map(|(domain, all)| Some((domain, all.by_name()?))).collect();
    let asked = open?
        .into_iter()
        .filter_map(|(domain, all)| Some((domain, best(all)?)));
    Some(asked.collect())
}

/// The best host of each domain so far, in one small cell per domain: for most hosts, reading that cell shows that they are no better.
pub(crate) struct Best {
    cells: Vec<Score>,
    /// The domains that have a host, as they were met.
    met: Vec<Value>,
}

impl Best {
    /// For values below `width`; takes no host of a closed domain.
    pub(crate) fn new(width: usize, closed: &BTreeSet<Value>) -> Self {
        let mut cells = vec![Score::WORST; width];
        for value in closed {
            cells[at(*value)] = Score::BEST;
        }
        Self {
            cells,
            met: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, value: Value, offer: Score) {
        let Some(cell) = self.cells.get_mut(at(value)) else {
            return;
        };
        if (offer.drawbacks, offer.rank) < (cell.drawbacks, cell.rank) {
            if *cell == Score::WORST {
                self.met.push(value);
            }
            *cell = offer;
        }
    }

    /// Each domain that has a host and is not closed, with the best of them.
    pub(crate) fn domains(self) -> Vec<(Value, Score)> {
        let Self { cells, met } = self;
        met.into_iter().map(|value| (value, cells[at(value)])).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::score::Drawbacks;
    use super::*;
    use crate::site::{Site, slot};
    use crate::{Host, HostId, HostName, LabelKey, LabelValue, Policy, Uid};

    fn host(number: u16, rack: u8) -> Host {
        let name = HostName::new("metal", format!("h{number:05}")).expect("a name");
        let mut host = Host::available(HostId {
            name,
            uid: Uid::new("u").expect("a uid"),
        });
        // Most hosts are in the first rack, so it is a set of bits now and then.
        let rack = LabelValue::new(format!("r{}", rack.saturating_sub(20))).expect("a value");
        host.labels.insert(LabelKey::new("rack").expect("a key"), rack);
        host
    }

    fn matches(roles: u8) -> Packed {
        let wanted_by_others = roles;
        Drawbacks {
            wanted_by_others,
            ..Drawbacks::NONE
        }
        .packed()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn asking_each_domain_finds_what_reading_each_host_does(
            // Number of its name, rack, drawbacks and whether it is free.
            drawn in prop::collection::vec((0_u16..500, 0_u8..40, 0_u8..3, any::<bool>()), 1..120),
            gone in prop::collection::vec(0_usize..120, 0..40),
            closed in prop::collection::btree_set(0_u32..20, 0..3),
            floor in 0_u8..3,
        ) {
            let mut site = Site::new(Policy::default());
            for (number, rack, _, _) in &drawn {
                site.upsert(host(*number, *rack));
            }
            for (number, ..) in gone.iter().filter_map(|index| drawn.get(*index)) {
                site.remove(&host(*number, 0).id.name);
            }
            let mut hosts = FixedBitSet::with_capacity(drawn.len());
            let mut matched = vec![0; drawn.len()];
            for (number, _, roles, free) in &drawn {
                if let Some(slot) = site.slot_of(&host(*number, 0).id) {
                    hosts.set(at(slot), *free);
                    matched[at(slot)] = (*roles).max(floor);
                }
            }
            let score = |host| Score { drawbacks: matches(matched[at(host)]), rank: site.rank(host), host };
            let Some((key, column)) = site.column(&LabelKey::new("rack").expect("a key")) else {
                return Err(TestCaseError::reject("no host"));
            };
            let closed: BTreeSet<Value> = closed.into_iter().filter(|value| at(*value) < column.width()).collect();

            let large = column.each().any(|(domain, all)| !closed.contains(&domain) && all.by_name().is_none());
            let asked = best_by_domain(column, &hosts, &closed, matches(floor), score);

            let mut best = Best::new(column.width(), &closed);
            let values = site.values(key);
            for host in hosts.ones().map(slot) {
                best.add(values.get(host), score(host));
            }
            let mut read = best.domains();
            prop_assert_eq!(asked.is_none(), large);
            if let Some(mut asked) = asked {
                asked.sort_unstable();
                read.sort_unstable();
                prop_assert_eq!(asked, read);
            }
        }
    }
}
