//! One request as a flow network: role → domains of the site's hierarchy → spot → host.
//!
//! ```text
//!  role ──cap ∞, price load²── outer domain ──…── spot (cap 1) ──price of the host── host (cap 1) ── sink
//!     └──cap: replacements── failed ──────────────── spot whose failed member must be replaced
//! ```
//! An integral flow is a placement and the other way round: a spot lets one host of its domain serve its role, and a
//! host serves one role. So a flow of all that is demanded exists exactly when the request fits, and the cheapest flow is
//! the best placement in the order of [`Prices`].
//!
//! Where a spot's topology domain lies in several outer domains it counts in that of its best host; the spread is then
//! approximate, never the fit. So it is for a failed member's domain while the role grows in the same decision.

use std::collections::BTreeMap;

use super::account::{Account, count};
use super::flow::{Builder, Cost, Network, Price};
use super::pool::Spot;
use super::score::Score;
use crate::site::{Slot, Value};

/// What one role asks of the network.
#[derive(Debug, Clone)]
pub(crate) struct Demand {
    pub(crate) replace: u32,
    pub(crate) growth: u32,
    /// Present members per prefix of the hierarchy.
    pub(crate) loads: BTreeMap<Vec<Value>, u32>,
    pub(crate) spots: Vec<Spot>,
}

impl Demand {
    pub(crate) fn new(
        account: &Account<'_>,
        paths: impl Iterator<Item = Vec<Value>>,
        spots: Vec<Spot>,
    ) -> Self {
        let mut loads: BTreeMap<Vec<Value>, u32> = BTreeMap::new();
        for path in paths {
            for length in 1..=path.len() {
                *loads.entry(path[..length].to_vec()).or_default() += 1;
            }
        }
        Self {
            replace: account.replaceable,
            growth: account.growth,
            loads,
            spots,
        }
    }

    fn total(&self) -> u32 {
        self.replace.saturating_add(self.growth)
    }
}

/// Units of the parts of a price, so that each part outweighs all that come after it.
#[derive(Debug, Clone)]
struct Prices {
    /// Per level of the hierarchy, the outermost first; a level too deep for the number is left out.
    spread: Vec<Price>,
    scarce: Price,
    uninspected: Price,
    unpowered: Price,
}

/// Prices stay below this, so that sums along a path cannot overflow.
const ROOM: Price = 1 << 120;

impl Prices {
    fn new(demands: &[Demand], hosts: usize, levels: usize) -> Self {
        let total: Price = demands
            .iter()
            .map(|demand| Price::from(demand.total()))
            .sum::<Price>()
            + 1;
        let roles = Price::from(count(demands.len())) + 1;
        let unpowered = total * (Price::from(count(hosts)) + 1);
        let uninspected = unpowered * total;
        let scarce = uninspected * total;
        let present = |demand: &Demand| {
            demand
                .loads
                .iter()
                .filter(|(path, _)| path.len() == 1)
                .map(|(_, n)| Price::from(*n))
                .sum::<Price>()
        };
        let members: Price = total + demands.iter().map(present).sum::<Price>();
        let innermost = scarce.saturating_mul(total * roles);
        let per_level = members.saturating_mul(members).saturating_add(1);
        let units = std::iter::successors(Some(innermost), |unit| unit.checked_mul(per_level));
        let mut spread: Vec<Price> = units
            .take_while(|unit| unit.saturating_mul(per_level) < ROOM)
            .take(levels)
            .collect();
        spread.reverse();
        Self {
            spread,
            scarce,
            uninspected,
            unpowered,
        }
    }

    fn of(&self, score: &Score, rank: usize) -> Price {
        Price::from(score.scarce) * self.scarce
            + Price::from(score.uninspected) * self.uninspected
            + Price::from(score.unpowered) * self.unpowered
            + Price::from(count(rank))
    }
}

/// Where the parts of a role are in the network.
#[derive(Debug, Clone)]
pub(crate) struct RoleNodes {
    pub(crate) role: u32,
    /// The edge into the failed members' domains, where it limits.
    failed: Option<(u32, u32)>,
    /// Per spot.
    pub(crate) spots: Vec<SpotNodes>,
}

#[derive(Debug, Clone)]
pub(crate) struct SpotNodes {
    pub(crate) node: u32,
    pub(crate) from: u32,
    pub(crate) edge: u32,
    /// Edges to the hosts, as in [`Spot::offers`].
    pub(crate) offers: Vec<u32>,
}

/// A request's network and where its parts are.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) network: Network,
    pub(crate) roles: Vec<RoleNodes>,
    /// Hosts by rank with node and edge to the sink.
    pub(crate) hosts: Vec<(Slot, u32, u32)>,
}

