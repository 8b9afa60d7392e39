//! The order in which demands are served if not all can be met: replacements of lost members, then one move, then growth.

use super::demand::Demand;
use super::network::{Layout, used_offer};
use super::role_needs::{Gate, Pressing, count};
use super::solution::{Choice, Found, Solution};

/// Sends the demands through the network. First replacements of lost members: the most pressing of all roles first, then in the order of role
/// names. Then one of the demanded moves. Then growth, in the order of role names.
///
/// The move is that of the first role whose move leaves nothing undone, or else of the first in which one can be made. So more hosts
/// never leave more undone.
pub(crate) fn find_hosts(demands: Vec<Demand>, levels: usize) -> Solution {
    let roles = demands.iter().enumerate().filter(|(_, demand)| demand.moves);
    let roles: Vec<usize> = roles.map(|(role, _)| role).collect();
    let Some(first) = roles.first() else {
        return Sent::lost(demands, levels).grow(levels);
    };
    let lost = Sent::lost(only_move_of(&demands, *first), levels);
    let moved = |role: &usize| lost.moved(only_move_of(&demands, *role), *role, levels);
    let mut moved = roles.iter().filter_map(moved).map(|moved| moved.grow(levels));
    let solution = match moved.next() {
        Some(first) if first.is_complete() || !lost.is_complete() => first,
        Some(first) => moved.find(Solution::is_complete).unwrap_or(first),
        None => lost.grow(levels),
    };
    Solution {
        with_moves: Some(demands),
        ..solution
    }
}

/// The demands, with moves for this role only.
fn only_move_of(demands: &[Demand], role: usize) -> Vec<Demand> {
    let mut only = demands.to_vec();
    for (_, demand) in only.iter_mut().enumerate().filter(|(other, _)| *other != role) {
        demand.moves = false;
        demand.pool.spots.retain(|spot| spot.gate != Gate::Move);
    }
    only
}

/// What has been sent so far.
struct Sent {
    demands: Vec<Demand>,
    layout: Layout,
    found: Vec<Found>,
}

impl Sent {
    /// Sends as many replacements of lost members as possible. The order of the roles does not change that number: a path that one role uses never
    /// reduces the total (the sets of replacements for which there are hosts are a matroid).
    fn lost(demands: Vec<Demand>, levels: usize) -> Self {
        let mut layout = Layout::new(&demands, levels);
        let mut found = vec![Found::default(); demands.len()];
        let turns = demands.iter().enumerate();
        let turns = turns.flat_map(|(role, demand)| demand.turns.iter().map(move |turn| (*turn, role)));
        let mut turns: Vec<(Pressing, usize)> = turns.collect();
        turns.sort_unstable();
        for turns in turns.chunk_by(|(_, one), (_, next)| one == next) {
            let [(_, role), ..] = turns else { continue };
            let sent = layout.network.send(layout.roles[*role].role, count(turns.len()));
            found[*role].replaced += sent;
        }
        for (role, found) in found.iter().enumerate() {
            layout.limit_replacements(role, found.replaced);
        }
        Self {
            demands,
            layout,
            found,
        }
    }

    /// Whether all of the lost are replaced.
    fn is_complete(&self) -> bool {
        let mut roles = self.demands.iter().zip(&self.found);
        roles.all(|(demand, found)| found.replaced == demand.replace)
    }

    /// The same replacements and one move of this role, or `None` if no host allows it. Uses a new network, in which the domains of the members to
    /// be moved are open from the start.
    fn moved(&self, demands: Vec<Demand>, role: usize, levels: usize) -> Option<Self> {
        let mut layout = Layout::new(&demands, levels);
        layout.open_move(role);
        let mut found = self.found.clone();
        for (role, found) in found.iter().enumerate() {
            layout.limit_replacements(role, found.replaced);
            let sent = layout.network.send(layout.roles[role].role, found.replaced);
            debug_assert_eq!(sent, found.replaced);
        }
        found[role].moved = layout.network.send(layout.roles[role].role, 1);
        (found[role].moved == 1).then_some(Self {
            demands,
            layout,
            found,
        })
    }

    /// Sends growth, as far as possible.
    fn grow(self, levels: usize) -> Solution {
        let Self {
            demands,
            mut layout,
            mut found,
        } = self;
        read_choices(&demands, &layout, &mut found);
        let replacements_only = found.clone();
        for (role, demand) in demands.iter().enumerate() {
            found[role].grown = layout.network.send(layout.roles[role].role, demand.growth);
        }
        read_choices(&demands, &layout, &mut found);
        Solution {
            demands,
            layout,
            found,
            replacements_only,
            levels,
            with_moves: None,
        }
    }
}

fn read_choices(demands: &[Demand], layout: &Layout, found: &mut [Found]) {
    for ((demand, nodes), found) in demands.iter().zip(&layout.roles).zip(found) {
        let chosen = demand
            .pool
            .spots
            .iter()
            .zip(&nodes.spots)
            .filter_map(|(spot, nodes)| {
                let offer = spot.offers.get(used_offer(&layout.network, nodes)?)?;
                Some(Choice {
                    host: offer.host,
                    domain: spot.domain,
                    gate: spot.gate,
                })
            });
        found.choices = chosen.collect();
    }
}
