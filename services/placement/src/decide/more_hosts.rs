//! How many more hosts would make a request fit, and in which domains they would not.

use std::collections::BTreeSet;

use vocabulary::{LabelValue, Operator};

use super::demand::Demand;
use super::demand_order::find_hosts;
use super::role_needs::Gate;
use super::score::{Drawbacks, Score};
use super::solution::Solution;
use super::solve::Inputs;
use super::spots::Spot;
use super::tree::ROOT;
use crate::decision::{Help, Need, Tight};
use crate::request::Role;
use crate::site::{NONE, Site, Slot, Value, at};

/// Maximum number of missing hosts that a help states. Larger numbers help nobody; the funnels state them.
const MAX_MISSING_HOSTS: u32 = 1_000;

/// The fewest hosts for one role that would do, or else what each role lacks.
pub(super) fn fewest(
    inputs: &Inputs<'_>,
    solution: &Solution,
    tight: &Tight,
    missing: &[u32],
) -> Option<Help> {
    let short = || missing.iter().enumerate().filter(|(_, missing)| **missing > 0);
    let total = missing.iter().copied().fold(0, u32::saturating_add);
    if total > MAX_MISSING_HOSTS {
        return None;
    }
    let one = |total| short().map(move |(role, _)| vec![(role, total)]);
    let each = short().map(|(role, missing)| (role, *missing)).collect();
    // With more hosts another member may be moved than now, and take one of them.
    let another = solution.with_moves.as_ref().map(|_| total.saturating_add(1));
    one(total)
        .chain([each])
        .chain(another.into_iter().flat_map(one))
        .filter(|needs| fits_with_new_hosts(solution, needs))
        .map(|needs| with_domains(inputs, solution, tight, &needs))
        .find(|needs| needs.iter().all(has_room))
        .map(Help::MoreHosts)
}

/// Whether the domains that the selector allows are enough for the hosts that are needed.
fn has_room(need: &Need) -> bool {
    let Need {
        role: _,
        count,
        not_in: _,
        only_in,
    } = need;
    only_in.as_ref().is_none_or(|open| open.len() >= at(*count))
}

/// What these roles need, with the domains in which further hosts would not help.
fn with_domains(
    inputs: &Inputs<'_>,
    solution: &Solution,
    tight: &Tight,
    needs: &[(usize, u32)],
) -> Vec<Need> {
    let several = needs.iter().map(|(_, count)| count).sum::<u32>() > 1;
    let need = |(role, count): &(usize, u32)| {
        let (role, role_needs) = (*role, &inputs.needs.roles[*role]);
        let name = &role_needs.role.name;
        let bound = tight
            .domains
            .iter()
            .filter(|(of, _)| of == name)
            .map(|(_, domain)| domain.clone());
        let keyed = role_needs.role.topology_key.is_some();
        let all_wait = several || tight.waiting > 0 && only_failing(inputs, tight, role);
        let waits = |domain: &LabelValue| {
            all_wait || tight.waiting > 0 && !fits_with_new_host_in(inputs, solution, role, domain)
        };
        let waiting = role_needs.gates.keys().filter(|domain| waits(domain)).cloned();
        let mut not_in: BTreeSet<LabelValue> = role_needs
            .closed
            .iter()
            .filter(|_| keyed)
            .cloned()
            .chain(bound)
            .chain(waiting)
            .collect();
        if several {
            not_in.extend(in_use(inputs, solution, role));
        } else if keyed && solution.with_moves.is_some() {
            not_in.extend(spoilt_by_moves(inputs, solution, role));
        }
        Need {
            role: name.clone(),
            count: *count,
            only_in: only_in(inputs.site, role_needs.role, &not_in),
            not_in: not_in.into_iter().collect(),
        }
    };
    needs.iter().map(need).collect()
}

/// Of the topology domains that a role's selector names those that would do; None where it does not name any.
fn only_in(site: &Site, role: &Role, not_in: &BTreeSet<LabelValue>) -> Option<Vec<LabelValue>> {
    let key = role.topology_key.as_ref()?;
    let about = || role.selector.requirements().filter(|one| one.key() == key);
    let named = about().find(|one| matches!(one.operator(), Operator::In | Operator::DoesNotExist))?;
    let would_do = |value: &&LabelValue| {
        let labels = [(key.clone(), (*value).clone())].into();
        let cordoned = &site.policy().cordoned;
        about().all(|one| one.matches(&labels))
            && !value.is_empty()
            && !not_in.contains(*value)
            && cordoned
                .iter()
                .all(|domain| domain.key != *key || domain.value != **value)
    };
    Some(named.values().filter(would_do).cloned().collect())
}

