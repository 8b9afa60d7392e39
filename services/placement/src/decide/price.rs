//! Preferences as prices: one number for each host and each step of the spread, whose sums have the order of the preferences.

use super::demand::Demand;
use super::flow::Price;
use super::preferences::Preferences;
use super::role_needs::count;
use super::score::{Drawbacks, Score};

/// Exclusive upper bound of prices, so that sums along a path cannot overflow.
const PRICE_BOUND: Price = 1 << 120;

/// Units of the parts of a price, so that each part outweighs all that come after it.
#[derive(Debug, Clone)]
pub(super) struct Prices {
    /// The spread has one unit per level of the hierarchy; a level too deep for the number is left out. The unit of
    /// hosts outside is 0 where there is none.
    units: Preferences<Price, Vec<Price>>,
}

/// What a request can sum up to.
struct MaxSums {
    /// Hosts that are taken in all, and one more.
    taken: Price,
    /// Roles, and one more.
    roles: Price,
    /// Hosts that are offered, and one more.
    offered: Price,
    /// Members of all roles, those taken included, and one more.
    members: Price,
}

impl MaxSums {
    fn new(demands: &[Demand], hosts: usize) -> Self {
        let demanded: Price = demands.iter().map(|demand| Price::from(demand.total())).sum();
        let taken = demanded.min(Price::from(count(hosts))) + 1;
        let present = |demand: &Demand| {
            let outermost = demand.tree.domains().iter().filter(|domain| domain.level == 0);
            outermost.map(|domain| Price::from(domain.load)).sum::<Price>()
        };
        Self {
            taken,
            roles: Price::from(count(demands.len())) + 1,
            offered: Price::from(count(hosts)) + 1,
            members: taken + demands.iter().map(present).sum::<Price>(),
        }
    }
}

impl Prices {
    pub(super) fn new(demands: &[Demand], hosts: usize, levels: usize) -> Self {
        let offers = demands.iter().flat_map(|demand| &demand.pool.spots);
        let any_outside = offers
            .flat_map(|spot| &spot.offers)
            .any(|offer| offer.drawbacks.unpacked().outside > 0);
        Self::with_units(&MaxSums::new(demands, hosts), levels, any_outside)
    }

    /// From the least important up: each unit is more than the sum of what comes after it can be.
    fn with_units(most: &MaxSums, levels: usize, any_outside: bool) -> Self {
        let MaxSums {
            taken,
            roles,
            offered,
            members,
        } = most;
        let impaired = taken * offered;
        let uninspected = impaired * taken;
        let wanted_by_others = uninspected * taken;
        let innermost = wanted_by_others.saturating_mul(taken * roles);
        let per_level = members.saturating_mul(*members).saturating_add(1);
        let units = std::iter::successors(Some(innermost), |unit| unit.checked_mul(per_level));
        let mut spread: Vec<Price> = units
            .take_while(|unit| unit.saturating_mul(per_level) < PRICE_BOUND)
            .take(levels + usize::from(any_outside))
            .collect();
        let outside = if any_outside { spread.pop() } else { None };
        spread.reverse();
        Self {
            units: Preferences {
                outside: outside.unwrap_or(0),
                spread,
                wanted_by_others,
                uninspected,
                impaired,
            },
        }
    }

    /// Per level of the hierarchy, the outermost first.
    pub(super) fn spread(&self) -> &[Price] {
        &self.units.spread
    }

    /// The price of a host, whose place is `rank` in the order of names.
    pub(super) fn host(&self, score: &Score, rank: usize) -> Price {
        self.weigh(score.drawbacks.unpacked()) + Price::from(count(rank))
    }

    fn weigh(&self, drawbacks: Drawbacks) -> Price {
        let Drawbacks {
            outside,
            spread: (),
            wanted_by_others,
            uninspected,
            impaired,
        } = drawbacks;
        let units = &self.units;
        Price::from(outside) * units.outside
            + Price::from(wanted_by_others) * units.wanted_by_others
            + Price::from(uninspected) * units.uninspected
            + Price::from(impaired) * units.impaired
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Hosts of a small request, each with what is better avoided in it.
    fn drawbacks() -> impl Strategy<Value = Vec<Drawbacks>> {
        let one = (0..2_u8, 0..3_u8, 0..2_u8, 0..2_u8).prop_map(
            |(outside, wanted_by_others, uninspected, impaired)| Drawbacks {
                outside,
                spread: (),
                wanted_by_others,
                uninspected,
                impaired,
            },
        );
        prop::collection::vec(one, 4)
    }

    proptest! {
        #[test]
        fn prices_have_the_order_of_preferences(one in drawbacks(), other in drawbacks()) {
            let most = MaxSums { taken: 5, roles: 4, offered: 100, members: 9 };
            let prices = Prices::with_units(&most, 2, true);
            let units = &prices.units;
            prop_assert!(units.outside > units.spread[0] && units.spread[0] > units.spread[1]);
            prop_assert!(units.spread[1] > units.wanted_by_others && units.impaired > 0);
            for (a, b) in one.iter().zip(&other) {
                prop_assert_eq!(prices.weigh(*a).cmp(&prices.weigh(*b)), a.cmp(b));
                prop_assert!(Drawbacks::NONE <= *a && a.packed() < Score::WORST.drawbacks);
            }
            let sum = |all: &[Drawbacks]| {
                let mut sum = Preferences::<u32, ()>::default();
                for drawbacks in all {
                    sum.add_host(*drawbacks);
                }
                sum
            };
            let price = |all: &[Drawbacks]| all.iter().map(|one| prices.weigh(*one)).sum::<Price>();
            prop_assert_eq!(price(&one).cmp(&price(&other)), sum(&one).cmp(&sum(&other)));
        }
    }
}