impl Layout {
    pub(crate) fn new(demands: &[Demand], levels: usize) -> Self {
        let mut ranked: Vec<(u64, Slot)> = demands
            .iter()
            .flat_map(|demand| &demand.spots)
            .flat_map(|spot| spot.offers.iter().map(|offer| (offer.rank, offer.host)))
            .collect();
        ranked.sort_unstable();
        ranked.dedup();
        let prices = Prices::new(demands, ranked.len(), levels);
        let mut builder = Builder::default();
        let sink = builder.node();
        let hosts: Vec<(Slot, u32, u32)> = ranked
            .iter()
            .map(|(_, host)| {
                let node = builder.node();
                (*host, node, builder.edge(node, sink, 1, Cost::Fixed(0)))
            })
            .collect();
        let host = |offer: &Score| {
            ranked
                .binary_search(&(offer.rank, offer.host))
                .unwrap_or_default()
        };
        let roles = demands
            .iter()
            .map(|demand| {
                let mut tree = Tree::new(&mut builder, demand, &prices);
                let spots = demand.spots.iter().map(|spot| {
                    let from = tree.above(&mut builder, spot);
                    let node = builder.node();
                    let price = |offer: &Score| prices.of(offer, host(offer));
                    // The best host's price is on the edge to the spot, so that a search looks behind good spots only.
                    let base = spot.offers.first().map_or(0, price);
                    let edge = builder.edge(from, node, 1, Cost::Fixed(base + tree.detour(spot)));
                    let offer = |offer: &Score| {
                        builder.edge(node, hosts[host(offer)].1, 1, Cost::Fixed(price(offer) - base))
                    };
                    SpotNodes {
                        node,
                        from,
                        edge,
                        offers: spot.offers.iter().map(offer).collect(),
                    }
                });
                let spots = spots.collect();
                RoleNodes {
                    role: tree.role,
                    failed: tree.failed,
                    spots,
                }
            })
            .collect();
        Self {
            network: builder.build(sink),
            roles,
            hosts,
        }
    }

    /// Lets so many replacements use failed members' domains.
    pub(crate) fn limit_replacements(&mut self, role: usize, replaced: u32) {
        if let Some((_, edge)) = self.roles[role].failed {
            self.network.resize(edge, replaced);
        }
    }

    /// How much flows out of the side of a cut through the edge into the failed members' domains.
    pub(crate) fn failed_cut(&self, role: usize, inside: impl Fn(u32) -> bool) -> u32 {
        let cut = self.roles[role].failed.filter(|(node, _)| !inside(*node));
        cut.map_or(0, |(_, edge)| self.network.flow(edge))
    }
}

/// A role's hierarchy of outer domains while the network is built.
struct Tree<'a> {
    role: u32,
    failed: Option<(u32, u32)>,
    demand: &'a Demand,
    spread: Vec<Price>,
    nodes: BTreeMap<Vec<Value>, u32>,
}

impl<'a> Tree<'a> {
    fn new(builder: &mut Builder, demand: &'a Demand, prices: &Prices) -> Self {
        let role = builder.node();
        let limited = demand.growth > 0 && demand.replace > 0;
        let failed = limited.then(|| {
            let node = builder.node();
            (node, builder.edge(role, node, demand.replace, Cost::Fixed(0)))
        });
        Self {
            role,
            failed,
            demand,
            spread: prices.spread.clone(),
            nodes: BTreeMap::new(),
        }
    }

    fn load(&self, domain: &[Value]) -> u32 {
        self.demand.loads.get(domain).copied().unwrap_or(0)
    }

    /// The node above a spot.
    fn above(&mut self, builder: &mut Builder, spot: &Spot) -> u32 {
        if let Some((node, _)) = self.failed.filter(|_| spot.yields) {
            return node;
        }
        let mut above = self.role;
        for (level, unit) in self.spread.iter().enumerate() {
            let Some(domain) = spot.path.get(..=level) else {
                break;
            };
            above = if let Some(node) = self.nodes.get(domain) {
                *node
            } else {
                let node = builder.node();
                let cost = Cost::Convex {
                    unit: *unit,
                    load: self.load(domain),
                };
                builder.edge(above, node, self.demand.total(), cost);
                self.nodes.insert(domain.to_vec(), node);
                node
            };
        }
        above
    }

    /// What the hierarchy would cost for a spot that is not below it.
    fn detour(&self, spot: &Spot) -> Price {
        if self.failed.is_none() || !spot.yields {
            return 0;
        }
        let levels = self.spread.iter().enumerate();
        let price = |(level, unit): (usize, &Price)| {
            spot.path
                .get(..=level)
                .map_or(0, |domain| unit * (2 * Price::from(self.load(domain)) + 1))
        };
        levels.map(price).sum()
    }
}

/// Node numbers of the roles.
pub(crate) fn sources(layout: &Layout, roles: impl Iterator<Item = usize>) -> Vec<u32> {
    roles.map(|role| layout.roles[role].role).collect()
}

/// Which of a spot's hosts is used.
pub(crate) fn used_offer(network: &Network, spot: &SpotNodes) -> Option<usize> {
    spot.offers.iter().position(|edge| network.flow(*edge) > 0)
}
