//! What would make a request fit, each verified by deciding again with it.

use std::collections::{BTreeMap, BTreeSet};

use super::account::Account;
use super::network::Demand;
use super::pool::Spot;
use super::score::{Class, Score};
use super::solution::Solution;
use super::solve::{Inputs, run};
use super::tree::ROOT;
use crate::decision::{Help, Need, Tight};
use crate::ineligible::{Ineligible, all_reasons};
use crate::names::{HostName, LabelValue};
use crate::request::Request;
use crate::site::{NONE, Slot, Value, at};

/// How many hosts that are not eligible are looked at per role, the first by name.
const LOOKED_AT: usize = 64;

/// Where more hosts are missing than this, it is no help to say so; the funnels say how many there are.
const MOST_MISSING: u32 = 1_000;

pub(crate) fn find(inputs: &Inputs<'_>, request: &Request, solution: &Solution, tight: &Tight) -> Vec<Help> {
    let missing = solution.missing();
    let mut helps: Vec<Help> = more_hosts(inputs, solution, tight, &missing)
        .into_iter()
        .collect();
    for (role, missing) in missing.iter().enumerate() {
        if *missing > 0 && helps.len() + 1 < crate::MAX_HELPS {
            let room = crate::MAX_HELPS - 1 - helps.len();
            helps.extend(make_eligible(inputs, request, solution, role).take(room));
        }
    }
    let less = inputs
        .accounts
        .roles
        .iter()
        .zip(&solution.found)
        .filter(|(account, found)| found.grown < account.growth);
    let less: Vec<_> = less
        .map(|(account, found)| {
            (
                account.role.name.clone(),
                account.have().saturating_add(found.grown),
            )
        })
        .collect();
    helps.extend((!less.is_empty()).then_some(Help::WantLess(less)));
    helps
}

/// The fewest hosts for one role that would do, or else what each role lacks.
fn more_hosts(inputs: &Inputs<'_>, solution: &Solution, tight: &Tight, missing: &[u32]) -> Option<Help> {
    let short = || missing.iter().enumerate().filter(|(_, missing)| **missing > 0);
    let total = missing.iter().copied().fold(0, u32::saturating_add);
    if total > MOST_MISSING {
        return None;
    }
    let one = short().map(|(role, _)| vec![(role, total)]);
    let each = short().map(|(role, missing)| (role, *missing)).collect();
    let needs = one
        .chain([each])
        .find(|needs| fits_with_new_hosts(solution, needs))?;
    let need = |(role, count): (usize, u32)| {
        let account = &inputs.accounts.roles[role];
        let name = &account.role.name;
        let bound = tight
            .domains
            .iter()
            .filter(|(of, _)| of == name)
            .map(|(_, domain)| domain.clone());
        let keyed = account.role.topology_key.is_some();
        let waits = tight.waiting > 0 && only_failing(inputs, tight, role);
        let waiting = account.yielding().filter(|_| waits);
        let not_in: BTreeSet<LabelValue> = account
            .closed()
            .into_iter()
            .filter(|_| keyed)
            .chain(bound)
            .chain(waiting)
            .collect();
        Need {
            role: name.clone(),
            count,
            not_in: not_in.into_iter().collect(),
        }
    };
    Some(Help::MoreHosts(needs.into_iter().map(need).collect()))
}

/// Whether no other role of the bottleneck has failed members: then it is this one's replacements that wait.
fn only_failing(inputs: &Inputs<'_>, tight: &Tight, role: usize) -> bool {
    let roles = inputs.accounts.roles.iter().enumerate();
    roles
        .filter(|(_, account)| !account.failed.is_empty() && tight.roles.contains(&account.role.name))
        .all(|(other, _)| other == role)
}

fn fits_with_new_hosts(solution: &Solution, needs: &[(usize, u32)]) -> bool {
    let mut demands = solution.demands.clone();
    let mut host = Slot::MAX;
    for (role, count) in needs {
        for _ in 0..*count {
            // Slots are given from 0 on, so these are no host's.
            let offer = Score {
                class: Class::new(0, 0, 0),
                rank: u64::MAX - u64::from(Slot::MAX - host),
                host,
            };
            demands[*role].pool.spots.push(Spot {
                domain: NONE,
                leaf: ROOT,
                yields: false,
                offers: vec![offer],
            });
            host -= 1;
        }
    }
    run(demands, solution.levels).is_complete()
}

