//! Min-cost flow by successive shortest paths, with convex prices.

mod build;
mod cheapest;
mod reach;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub(crate) use build::Builder;

use crate::site::at;

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
/// soon as the distance of the sink is known, and only nearer nodes change their potentials. Prices must not be negative.
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

/// Distance of a node to which no path is known.
const UNREACHED: Price = Price::MAX;

/// The number of the node or edge at this index; [`at`] is the inverse.
pub(crate) fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
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
}
