//! What was found for a request, how good it is, and whether that is certain.

use super::demand::Demand;
use super::network::{Layout, used_offer};
use super::preferences::Preferences;
use super::role_needs::Gate;
use super::spread::Loads;
use super::tree::Node;
use crate::site::{Slot, Value};

/// A host for a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) host: Slot,
    pub(crate) domain: Value,
    pub(crate) gate: Gate,
}

/// What was found for one role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// How many lost members are replaced.
    pub(crate) replaced: u32,
    /// How many members are moved: 0 or 1.
    pub(crate) moved: u32,
    pub(crate) grown: u32,
    pub(crate) choices: Vec<Choice>,
}

/// How good a whole placement is: sums over its hosts. Compares placements in different namespaces.
pub(crate) type Quality = Preferences<u32, Vec<u64>>;

/// The flow after as much as possible was sent.
pub(crate) struct Solution {
    pub(crate) demands: Vec<Demand>,
    pub(crate) layout: Layout,
    pub(crate) found: Vec<Found>,
    /// As in `found`, with the replacements alone.
    pub(crate) replacements_only: Vec<Found>,
    pub(crate) levels: usize,
    /// All that was asked, where that includes moves: `demands` has at most one of them.
    pub(crate) with_moves: Option<Vec<Demand>>,
}

impl Solution {
    /// What would be asked again with other hosts.
    pub(crate) fn demands(&self) -> &[Demand] {
        self.with_moves.as_ref().unwrap_or(&self.demands)
    }

    /// Whether every demand was met.
    pub(crate) fn is_complete(&self) -> bool {
        self.missing().iter().all(|missing| *missing == 0)
    }

    pub(crate) fn grows(&self) -> bool {
        self.demands
            .iter()
            .zip(&self.found)
            .all(|(demand, found)| found.grown == demand.growth)
    }

    /// How many members are replaced, in all roles.
    pub(crate) fn replacements(&self) -> u32 {
        let replaced = self.found.iter().map(|found| found.replaced + found.moved);
        replaced.fold(0, u32::saturating_add)
    }

    /// What is decided: all that was found, or the replacements alone where the roles do not all grow.
    pub(crate) fn decided(&self, grows: bool) -> &[Found] {
        if grows {
            &self.found
        } else {
            &self.replacements_only
        }
    }

    /// How many of the hosts that are taken are outside the cluster's namespaces.
    pub(crate) fn outside(&self, grows: bool) -> u32 {
        let decided = self.demands.iter().zip(self.decided(grows));
        let choices =
            decided.flat_map(|(demand, found)| found.choices.iter().map(move |choice| (demand, choice)));
        let offers = choices.filter_map(|(demand, choice)| {
            let mut offers = demand.pool.spots.iter().flat_map(|spot| &spot.offers);
            offers.find(|offer| offer.host == choice.host)
        });
        offers
            .map(|offer| u32::from(offer.drawbacks.unpacked().outside))
            .sum()
    }

    /// How many hosts each role lacks.
    pub(crate) fn missing(&self) -> Vec<u32> {
        let missing = |(demand, found): (&Demand, &Found)| {
            let moves = u32::from(demand.moves) - found.moved;
            demand.replace - found.replaced + moves + demand.growth - found.grown
        };
        self.demands.iter().zip(&self.found).map(missing).collect()
    }

    /// Whether nothing that the pools left out could have changed the outcome: everything was found, and each leaf of
    /// the hierarchy that has more spots still has one that is unused together with its best host.
    ///
    /// Such a spot is no dearer than any left out, and leads to the sink at once. A cheaper placement would be a cycle of
    /// negative price through a spot left out and one of its hosts; if that is unused, the unused spot does as well. If
    /// another role uses it, the rest of the cycle moves that role elsewhere, which by itself is a cycle without the left
    /// out spot and so not negative: again the unused spot does as well.
    pub(crate) fn is_certain(&self) -> bool {
        let network = &self.layout.network;
        let is_open = |role: usize, leaf: Node| {
            let nodes = &self.layout.roles[role].spots;
            self.demands[role]
                .pool
                .spots
                .iter()
                .zip(nodes)
                .any(|(spot, nodes)| {
                    spot.leaf == leaf
                        && spot.gate == Gate::Open
                        && !network.is_full(nodes.edge)
                        && !self.layout.is_used(&spot.offers[0])
                })
        };
        let cut = self
            .demands
            .iter()
            .enumerate()
            .flat_map(|(role, demand)| demand.pool.cut.iter().map(move |leaf| (role, *leaf)));
        self.is_complete() && cut.into_iter().all(|(role, leaf)| is_open(role, leaf))
    }

    pub(crate) fn quality(&self, levels: usize) -> Quality {
        let mut quality = Quality {
            spread: vec![0; levels],
            ..Quality::default()
        };
        for (demand, nodes) in self.demands.iter().zip(&self.layout.roles) {
            let mut loads = Loads::present(&demand.tree);
            for (spot, nodes) in demand.pool.spots.iter().zip(&nodes.spots) {
                let Some(offer) =
                    used_offer(&self.layout.network, nodes).and_then(|index| spot.offers.get(index))
                else {
                    continue;
                };
                loads.add(spot.leaf);
                quality.add_host(offer.drawbacks.unpacked());
            }
            loads.add_to(&mut quality.spread);
        }
        quality
    }
}
