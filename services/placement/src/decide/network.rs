//! One request as a flow network: role → domains of the site's hierarchy → spot → host.
//!
//! ```text
//!  role ──cap ∞, price load²── outer domain ──…── spot (cap 1) ──price of the host── host (cap 1) ── sink
//!     ├──cap: replacements── lost ─────────────── spot of a lost replacement's domain
//!     │                        └──cap: fresh── spot of another lost member's domain
//!     └──cap: moves── moved ───────────────────── spot of the domain of a member that is to be moved
//! ```
//! An integral flow is a placement and the other way round: a spot lets one host of its domain serve its role, and a
//! host serves one role. So a flow of all that is demanded exists exactly when the request fits, and the cheapest flow is
//! the best placement in the order of [`Prices`].
//!
//! Where a spot's topology domain lies in several outer domains it counts in that of its best host; the spread is then
//! approximate, never the fit. So it is for the domain of a member that is replaced while something else is demanded of its
//! role: such domains are reached through gates, beside the hierarchy.

use super::demand::Demand;
use super::flow::{Builder, Cost, Network, Price};
use super::price::Prices;
use super::role_needs::Gate;
use super::score::Score;
use super::spots::Spot;
use super::tree::{Domain, Node, ROOT};
use crate::site::{Slot, at};

/// Where the parts of a role are in the network.
#[derive(Debug, Clone)]
pub(crate) struct RoleNodes {
    pub(crate) role: u32,
    gates: Gates,
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
    ranks: Vec<(u64, Slot)>,
}

impl Layout {
    /// Whether a host is used by any role.
    pub(crate) fn is_used(&self, offer: &Score) -> bool {
        let place = self.ranks.binary_search(&(offer.rank, offer.host));
        place.is_ok_and(|place| self.network.is_full(self.hosts[place].2))
    }

    pub(crate) fn new(demands: &[Demand], levels: usize) -> Self {
        let mut ranked: Vec<(u64, Slot)> = demands
            .iter()
            .flat_map(|demand| &demand.pool.spots)
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
                (*host, node, builder.exit(node, sink))
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
                let mut tree = Branches::new(&mut builder, demand, &prices);
                let spots = demand.pool.spots.iter().map(|spot| {
                    let from = tree.above(&mut builder, spot);
                    let node = builder.node();
                    let price = |offer: &Score| prices.host(offer, host(offer));
                    // The best host's price is on the edge to the spot, so that a search looks behind good spots only.
                    let base = spot.offers.first().map_or(0, price);
                    let edge = builder.edge(from, node, 1, Cost::fixed(base + tree.detour(spot)));
                    let offer = |offer: &Score| {
                        builder.edge(node, hosts[host(offer)].1, 1, Cost::fixed(price(offer) - base))
                    };
                    let offers: Vec<u32> = spot.offers.iter().map(offer).collect();
                    builder.shortcut(node);
                    SpotNodes {
                        node,
                        from,
                        edge,
                        offers,
                    }
                });
                let spots = spots.collect();
                RoleNodes {
                    role: tree.role,
                    gates: tree.gates,
                    spots,
                }
            })
            .collect();
        Self {
            network: builder.build(sink),
            roles,
            hosts,
            ranks: ranked,
        }
    }

    /// Lets so many of the lost yield their domains.
    pub(crate) fn limit_replacements(&mut self, role: usize, replaced: u32) {
        if let Some(gate) = self.roles[role].gates.lost {
            self.network.resize(gate.edge, replaced);
        }
    }

    /// Lets one of those that leave yield its domain; before anything is sent at a price.
    pub(crate) fn open_move(&mut self, role: usize) {
        if let Some(gate) = self.roles[role].gates.moving {
            self.network.resize(gate.edge, 1);
        }
    }

    /// How much flows out of the side of a cut through the gates of a role.
    pub(crate) fn gates_cut(&self, role: usize, inside: impl Fn(u32) -> bool) -> u32 {
        let Gates { lost, fresh, moving } = self.roles[role].gates;
        let cut = |gate: &GateNode| inside(gate.from) && !inside(gate.node);
        let gates = [lost, fresh, moving].into_iter().flatten().filter(cut);
        gates.map(|gate| self.network.flow(gate.edge)).sum()
    }
}

