//! The decision, in this order:
//!
//! 1. `role_needs`: what each role has and lacks, with `located_member` (a member and its host), `pairs` (replacements and the members that they
//!    replace), `surplus_members` (which members a role releases when it shrinks) and `quota`.
//! 2. `pool`: the hosts that a role could get, with `score` (which is better, by `preferences`), `best` and `spots` (the few that matter).
//! 3. `solve`: the best placement, and in which namespace; then `replacement_order`, so that of failed members the more pressing are
//!    replaced. What a role asks is a `demand`, with the domains of the hierarchy as a `tree`, and `spread` computes how unevenly
//!    members are spread over these; all demands are one `network` with a `price`
//!    for each choice, and `demand_order` sends the `flow` through it; the outcome is a `solution`.
//! 4. `role_outcome`: what each role keeps, takes and releases.
//! 5. `reports`: what people should know of the members.
//! 6. `refuse`: why a role does not get what it wants, with `bottleneck` (the proof) and `helps` and `more_hosts` (what would help).

mod best;
mod bottleneck;
mod demand;
mod demand_order;
mod flow;
mod helps;
mod located_member;
mod more_hosts;
mod network;
mod pairs;
mod pool;
mod preferences;
mod price;
mod quota;
mod refuse;
mod replacement_order;
mod reports;
mod role_needs;
mod role_outcome;
mod score;
mod solution;
mod solve;
mod spots;
mod spread;
mod surplus_members;
mod tree;

use std::collections::BTreeSet;

use vocabulary::Namespace;

use pool::FilteredHosts;
pub use role_needs::replacement_limit;
use role_needs::{ClusterNeeds, RoleNeeds};
use solution::{Found, Solution};
use solve::Inputs;

use crate::decision::{Decision, Report};
use crate::request::{FailReason, Member, MemberState, Request};
use crate::site::{Site, at};

/// Decides what a cluster keeps, gets and releases.
///
/// - A member that has not failed, is not surplus and is not to be moved stays, in its role, whatever its host is like now.
/// - A role with more members than it wants releases exactly the surplus, whatever else happens.
/// - Failed members are replaced, as many as the limits and the hosts allow. One member of a cluster at a time is moved, if it is
///   asked to be and the limits have room; it stays until its replacement is bound.
/// - Missing members of all roles are found together or not at all. If there are hosts that complete every role (within
///   the limits of replacement) they are found; otherwise [`Decision::refusal`] proves that there are none.
/// - Among all possible placements the best is taken: in one namespace where that is possible, then the most even
///   spread over the policy's hierarchy, then leaving hosts that other roles match, then inspected hosts, then powered and healthy ones,
///   then by name. For one role that is the optimum in this order; for several it is the optimum of the sums over
///   the roles (`tests/optimum` compares it with a linear program; where hosts of one topology domain are in several
///   domains of the hierarchy, or a role grows while one of its failed members is replaced in that one's topology domain,
///   the spread is within a few per cent of it).
///
/// The hosts of `members` are never taken again, whether the site knows that they are held or not; a host that was made
/// again under the name of one that is gone is another host, and can be taken for it.
#[must_use]
pub fn decide(site: &Site, request: &Request, members: &[Member]) -> Decision {
    decide_without(site, request, members, Withheld::NOTHING)
}

/// What a decision does not take though it could: there is no room for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Withheld {
    /// All roles together get no more replacements than so many; those go to the most pressing that can be replaced.
    pub replacements_above: u32,
    /// No role gets more members than it has. What the request wants counts as ever for quotas and limits.
    pub growth: bool,
}

impl Withheld {
    /// All is taken that can be.
    pub const NOTHING: Self = Self {
        replacements_above: u32::MAX,
        growth: false,
    };
    /// Members are replaced, and none is taken besides.
    pub const GROWTH: Self = Self {
        growth: true,
        ..Self::NOTHING
    };
}

