//! The bottleneck of a request that does not fit, from a minimum cut.

use std::borrow::Cow;
use std::collections::BTreeSet;

use fixedbitset::FixedBitSet;
use vocabulary::{HostName, LabelValue, RoleName};

use super::network::{Layout, sources, used_offer};
use super::solution::Solution;
use super::solve::Inputs;
use crate::decision::Tight;
use crate::site::{Site, Slot, at};

/// The network with all that is demanded sent as far as possible, and how much of each role's demand is missing.
///
/// The solution's own network lets no more replacements into failed members' domains than were decided, and replaces
/// before it grows; the proof must not depend on that, so here the edge is as wide as the limit allows.
fn fullest(solution: &Solution) -> (Cow<'_, Layout>, Vec<u32>) {
    let missing = solution.missing();
    let narrowed = solution
        .demands
        .iter()
        .zip(&solution.found)
        .any(|(demand, found)| found.replaced < demand.replace || found.moved < u32::from(demand.moves));
    if !narrowed {
        return (Cow::Borrowed(&solution.layout), missing);
    }
    let mut layout = solution.layout.clone();
    for (role, demand) in solution.demands.iter().enumerate() {
        layout.limit_replacements(role, demand.replace);
        if demand.moves {
            layout.open_move(role);
        }
    }
    let mut still = missing;
    for (role, missing) in still.iter_mut().enumerate() {
        *missing -= layout
            .network
            .send_at_any_price(layout.roles[role].role, *missing);
    }
    (Cow::Owned(layout), still)
}

/// The source side of a minimum cut, as roles, domains and hosts.
///
/// Everything that the roles short of hosts could reach by rerouting is on that side; what flows out of it is full:
/// spots in use that nobody on that side could vacate, hosts in use, and failed members' domains where the limit of
/// replacements binds. The pools hold one host more per spot than others can use, and as many spots per path as the
/// request needs hosts; so a cut through them is one through all hosts (a pool that left something out has something
/// unused, and then more could flow).
pub(crate) fn tight(inputs: &Inputs<'_>, solution: &Solution) -> Tight {
    let (layout, missing) = fullest(solution);
    let short = missing.iter().enumerate().filter(|(_, missing)| **missing > 0);
    let side = layout
        .network
        .reachable(&sources(&layout, short.map(|(role, _)| role)));
    let inside = |node: u32| side[at(node)];
    let mut tight = Tight {
        deficit: missing.iter().copied().fold(0, u32::saturating_add),
        ..Tight::default()
    };
    let mut hosts: BTreeSet<HostName> = BTreeSet::new();
    let mut domains: BTreeSet<(RoleName, LabelValue)> = BTreeSet::new();
    for (role, nodes) in layout
        .roles
        .iter()
        .enumerate()
        .filter(|(_, nodes)| inside(nodes.role))
    {
        let role_needs = &inputs.needs.roles[role];
        tight.roles.push(role_needs.role.name.clone());
        tight.demand = tight.demand.saturating_add(solution.demands[role].total());
        tight.waiting += layout.gates_cut(role, inside);
        for (spot, nodes) in solution.demands[role].pool.spots.iter().zip(&nodes.spots) {
            if !inside(nodes.from) || inside(nodes.node) || !layout.network.is_full(nodes.edge) {
                continue;
            }
            if let Some(domain) = role_needs.domain(inputs.site, spot.domain) {
                domains.insert((role_needs.role.name.clone(), domain));
            } else {
                let host = used_offer(&layout.network, nodes).and_then(|index| spot.offers.get(index));
                hosts.extend(host.and_then(|offer| name(inputs.site, offer.host)));
            }
        }
    }
    let used = layout
        .hosts
        .iter()
        .filter(|(_, node, edge)| inside(*node) && layout.network.is_full(*edge));
    hosts.extend(used.filter_map(|(host, _, _)| name(inputs.site, *host)));
    tight.compete = compete(inputs, |role| inside(layout.roles[role].role));
    tight.domains = domains.into_iter().collect();
    tight.hosts = hosts.into_iter().collect();
    tight
}

/// Whether two of these roles could use the same host.
fn compete(inputs: &Inputs<'_>, is_tight: impl Fn(usize) -> bool) -> bool {
    let mut others = FixedBitSet::new();
    inputs
        .filtered
        .iter()
        .enumerate()
        .filter(|(role, _)| is_tight(*role))
        .any(|(_, filtered)| {
            let meets = !others.is_disjoint(&filtered.free);
            others.union_with(&filtered.free);
            meets
        })
}

fn name(site: &Site, host: Slot) -> Option<HostName> {
    site.row(host).map(|row| row.id.name.clone())
}