/// Hosts that fail for one reason only, by reason, where all of them together would do.
fn make_eligible<'a>(
    inputs: &'a Inputs<'_>,
    request: &'a Request,
    solution: &'a Solution,
    role: usize,
) -> impl Iterator<Item = Help> + 'a {
    let account = &inputs.accounts.roles[role];
    let by_reason = by_only_reason(inputs, request, role);
    by_reason.into_iter().filter_map(move |(reason, hosts)| {
        let mut demands = solution.demands.clone();
        for host in &hosts {
            add(inputs, account, &mut demands[role], *host);
        }
        let name = |host: &Slot| inputs.site.row(*host).map(|row| row.id.name.clone());
        let hosts: BTreeSet<HostName> = hosts.iter().filter_map(name).collect();
        run(demands, solution.levels)
            .is_complete()
            .then(|| Help::MakeEligible {
                role: account.role.name.clone(),
                reason,
                hosts: hosts.into_iter().collect(),
            })
    })
}

fn by_only_reason(inputs: &Inputs<'_>, request: &Request, role: usize) -> BTreeMap<Ineligible, Vec<Slot>> {
    let Inputs {
        site,
        accounts,
        stages,
        own,
    } = inputs;
    let mut mask = stages[role].matched.clone();
    mask.difference_with(&stages[role].free);
    site.keep_unheld(&mut mask);
    own.iter().for_each(|host| mask.set(at(*host), false));
    let mut hosts: Vec<(u64, Slot)> = mask
        .ones()
        .map(super::flow::id)
        .map(|host| (site.rank(host), host))
        .collect();
    if hosts.len() > LOOKED_AT {
        hosts.select_nth_unstable(LOOKED_AT);
        hosts.truncate(LOOKED_AT);
    }
    hosts.sort_unstable();
    let mut by_reason: BTreeMap<Ineligible, Vec<Slot>> = BTreeMap::new();
    for (_, slot) in hosts {
        let Some(host) = site.row(slot).map(|row| row.host(site)) else {
            continue;
        };
        let role = accounts.roles[role].role;
        let reasons = all_reasons(&host, site.holder(&host.id), site.policy(), request, role);
        if let Ok([reason]) = <[Ineligible; 1]>::try_from(reasons)
            && can_be_mended(&reason)
        {
            by_reason.entry(reason).or_default().push(slot);
        }
    }
    by_reason
}

/// Whether somebody could take the reason away without changing what is asked. A missing topology label could be added,
/// but nobody knows with which value.
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
        | Ineligible::Cordoned
        | Ineligible::CordonedDomain(_)
        | Ineligible::NoAddress(_)
        | Ineligible::Consumed(_)
        | Ineligible::Orphaned
        | Ineligible::PartialLabels
        | Ineligible::Labelled(_) => true,
        Ineligible::NotFound
        | Ineligible::Selector(_)
        | Ineligible::NoTopologyLabel(_)
        | Ineligible::EmptyTopologyLabel(_)
        | Ineligible::Deleting
        | Ineligible::Held { .. } => false,
    }
}

/// Adds a host to what a role may choose from.
fn add(inputs: &Inputs<'_>, account: &Account<'_>, demand: &mut Demand, host: Slot) {
    let site = inputs.site;
    let offer = Score {
        class: Class::new(0, 0, 0),
        rank: site.rank(host),
        host,
    };
    let key = account.role.topology_key.as_ref();
    let column = key.and_then(|key| site.column(key));
    let domain: Value = column.map_or(NONE, |(number, _)| site.value(number, host));
    let closed = account.closed();
    let text = column.and_then(|(_, column)| column.text(domain));
    let is_closed = text.is_some_and(|text| closed.contains(text.as_str()));
    if key.is_some() && (domain == NONE || is_closed) {
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
            yields: text.is_some_and(|text| account.yielding().any(|open| open.as_str() == text)),
            offers: vec![offer],
        });
    }
}