/// A gate's node, the node above it, and the edge between the two.
#[derive(Debug, Clone, Copy)]
struct GateNode {
    from: u32,
    node: u32,
    edge: u32,
}

/// The gates of a role, where something limits how many members are replaced: only they lead to hosts in the domains of those members.
#[derive(Debug, Clone, Copy, Default)]
struct Gates {
    lost: Option<GateNode>,
    /// Below `lost` where that exists: for lost members other than lost replacements.
    fresh: Option<GateNode>,
    moving: Option<GateNode>,
}

impl Gates {
    fn new(builder: &mut Builder, role: u32, demand: &Demand) -> Self {
        let Demand {
            replace,
            turns: _,
            fresh,
            moves,
            growth,
            tree: _,
            pool: _,
        } = demand;
        let growth = *growth > 0;
        let mut gate = |from: u32, most: u32| {
            let node = builder.node();
            let edge = builder.edge(from, node, most, Cost::fixed(0));
            GateNode { from, node, edge }
        };
        let lost = (*replace > 0 && (growth || *moves)).then(|| gate(role, *replace));
        let is_limited = fresh < replace && demand.has(Gate::Failed);
        let above = lost.map_or(role, |lost| lost.node);
        let fresh = is_limited.then(|| gate(above, *fresh));
        // Closed, see [`Layout::open_move`].
        let moving = (*moves && (growth || *replace > 0)).then(|| gate(role, 0));
        Self { lost, fresh, moving }
    }

    /// The gate that leads to spots of this kind; `None` if no gate limits them.
    fn gate_node(&self, gate: Gate) -> Option<GateNode> {
        match gate {
            Gate::Open => None,
            Gate::FailedReplacement => self.lost,
            Gate::Failed => self.fresh.or(self.lost),
            Gate::Move => self.moving,
        }
    }
}

/// A role's outer domains while the network is built; in the order of spots, so that equal input numbers them equally.
struct Branches<'a> {
    role: u32,
    gates: Gates,
    demand: &'a Demand,
    spread: &'a [Price],
    /// Per domain of the tree.
    nodes: Vec<Option<u32>>,
}

impl<'a> Branches<'a> {
    fn new(builder: &mut Builder, demand: &'a Demand, prices: &'a Prices) -> Self {
        let role = builder.node();
        Self {
            role,
            gates: Gates::new(builder, role, demand),
            demand,
            spread: prices.spread(),
            nodes: vec![None; demand.tree.domains().len()],
        }
    }

    /// The node above a spot.
    fn above(&mut self, builder: &mut Builder, spot: &Spot) -> u32 {
        match self.gates.gate_node(spot.gate) {
            Some(gate) => gate.node,
            None => self.branch(builder, spot.leaf),
        }
    }

    fn branch(&mut self, builder: &mut Builder, domain: Node) -> u32 {
        if domain == ROOT {
            return self.role;
        }
        if let Some(node) = self.nodes[at(domain)] {
            return node;
        }
        let Domain { parent, level, load } = self.demand.tree.domains()[at(domain)];
        let above = self.branch(builder, parent);
        let node = match self.spread.get(level) {
            Some(unit) => {
                let node = builder.node();
                builder.edge(above, node, self.demand.total(), Cost::convex(*unit, load));
                node
            }
            None => above,
        };
        self.nodes[at(domain)] = Some(node);
        node
    }

    /// What the hierarchy would cost for a spot that is not below it.
    fn detour(&self, spot: &Spot) -> Price {
        if self.gates.gate_node(spot.gate).is_none() {
            return 0;
        }
        let domains = self.demand.tree.upwards(spot.leaf);
        let price = |(_, domain): (Node, Domain)| {
            self.spread
                .get(domain.level)
                .map_or(0, |unit| unit * (2 * Price::from(domain.load) + 1))
        };
        domains.map(price).sum()
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