/// [`decide`], but for what is withheld.
#[must_use]
pub fn decide_without(site: &Site, request: &Request, members: &[Member], withheld: Withheld) -> Decision {
    let mut needs = ClusterNeeds::new(site, request, members);
    if withheld.growth {
        needs.withhold_growth();
    }
    let filtered: Vec<FilteredHosts> = needs
        .roles
        .iter()
        .map(|role_needs| FilteredHosts::new(site, request, role_needs.role))
        .collect();
    let own = solve::own(site, members);
    let solve = |needs: &ClusterNeeds<'_>| {
        let inputs = Inputs {
            site,
            members,
            needs,
            filtered: &filtered,
            own: &own,
        };
        inputs.solve_in_best_namespace(&kept_namespaces(needs))
    };
    let mut ordered = replacement_order::solve(site, &mut needs, &filtered, solve);
    if ordered.solution.replacements() > withheld.replacements_above {
        ordered.limit_replacements(site, &mut needs, withheld.replacements_above);
        ordered = replacement_order::solve(site, &mut needs, &filtered, solve);
    }
    let solution = &ordered.solution;
    let inputs = Inputs {
        site,
        members,
        needs: &needs,
        filtered: &filtered,
        own: &own,
    };

    let mut decision = Decision {
        release: needs.release.clone(),
        ..Decision::default()
    };
    for (role_needs, found) in needs.roles.iter().zip(ordered.found()) {
        role_outcome::add(site, role_needs, found, &mut decision);
    }
    reports::add(site, request, &needs, members, solution, &mut decision);
    decision.funnels = refuse::funnels(&inputs, solution, &request.networks);
    decision.refusal = refuse::refusal(&inputs, request, solution, &decision.funnels);
    sort(&mut decision);
    decision
}

/// The reports of [`decide`] for a cluster for which there is nothing to decide: it has what the request wants, and nobody is to
/// be replaced. None where there is something to decide.
///
/// It reads the members' hosts only, however many the site has.
#[must_use]
pub fn reports_without_decision(site: &Site, request: &Request, members: &[Member]) -> Option<Vec<Report>> {
    let needs = ClusterNeeds::new(site, request, members);
    needs
        .need_no_decision()
        .then(|| reports::of_members(site, request, &needs))
}

/// Whether a member that stays has failed or is to be moved.
pub(crate) fn needs_replacement(site: &Site, request: &Request, members: &[Member]) -> bool {
    ClusterNeeds::new(site, request, members)
        .roles
        .iter()
        .any(|role_needs| !role_needs.lost.is_empty() || !role_needs.leaving.is_empty())
}

/// The namespaces of the members that stay, well or not.
fn kept_namespaces<'a>(needs: &'a ClusterNeeds<'a>) -> Vec<&'a Namespace> {
    let namespaces: BTreeSet<&Namespace> = needs
        .roles
        .iter()
        .flat_map(RoleNeeds::staying)
        .map(|known| known.member.host.name.namespace())
        .collect();
    namespaces.into_iter().collect()
}

fn sort(decision: &mut Decision) {
    let Decision {
        keep,
        take,
        release,
        reports,
        funnels: _,
        refusal: _,
    } = decision;
    keep.sort();
    take.sort();
    release.sort();
    reports.sort();
}

/// Why a member must be replaced, or None. `in_error_for` is how long its host has been in error, if it is.
///
/// A host that the site does not have counts as gone; ask only for a site whose inventory is complete.
#[must_use]
pub fn failure(
    site: &Site,
    role: &crate::request::Role,
    member: &Member,
    in_error_for: Option<std::time::Duration>,
) -> Option<FailReason> {
    let Some(row) = site.slot_of(&member.host).and_then(|slot| site.row(slot)) else {
        return Some(FailReason::Gone);
    };
    if row.is_marked_failed() {
        return Some(FailReason::MarkedFailed);
    }
    // The consumer of a bound member is expected: Cluster API chooses hosts by the labels.
    if member.state == MemberState::Claimed && row.consumer.is_some() {
        return Some(FailReason::UsedBeforeLabelled);
    }
    if member.state == MemberState::Claimed && row.is_write_refused() {
        return Some(FailReason::WriteRefused);
    }
    let too_long = role
        .replace_after_error
        .zip(in_error_for)
        .is_some_and(|(limit, since)| since >= limit);
    let asked = row.is_to_be_moved().then_some(FailReason::MoveRequested);
    too_long.then_some(FailReason::InError).or(asked)
}

/// Every reason why a host cannot be claimed for a role of a request, in order; empty when it can. Whether its domain is
/// used up by a member is not a reason of the host; the decision's refusal states that.
#[must_use]
pub fn explain(
    site: &Site,
    request: &Request,
    role: &crate::request::Role,
    host: &vocabulary::HostName,
) -> Vec<crate::ineligible::Ineligible> {
    match site.get(host) {
        Some(host) => crate::ineligible::all_reasons(&host, site.holder(&host.id), site, request, role),
        None => vec![crate::ineligible::Ineligible::NotFound],
    }
}

/// Whether all that is demanded was found, and nobody waits for a later decision.
fn is_satisfied(solution: &Solution, needs: &ClusterNeeds<'_>) -> bool {
    let nobody_waits = |(role_needs, found): (&RoleNeeds<'_>, &Found)| {
        role_needs.lost.len() <= at(role_needs.replaceable)
            && role_needs.leaving.len() <= at(found.moved)
            && role_needs.postponed().next().is_none()
    };
    solution.is_complete() && needs.roles.iter().zip(&solution.found).all(nobody_waits)
}
