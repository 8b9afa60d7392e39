//! What would make a request fit, each verified by deciding again with it. How many more hosts would: [`super::more_hosts`].

use std::collections::{BTreeMap, BTreeSet};

use vocabulary::{HostName, RoleName};

use super::demand::Demand;
use super::demand_order::find_hosts;
use super::more_hosts;
use super::role_needs::{Gate, RoleNeeds, count};
use super::score::{Drawbacks, Score};
use super::solution::{Found, Solution};
use super::solve::Inputs;
use super::spots::Spot;
use super::tree::ROOT;
use crate::decision::{Help, Tight};
use crate::ineligible::{Ineligible, all_reasons};
use crate::request::Request;
use crate::site::{NONE, Slot, Value, at, slot};

/// Maximum number of hosts that are not eligible and are considered per role: the first by name.
const MAX_CONSIDERED_HOSTS: usize = 64;
/// Maximum number of pairs of a role and a reason that are tried, each by another decision: more than a few roles that lack hosts have.
const MAX_TRIED_PAIRS: usize = 24;

pub(crate) fn find(inputs: &Inputs<'_>, request: &Request, solution: &Solution, tight: &Tight) -> Vec<Help> {
    let missing = solution.missing();
    let mut helps: Vec<Help> = more_hosts::fewest(inputs, solution, tight, &missing)
        .into_iter()
        .collect();
    let mut tries = MAX_TRIED_PAIRS;
    for (role, missing) in missing.iter().enumerate() {
        if *missing > 0 && tries > 0 && helps.len() + 1 < crate::MAX_HELPS {
            let room = crate::MAX_HELPS - 1 - helps.len();
            helps.extend(make_eligible(inputs, request, solution, role, &mut tries).take(room));
        }
    }
    helps.extend(want_less(inputs, request, solution));
    helps
}

/// The most members that each role that is short can have. A role whose failed members or whose moves lack hosts must give
/// these back: which of them is decided again, since fewer of them may fit into the domains that there are.
fn want_less(inputs: &Inputs<'_>, request: &Request, solution: &Solution) -> Option<Help> {
    let roles = || {
        inputs
            .needs
            .roles
            .iter()
            .zip(&solution.found)
            .zip(&solution.demands)
    };
    let stuck = |found: &Found, demand: &Demand| {
        found.replaced < demand.replace || found.moved < u32::from(demand.moves)
    };
    let less = |releases: &Releases<'_>| -> Vec<(RoleName, u32)> {
        let short = roles()
            .filter(|((role_needs, found), demand)| found.grown < role_needs.growth || stuck(found, demand));
        let most = |((role_needs, found), demand): ((&RoleNeeds<'_>, &Found), &Demand)| {
            let fits = role_needs.have().saturating_add(found.grown);
            let back = if stuck(found, demand) {
                releases(role_needs, found)
            } else {
                0
            };
            (role_needs.role.name.clone(), fits.saturating_sub(count(back)))
        };
        short.map(most).collect()
    };
    let moves = |role_needs: &RoleNeeds<'_>| !role_needs.leaving.is_empty();
    let is_stuck = roles().any(|((_, found), demand)| stuck(found, demand));
    // Fewer members lower the limits, and another role's member may then be moved first.
    if !is_stuck && !inputs.needs.roles.iter().any(moves) {
        let less = less(&|_, _| 0);
        return (!less.is_empty()).then_some(Help::WantLess(less));
    }
    let lost = |role_needs: &RoleNeeds<'_>| role_needs.lost.len();
    let tries: [&Releases<'_>; 3] = [
        &|role_needs, found| lost(role_needs).saturating_sub(at(found.replaced)),
        &|role_needs, _| lost(role_needs),
        &|role_needs, _| lost(role_needs) + role_needs.leaving.len(),
    ];
    let mut tries = tries.into_iter().map(less);
    let helps = tries.find(|less| inputs.fits_with_less(request, less))?;
    Some(Help::WantLess(helps))
}

/// How many members a role releases when it wants less.
type Releases<'a> = dyn Fn(&RoleNeeds<'_>, &Found) -> usize + 'a;

/// Hosts that fail for one reason only, by reason, where all of them together would do. Each reason takes one of the tries that are left.
fn make_eligible<'a>(
    inputs: &'a Inputs<'_>,
    request: &'a Request,
    solution: &'a Solution,
    role: usize,
    tries: &mut usize,
) -> impl Iterator<Item = Help> + 'a {
    let role_needs = &inputs.needs.roles[role];
    let by_reason = by_only_reason(inputs, request, role);
    let tried = by_reason.len().min(*tries);
    *tries -= tried;
    by_reason
        .into_iter()
        .take(tried)
        .filter_map(move |(reasons, hosts)| {
            let mut demands = solution.demands().to_vec();
            // They may fit other roles too, and let one of their members be moved first.
            let roles = inputs.needs.roles.iter().zip(inputs.filtered);
            for ((role_needs, filtered), demand) in roles.zip(&mut demands) {
                let matched = hosts.iter().filter(|host| filtered.matched.contains(at(**host)));
                matched.for_each(|host| add(inputs, role_needs, demand, *host));
            }
            let name = |host: &Slot| inputs.site.row(*host).map(|row| row.id.name.clone());
            let hosts: BTreeSet<HostName> = hosts.iter().filter_map(name).collect();
            find_hosts(demands, solution.levels)
                .is_complete()
                .then(|| Help::MakeEligible {
                    role: role_needs.role.name.clone(),
                    reasons,
                    hosts: hosts.into_iter().collect(),
                })
        })
}

