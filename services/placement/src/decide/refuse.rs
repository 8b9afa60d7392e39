//! Why a request does not fit: funnels, and the bottleneck from the minimum cut.

use std::collections::BTreeSet;

use super::account::{Account, Accounts, count};
use super::helps;
use super::network::sources;
use super::pool::Stages;
use super::solve::{Found, Inputs, Solution, domain_text};
use crate::decision::{Funnel, Refusal, RefusalKind, Tight};
use crate::names::{HostName, LabelValue, RoleName};
use crate::request::Request;
use crate::site::{NONE, Site};

/// The quota that the request would break by growing. What other clusters hold counts, and all that this one wants; a
/// replacement never breaks it.
pub(crate) fn quota(site: &Site, request: &Request, accounts: &Accounts<'_>) -> Option<RefusalKind> {
    let namespace = request.cluster.namespace();
    let limit = *site.policy().quotas.get(namespace)?;
    let wanted = accounts
        .roles
        .iter()
        .map(|account| account.role.want)
        .fold(0, u32::saturating_add);
    let others = site
        .usage(namespace)
        .saturating_sub(site.usage_of(&request.cluster));
    let grows = accounts.roles.iter().any(|account| account.growth > 0);
    (grows && others.saturating_add(wanted) > limit).then(|| RefusalKind::Quota {
        namespace: namespace.clone(),
        limit,
        others,
        wanted,
    })
}

pub(crate) fn refusal(
    inputs: &Inputs<'_>,
    solution: &Solution,
    quota: Option<RefusalKind>,
) -> Option<Refusal> {
    let no_fit = !solution.is_complete();
    if quota.is_none() && super::is_satisfied(solution, inputs.accounts) {
        return None;
    }
    let (tight, helps) = match (&quota, no_fit) {
        (None, true) => (tight(inputs, solution), helps::find(inputs, solution)),
        (Some(_), _) | (None, false) => (Tight::default(), Vec::new()),
    };
    let kind = quota.unwrap_or(if no_fit {
        RefusalKind::NoFit
    } else {
        RefusalKind::ReplacementLimit
    });
    let roles = inputs
        .accounts
        .roles
        .iter()
        .zip(inputs.stages)
        .zip(&solution.found);
    let roles = roles.map(|((account, stages), found)| {
        (
            account.role.name.clone(),
            funnel(inputs.site, account, stages, found),
        )
    });
    Some(Refusal {
        kind,
        roles: roles.collect(),
        tight,
        helps,
    })
}

fn funnel(site: &Site, account: &Account<'_>, stages: &Stages, found: &Found) -> Funnel {
    let role = account.role;
    Funnel {
        key: role.topology_key.clone(),
        selector: role.selector.clone(),
        want: role.want,
        have: account.have(),
        placeable: account.have().saturating_add(found.grown),
        matched: count(stages.matched.count_ones(..)),
        with_topology: stages.with_topology,
        eligible: stages.eligible,
        free: count(stages.free.count_ones(..)),
        domains: stages.domains(site, role.topology_key.as_ref()),
        short: account.growth - found.grown + account.replaceable - found.replaced,
    }
}

/// The source side of a minimum cut, as roles, domains and hosts.
///
/// Everything that the roles short of hosts could reach by rerouting is on that side; what flows out of it is full:
/// spots in use that nobody on that side could vacate, hosts in use, and failed members' domains where the limit of
/// replacements binds. The pools hold one host more per spot than others can use, and as many spots per path as the
/// request needs hosts; so a cut through them is one through all hosts (a pool that left something out has something
/// unused, and then more could flow).
fn tight(inputs: &Inputs<'_>, solution: &Solution) -> Tight {
    let Solution {
        demands,
        layout,
        found,
        replacements_only: _,
    } = solution;
    let unmet = demands
        .iter()
        .zip(found)
        .enumerate()
        .filter(|(_, (demand, found))| found.replaced < demand.replace || found.grown < demand.growth);
    let side = layout
        .network
        .reachable(&sources(layout, unmet.map(|(role, _)| role)));
    let inside = |node: u32| side[super::solve::to_usize(node)];
    let mut tight = Tight {
        deficit: solution.deficit(),
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
        let account = &inputs.accounts.roles[role];
        tight.roles.push(account.role.name.clone());
        tight.demand = tight.demand.saturating_add(account.demand());
        tight.waiting += layout.failed_cut(role, inside);
        for (spot, nodes) in demands[role].spots.iter().zip(&nodes.spots) {
            if !inside(nodes.from) || inside(nodes.node) || !layout.network.is_full(nodes.edge) {
                continue;
            }
            let host =
                super::network::used_offer(&layout.network, nodes).and_then(|index| spot.offers.get(index));
            match domain_text(inputs.site, account, spot.domain) {
                Some(domain) => drop(domains.insert((account.role.name.clone(), domain))),
                None => hosts.extend(host.and_then(|offer| name(inputs.site, offer.host))),
            }
            debug_assert!(spot.domain != NONE || account.role.topology_key.is_none());
        }
    }
    let used = layout
        .hosts
        .iter()
        .filter(|(_, node, edge)| inside(*node) && layout.network.is_full(*edge));
    hosts.extend(used.filter_map(|(host, _, _)| name(inputs.site, *host)));
    tight.domains = domains.into_iter().collect();
    tight.hosts = hosts.into_iter().collect();
    tight
}

fn name(site: &Site, host: crate::site::Slot) -> Option<HostName> {
    site.row(host).map(|row| row.id.name.clone())
}
