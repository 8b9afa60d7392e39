//! Min-cost flow by successive shortest paths, with convex prices.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A price; compared as one number, though it is several in order of importance (see [`super::price`]).
pub(crate) type Price = i128;

/// What each unit on an edge costs: `first`, and `step` more for each unit that is there before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    first: Price,
    step: Price,
}

impl Cost {
    /// The same for each unit.
    pub(crate) fn fixed(price: Price) -> Self {
        Self {
            first: price,
            step: 0,
        }
    }

    /// `unit × load²` for the load in all, of which `load` is there already.
    pub(crate) fn convex(unit: Price, load: u32) -> Self {
        Self {
            first: unit * (2 * Price::from(load) + 1),
            step: 2 * unit,
        }
    }

    /// The price of one unit more when `flow` units are there.
    fn next(self, flow: u32) -> Price {
        self.first + self.step * Price::from(flow)
    }
}

#[derive(Debug, Clone, Copy)]
struct Edge {
    from: u32,
    to: u32,
    room: u32,
    flow: u32,
    cost: Cost,
}

/// A network whose flow is always the cheapest of its amount for what was sent from each source so far.
///
/// Each [`Network::send`] augments along a cheapest path, found by Dijkstra's algorithm on reduced prices; it ends as
/// soon as the sink is settled, and only the nodes settled before change their potentials. Prices must not be negative.
/// Ties are broken by node number, so equal input gives equal output.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    edges: Vec<Edge>,
    sink: u32,
    /// `arcs[first[v]..first[v + 1]]` are the edges at node `v`, with their direction.
    first: Vec<u32>,
    arcs: Vec<(u32, bool)>,
    potential: Vec<Price>,
    distance: Vec<Price>,
    came_by: Vec<(u32, bool)>,
    heap: BinaryHeap<Reverse<(Price, u32)>>,
    level: Vec<u32>,
    touched: Vec<u32>,
    /// Per node whether its edges lead to exits, see [`Builder::shortcut`].
    shortcuts: Vec<bool>,
    exits: Vec<Option<u32>>,
}

const FAR: Price = Price::MAX;

fn at(index: u32) -> usize {
    crate::site::at(index)
}