/// Addresses in several networks are one reason: one Secret holds them all.
fn by_only_reason(
    inputs: &Inputs<'_>,
    request: &Request,
    role: usize,
) -> BTreeMap<Vec<Ineligible>, Vec<Slot>> {
    let Inputs {
        site,
        needs,
        filtered,
        own,
        members: _,
    } = inputs;
    let mut mask = filtered[role].matched.clone();
    mask.difference_with(&filtered[role].free);
    site.keep_unheld(&mut mask);
    own.iter().for_each(|host| mask.set(at(*host), false));
    let mut hosts: Vec<(u64, Slot)> = mask
        .ones()
        .map(slot)
        .map(|host| (site.rank(host), host))
        .collect();
    if hosts.len() > MAX_CONSIDERED_HOSTS {
        hosts.select_nth_unstable(MAX_CONSIDERED_HOSTS);
        hosts.truncate(MAX_CONSIDERED_HOSTS);
    }
    hosts.sort_unstable();
    let mut by_reason: BTreeMap<Vec<Ineligible>, Vec<Slot>> = BTreeMap::new();
    for (_, slot) in hosts {
        let Some(host) = site.row(slot).map(|row| row.host(site)) else {
            continue;
        };
        let role = needs.roles[role].role;
        let reasons = all_reasons(&host, site.holder(&host.id), site, request, role);
        let is_one = match &*reasons {
            [reason] => can_be_mended(reason),
            several => !several.is_empty() && several.iter().all(Ineligible::is_no_address),
        };
        if is_one {
            by_reason.entry(reasons).or_default().push(slot);
        }
    }
    by_reason
}

/// Whether a person could remove the reason without changing the request. A missing topology label could be added, but its right value is not
/// known.
fn can_be_mended(reason: &Ineligible) -> bool {
    match reason {
        Ineligible::Problem(_)
        | Ineligible::Paused
        | Ineligible::Detached
        | Ineligible::InError
        | Ineligible::Servicing
        | Ineligible::UnknownStatus(_)
        | Ineligible::State(_)
        | Ineligible::MarkedFailed
        | Ineligible::ReplaceRequested
        | Ineligible::WriteRefused
        | Ineligible::Cordoned
        | Ineligible::CordonedDomain(_)
        | Ineligible::NoAddress(_)
        | Ineligible::Consumed(_)
        | Ineligible::Orphaned
        | Ineligible::PartialLabels
        | Ineligible::Labelled(_)
        | Ineligible::FormerMember(_) => true,
        Ineligible::NotFound
        | Ineligible::Selector(_)
        | Ineligible::NoTopologyLabel(_)
        | Ineligible::EmptyTopologyLabel(_)
        | Ineligible::Deleting
        | Ineligible::Held { .. } => false,
    }
}

/// Adds a host to what a role may choose from.
fn add(inputs: &Inputs<'_>, role_needs: &RoleNeeds<'_>, demand: &mut Demand, host: Slot) {
    let site = inputs.site;
    let offer = Score {
        drawbacks: Drawbacks::NONE.packed(),
        rank: site.rank(host),
        host,
    };
    let key = role_needs.role.topology_key.as_ref();
    let column = key.and_then(|key| site.column(key));
    let domain: Value = column.map_or(NONE, |(number, _)| site.value(number, host));
    // An empty label has a number too, and names no domain.
    let text = column
        .and_then(|(_, column)| column.text(domain))
        .filter(|text| !text.is_empty());
    if key.is_some() && text.is_none_or(|text| role_needs.closed.contains(text.as_str())) {
        return;
    }
    let spot = demand
        .pool
        .spots
        .iter_mut()
        .find(|spot| key.is_some() && spot.domain == domain);
    if let Some(spot) = spot {
        let place = spot.offers.partition_point(|known| *known < offer);
        spot.offers.insert(place, offer);
    } else {
        demand.pool.spots.push(Spot {
            domain,
            leaf: ROOT,
            gate: text
                .and_then(|text| role_needs.gates.get(text.as_str()))
                .copied()
                .unwrap_or(Gate::Open),
            offers: vec![offer],
        });
    }
}