/// Domains in which the role's one place is used in this solution. One host there may do, since whoever uses the place can
/// move over; the next one then may not. Where the place is not used, each of several hosts does: no cut of the network
/// is as narrow as before, whichever side of it the place is on.
fn in_use<'a>(
    inputs: &'a Inputs<'_>,
    solution: &'a Solution,
    role: usize,
) -> impl Iterator<Item = LabelValue> + 'a {
    let nodes = &solution.layout.roles[role].spots;
    let spots = solution.demands[role].pool.spots.iter().zip(nodes);
    let used = spots.filter(|(_, nodes)| solution.layout.network.is_full(nodes.edge));
    used.filter_map(move |(spot, _)| inputs.needs.roles[role].domain(inputs.site, spot.domain))
}

/// Domains in which one host for this role is not enough, since a move uses the role's place there. A host in a domain of
/// its own was tried; while members are to be moved, each domain with a free host or a waiting member is tried too.
fn spoilt_by_moves<'a>(
    inputs: &'a Inputs<'_>,
    solution: &'a Solution,
    role: usize,
) -> impl Iterator<Item = LabelValue> + 'a {
    let role_needs = &inputs.needs.roles[role];
    let spots = solution.demands()[role].pool.spots.iter();
    let free = spots.filter_map(|spot| role_needs.domain(inputs.site, spot.domain));
    let domains: BTreeSet<LabelValue> = free.chain(role_needs.gates.keys().cloned()).collect();
    domains
        .into_iter()
        .filter(move |domain| !fits_with_new_host_in(inputs, solution, role, domain))
}

/// Whether everything is found with one new host for this role in a domain.
fn fits_with_new_host_in(inputs: &Inputs<'_>, solution: &Solution, role: usize, domain: &LabelValue) -> bool {
    let role_needs = &inputs.needs.roles[role];
    let mut demands = solution.demands().to_vec();
    if !role_needs.closed.contains(domain) {
        let key = role_needs.role.topology_key.as_ref();
        let value = key
            .and_then(|key| inputs.site.column(key))
            .and_then(|(_, column)| column.number(domain.as_str()));
        let gate = role_needs.gates.get(domain).copied().unwrap_or(Gate::Open);
        let new = new_host(Slot::MAX, gate);
        offer(&mut demands[role], value.unwrap_or(NONE), new);
    }
    find_hosts(demands, solution.levels).is_complete()
}

/// Adds a spot's one host to the spot of that domain, or the spot where there is none.
fn offer(demand: &mut Demand, domain: Value, new: Spot) {
    let known = demand
        .pool
        .spots
        .iter_mut()
        .find(|spot| domain != NONE && spot.domain == domain);
    match known {
        Some(spot) => spot.offers.extend(new.offers),
        None => demand.pool.spots.push(Spot { domain, ..new }),
    }
}

/// Whether no other role of the bottleneck has failed members: then it is this one's replacements that wait.
fn only_failing(inputs: &Inputs<'_>, tight: &Tight, role: usize) -> bool {
    let roles = inputs.needs.roles.iter().enumerate();
    roles
        .filter(|(_, role_needs)| !role_needs.gates.is_empty() && tight.roles.contains(&role_needs.role.name))
        .all(|(other, _)| other == role)
}

/// Whether everything is found with new hosts for these roles; what other roles the hosts fit makes it no worse.
fn fits_with_new_hosts(solution: &Solution, needs: &[(usize, u32)]) -> bool {
    let mut demands = solution.demands().to_vec();
    // Slots are given from 0 on, so these are no host's.
    let mut slots = (0..=Slot::MAX).rev();
    for (role, count) in needs {
        let new = slots
            .by_ref()
            .take(at(*count))
            .map(|slot| new_host(slot, Gate::Open));
        demands[*role].pool.spots.extend(new);
    }
    find_hosts(demands, solution.levels).is_complete()
}

/// A host that is not there yet, in a domain of its own.
fn new_host(slot: Slot, gate: Gate) -> Spot {
    let offer = Score {
        drawbacks: Drawbacks::NONE.packed(),
        rank: u64::MAX - u64::from(Slot::MAX - slot),
        host: slot,
    };
    Spot {
        domain: NONE,
        leaf: ROOT,
        gate,
        offers: vec![offer],
    }
}