pub(crate) fn id(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// Collects the nodes and edges of a [`Network`].
#[derive(Debug, Default)]
pub(crate) struct Builder {
    nodes: u32,
    edges: Vec<Edge>,
    shortcuts: Vec<bool>,
    exits: Vec<Option<u32>>,
}

impl Builder {
    pub(crate) fn node(&mut self) -> u32 {
        self.nodes += 1;
        self.nodes - 1
    }

    pub(crate) fn edge(&mut self, from: u32, to: u32, room: u32, cost: Cost) -> u32 {
        self.edges.push(Edge {
            from,
            to,
            room,
            flow: 0,
            cost,
        });
        id(self.edges.len() - 1)
    }

    /// Says that a node's edges, in the order of their prices, lead to nodes with a free edge to the sink (see
    /// [`Builder::exit`]). Knowing early how far the sink is at most saves the search from looking at most nodes.
    pub(crate) fn shortcut(&mut self, node: u32) {
        if self.shortcuts.len() <= at(node) {
            self.shortcuts.resize(at(node) + 1, false);
        }
        self.shortcuts[at(node)] = true;
    }

    /// An edge to the sink for nothing.
    pub(crate) fn exit(&mut self, from: u32, sink: u32) -> u32 {
        let edge = self.edge(from, sink, 1, Cost::fixed(0));
        if self.exits.len() <= at(from) {
            self.exits.resize(at(from) + 1, None);
        }
        self.exits[at(from)] = Some(edge);
        edge
    }

    pub(crate) fn build(self, sink: u32) -> Network {
        let Self {
            nodes,
            edges,
            shortcuts,
            exits,
        } = self;
        let nodes = at(nodes);
        let mut first = vec![0_u32; nodes + 1];
        for edge in &edges {
            first[at(edge.from) + 1] += 1;
            first[at(edge.to) + 1] += 1;
        }
        for node in 0..nodes {
            first[node + 1] += first[node];
        }
        let mut next = first.clone();
        let mut arcs = vec![(0, true); 2 * edges.len()];
        for (index, edge) in edges.iter().enumerate() {
            for (node, forward) in [(edge.from, true), (edge.to, false)] {
                arcs[at(next[at(node)])] = (id(index), forward);
                next[at(node)] += 1;
            }
        }
        Network {
            edges,
            sink,
            first,
            arcs,
            potential: vec![0; nodes],
            distance: vec![FAR; nodes],
            came_by: vec![(0, true); nodes],
            heap: BinaryHeap::new(),
            level: Vec::new(),
            touched: Vec::new(),
            shortcuts,
            exits,
        }
    }
}

impl Network {
    pub(crate) fn flow(&self, edge: u32) -> u32 {
        self.edges[at(edge)].flow
    }

    pub(crate) fn is_full(&self, edge: u32) -> bool {
        self.edges[at(edge)].flow >= self.edges[at(edge)].room
    }

    /// Changes the room of an edge, not below what flows.
    pub(crate) fn resize(&mut self, edge: u32, room: u32) {
        let edge = &mut self.edges[at(edge)];
        edge.room = room.max(edge.flow);
    }

    fn arcs_at(&self, node: u32) -> impl Iterator<Item = (u32, bool)> {
        self.arcs[at(self.first[at(node)])..at(self.first[at(node) + 1])]
            .iter()
            .copied()
    }

    /// The other end and the price of an arc that has room.
    fn residual(&self, (edge, forward): (u32, bool)) -> Option<(u32, Price)> {
        let edge = &self.edges[at(edge)];
        if forward {
            (edge.flow < edge.room).then(|| (edge.to, edge.cost.next(edge.flow)))
        } else {
            (edge.flow > 0).then(|| (edge.from, -edge.cost.next(edge.flow - 1)))
        }
    }

    /// Sends up to `amount` units from `source` to the sink; answers how many there was room for.
    pub(crate) fn send(&mut self, source: u32, amount: u32) -> u32 {
        (0..amount)
            .take_while(|_| self.augment(source))
            .fold(0, |sent, _| sent + 1)
    }

    fn augment(&mut self, source: u32) -> bool {
        self.heap.clear();
        self.level.clear();
        self.touched.clear();
        self.touched.push(source);
        self.distance[at(source)] = 0;
        self.level.push(source);
        let mut distance = 0;
        let mut bound = FAR;
        loop {
            // Nodes at the present distance first, without the heap: there are many, since paths leave arcs of no price.
            while let Some(node) = self.level.pop() {
                if node == self.sink {
                    break;
                }
                self.relax(node, distance, &mut bound);
            }
            let Some(Reverse((next, node))) = self.heap.pop() else {
                break;
            };
            if self.distance[at(self.sink)] <= next {
                break;
            }
            if next == self.distance[at(node)] {
                distance = next;
                self.level.push(node);
            }
        }
        let end = self.distance[at(self.sink)];
        let found = end != FAR;
        for node in self.touched.drain(..) {
            let distance = std::mem::replace(&mut self.distance[at(node)], FAR);
            if found && distance < end {
                self.potential[at(node)] += distance - end;
            }
        }
        if found {
            self.push_along_path(source, 1);
        }
        found
    }

    /// Notes shorter distances to the neighbours of a node. `bound` is no less than the sink's distance; what is beyond it
    /// cannot be on the path.
    fn relax(&mut self, node: u32, distance: Price, bound: &mut Price) {
        let from_here = distance + self.potential[at(node)];
        for place in self.first[at(node)]..self.first[at(node) + 1] {
            let arc = self.arcs[at(place)];
            let Some((to, price)) = self.residual(arc) else {
                continue;
            };
            let through = from_here + price - self.potential[at(to)];
            let known = self.distance[at(to)];
            if through >= known || through > *bound {
                continue;
            }
            if known == FAR {
                self.touched.push(to);
            }
            self.distance[at(to)] = through;
            self.came_by[at(to)] = arc;
            if through == distance {
                self.level.push(to);
            } else {
                self.heap.push(Reverse((through, to)));
            }
            if let Some(rest) = self.shortcut(to) {
                *bound = (*bound).min(through + rest);
            }
        }
    }

    /// The distance from a spot over its best free host to the sink, if there is one.
    fn shortcut(&self, node: u32) -> Option<Price> {
        self.shortcuts.get(at(node)).filter(|has| **has)?;
        let open = self
            .arcs_at(node)
            .filter(|(_, forward)| *forward)
            .find(|(offer, _)| {
                let exit = self.exits.get(at(self.edges[at(*offer)].to)).copied().flatten();
                !self.is_full(*offer) && exit.is_some_and(|exit| !self.is_full(exit))
            });
        let (offer, _) = open?;
        Some(self.edges[at(offer)].cost.next(0) + self.potential[at(node)] - self.potential[at(self.sink)])
    }

    /// Sends up to `amount` units at whatever price; afterwards only reachability is meaningful.
    pub(crate) fn send_at_any_price(&mut self, source: u32, amount: u32) -> u32 {
        let mut sent = 0;
        while sent < amount && self.find_any_path(source) {
            let room = self
                .path(source)
                .map(|(edge, forward)| self.room(edge, forward))
                .min();
            let units = room.unwrap_or(0).min(amount - sent);
            self.push_along_path(source, units);
            sent += units;
        }
        sent
    }

    fn find_any_path(&mut self, source: u32) -> bool {
        let mut seen = vec![false; self.potential.len()];
        let mut stack = vec![source];
        seen[at(source)] = true;
        while let Some(node) = stack.pop() {
            if node == self.sink {
                return true;
            }
            for place in self.first[at(node)]..self.first[at(node) + 1] {
                let arc = self.arcs[at(place)];
                let Some((to, _)) = self.residual(arc) else {
                    continue;
                };
                if !std::mem::replace(&mut seen[at(to)], true) {
                    self.came_by[at(to)] = arc;
                    stack.push(to);
                }
            }
        }
        false
    }

    fn room(&self, edge: u32, forward: bool) -> u32 {
        let edge = &self.edges[at(edge)];
        if forward { edge.room - edge.flow } else { edge.flow }
    }

    /// The arcs of the path found last, from the sink back to the source.
    fn path(&self, source: u32) -> impl Iterator<Item = (u32, bool)> {
        let mut node = self.sink;
        std::iter::from_fn(move || {
            let arc = (node != source).then(|| self.came_by[at(node)])?;
            let edge = &self.edges[at(arc.0)];
            node = if arc.1 { edge.from } else { edge.to };
            Some(arc)
        })
    }

    fn push_along_path(&mut self, source: u32, units: u32) {
        let mut node = self.sink;
        while node != source {
            let (edge, forward) = self.came_by[at(node)];
            let edge = &mut self.edges[at(edge)];
            if forward {
                edge.flow += units;
                node = edge.from;
            } else {
                edge.flow -= units;
                node = edge.to;
            }
        }
    }

    /// The nodes to which more could flow from any of the sources: the source side of a minimum cut once no source can
    /// send more.
    pub(crate) fn reachable(&self, sources: &[u32]) -> Vec<bool> {
        let mut seen = vec![false; self.potential.len()];
        let mut stack = sources.to_vec();
        for source in sources {
            seen[at(*source)] = true;
        }
        while let Some(node) = stack.pop() {
            for (to, _) in self.arcs_at(node).filter_map(|arc| self.residual(arc)) {
                if !std::mem::replace(&mut seen[at(to)], true) {
                    stack.push(to);
                }
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dearer_path_is_rerouted_when_a_later_unit_needs_the_cheap_one() {
        let mut builder = Builder::default();
        let [a, b, x, y, sink] = std::array::from_fn(|_| builder.node());
        let a_x = builder.edge(a, x, 1, Cost::fixed(1));
        let a_y = builder.edge(a, y, 1, Cost::fixed(5));
        let b_x = builder.edge(b, x, 1, Cost::fixed(1));
        builder.edge(x, sink, 1, Cost::fixed(0));
        builder.edge(y, sink, 1, Cost::fixed(0));
        let mut network = builder.build(sink);
        assert_eq!(network.send(a, 1), 1);
        assert_eq!((network.flow(a_x), network.flow(a_y)), (1, 0));
        assert_eq!(network.send(b, 1), 1);
        assert_eq!(
            (network.flow(a_x), network.flow(a_y), network.flow(b_x)),
            (0, 1, 1)
        );
        assert_eq!(network.send(b, 1), 0);
        let side = network.reachable(&[b]);
        assert_eq!(
            (side[at(b)], side[at(a)]),
            (true, false),
            "b has one edge and it is full"
        );
    }

    #[test]
    fn convex_prices_level_the_load() {
        let mut builder = Builder::default();
        let [s, x, y, sink] = std::array::from_fn(|_| builder.node());
        let to_x = builder.edge(s, x, 9, Cost::convex(1, 2));
        let to_y = builder.edge(s, y, 9, Cost::convex(1, 0));
        builder.edge(x, sink, 9, Cost::fixed(0));
        builder.edge(y, sink, 9, Cost::fixed(0));
        let mut network = builder.build(sink);
        assert_eq!(network.send(s, 4), 4);
        assert_eq!((network.flow(to_x), network.flow(to_y)), (1, 3));
    }
}
