//! What can flow at all, whatever it costs, and where a flow that falls short is cut.

use super::Network;
use crate::site::at;

impl Network {
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
