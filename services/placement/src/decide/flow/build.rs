//! Networks from their nodes and edges.

use std::collections::BinaryHeap;

use super::{Cost, Edge, Network, UNREACHED, number};
use crate::site::at;

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
        number(self.edges.len() - 1)
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
                arcs[at(next[at(node)])] = (number(index), forward);
                next[at(node)] += 1;
            }
        }
        Network {
            edges,
            sink,
            first,
            arcs,
            potential: vec![0; nodes],
            distance: vec![UNREACHED; nodes],
            came_by: vec![(0, true); nodes],
            heap: BinaryHeap::new(),
            level: Vec::new(),
            touched: Vec::new(),
            shortcuts,
            exits,
        }
    }
}
