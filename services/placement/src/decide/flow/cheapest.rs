//! Flows of least cost: one unit after another along a cheapest path.

use std::cmp::Reverse;

use super::{Network, Price, UNREACHED};
use crate::site::at;

impl Network {
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
        let mut bound = UNREACHED;
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
        let found = end != UNREACHED;
        for node in self.touched.drain(..) {
            let distance = std::mem::replace(&mut self.distance[at(node)], UNREACHED);
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
            if known == UNREACHED {
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
}
