//! Why a request does not fit: funnels, and the bottleneck from the minimum cut.

use std::collections::{BTreeMap, BTreeSet};

use vocabulary::{NetworkId, RoleName};

use super::pool::FilteredHosts;
use super::role_needs::{RoleNeeds, count};
use super::solution::{Found, Solution};
use super::solve::Inputs;
use super::{bottleneck, helps};
use crate::decision::{Funnel, Refusal, RefusalKind, Tight};
use crate::request::Request;
use crate::site::Site;

pub(crate) fn refusal(
    inputs: &Inputs<'_>,
    request: &Request,
    solution: &Solution,
    funnels: &BTreeMap<RoleName, Funnel>,
) -> Option<Refusal> {
    let no_fit = !solution.is_complete();
    let quota = &inputs.needs.quota;
    if quota.is_none() && super::is_satisfied(solution, inputs.needs) {
        return None;
    }
    let (tight, helps) = match (quota, no_fit) {
        (None, true) => {
            let tight = bottleneck::tight(inputs, solution);
            let helps = helps::find(inputs, request, solution, &tight);
            (tight, helps)
        }
        (Some(_), _) | (None, false) => (Tight::default(), Vec::new()),
    };
    let kind = quota.clone().unwrap_or(if no_fit {
        RefusalKind::NoFit
    } else {
        RefusalKind::ReplacementLimit
    });
    Some(Refusal {
        kind,
        roles: funnels.clone(),
        tight,
        helps,
    })
}

/// How many hosts are left for each role after each condition.
pub(crate) fn funnels(
    inputs: &Inputs<'_>,
    solution: &Solution,
    networks: &BTreeSet<NetworkId>,
) -> BTreeMap<RoleName, Funnel> {
    let roles = inputs.needs.roles.iter();
    roles
        .zip(inputs.filtered)
        .zip(
            solution
                .missing()
                .into_iter()
                .zip(&solution.found)
                .zip(&solution.demands),
        )
        .map(|((role_needs, filtered), ((missing, found), demand))| {
            let funnel = funnel(
                inputs.site,
                role_needs,
                filtered,
                (found, missing),
                demand.pool.domains,
                networks,
            );
            (role_needs.role.name.clone(), funnel)
        })
        .collect()
}

fn funnel(
    site: &Site,
    role_needs: &RoleNeeds<'_>,
    filtered: &FilteredHosts,
    (found, missing): (&Found, u32),
    domains: Option<u32>,
    networks: &BTreeSet<NetworkId>,
) -> Funnel {
    let role = role_needs.role;
    let (networks, without_address) = if missing > 0 {
        let without_address = filtered.without_address(site, role.topology_key.as_ref(), networks);
        (networks.clone(), without_address)
    } else {
        (BTreeSet::new(), 0)
    };
    Funnel {
        key: role.topology_key.clone(),
        selector: role.selector.clone(),
        want: role.want,
        have: role_needs.have(),
        placeable: role_needs.have().saturating_add(found.grown),
        matched: count(filtered.matched.count_ones(..)),
        with_topology: filtered.with_topology,
        networks,
        without_address,
        eligible: filtered.eligible,
        free: count(filtered.free.count_ones(..)),
        domains: domains.unwrap_or_else(|| filtered.domains(site, role.topology_key.as_ref())),
        short: missing,
    }
}
