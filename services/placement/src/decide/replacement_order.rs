//! Which failed members are replaced first, where some of them must wait: the more pressing ones.
//!
//! A host in the domain of a failed member can replace that one only. The best hosts may be those, though any host could
//! replace a more pressing member. So it is known only from a solution whom a role's replacements are for, and other solutions are tried
//! where less pressing members are replaced than some that wait.

use std::collections::BTreeSet;

use vocabulary::LabelValue;

use super::located_member::LocatedMember;
use super::pool::FilteredHosts;
use super::role_needs::{ClusterNeeds, Gate, Pressing, RoleNeeds, count};
use super::role_outcome::assign_replacements;
use super::solution::{Choice, Found, Solution};
use crate::site::{Site, at};

/// Maximum number of other solutions that are tried. There are more only where many members have failed at once.
const MAX_SOLUTIONS: usize = 32;
/// Maximum number of other orders of the roles that are tried.
const MAX_ROLE_ORDERS: usize = 8;

/// A solution, and who is replaced in it.
pub(crate) struct Ordered {
    pub(crate) solution: Solution,
    /// What is decided instead: it finds as much and replaces more pressing members of the same roles.
    preferred: Option<Solution>,
    /// Whether the roles grow.
    grows: bool,
}

impl Ordered {
    fn new<'a>(
        site: &Site,
        needs: &mut ClusterNeeds<'a>,
        solve: impl Fn(&ClusterNeeds<'a>) -> Solution,
    ) -> Self {
        let solution = solve(needs);
        let grows = needs.quota.is_none() && solution.grows();
        let preferred = prefer(site, needs, &solution, grows, solve);
        Self {
            solution,
            preferred,
            grows,
        }
    }

    fn decided(&self) -> &Solution {
        self.preferred.as_ref().unwrap_or(&self.solution)
    }

    /// What is decided for each role.
    pub(crate) fn found(&self) -> &[Found] {
        self.decided().decided(self.grows)
    }

    /// Lets the cluster get no more than `most` replacements: of the members that are replaced the most pressing, over all roles, so that a
    /// member for which there is no host takes none of them.
    pub(crate) fn limit_replacements(&self, site: &Site, needs: &mut ClusterNeeds<'_>, most: u32) {
        let replaced = replaced(site, needs, self.found());
        let roles = replaced.iter().enumerate();
        let mut pressing: Vec<(Pressing, usize)> = roles
            .flat_map(|(role, replaced)| replaced.iter().map(move |(pressing, _)| (*pressing, role)))
            .collect();
        pressing.sort_unstable();
        let left = most.saturating_sub(count(pressing.len()));
        pressing.truncate(at(most));
        for (role, role_needs) in needs.roles.iter_mut().enumerate() {
            let share = pressing.iter().filter(|(_, of)| *of == role).count();
            role_needs.may_move = role_needs.may_move && left > 0;
            role_needs.limit_replacements(count(share));
        }
    }
}

/// Solves so that of the lost members that cannot all be replaced the most pressing are.
///
/// The roles' replacements have turns, and whose they are is assumed to be whose turn it is. Where that is not so, a role's host may be
/// missing for a more pressing member of another one; then other turns are tried.
pub(crate) fn solve<'a>(
    site: &Site,
    needs: &mut ClusterNeeds<'a>,
    filtered: &[FilteredHosts],
    solve: impl Fn(&ClusterNeeds<'a>) -> Solution,
) -> Ordered {
    let mut best = Ordered::new(site, needs, &solve);
    let mut failed: BTreeSet<Overtaking> = BTreeSet::new();
    for _ in 0..MAX_ROLE_ORDERS {
        let replaced_now = replaced_if_some_wait(site, needs, &best);
        let mut overtakings = overtakings(site, needs, filtered, &replaced_now).into_iter();
        let Some(next) = overtakings.find(|one| !failed.contains(one)) else {
            break;
        };
        let before: Vec<Vec<Pressing>> = needs
            .roles
            .iter()
            .map(|role_needs| role_needs.turns.clone())
            .collect();
        next.apply(needs, &replaced_now);
        let other = Ordered::new(site, needs, &solve);
        if is_better(
            site,
            needs,
            (other.decided(), other.grows),
            (best.decided(), best.grows),
        ) {
            best = other;
        } else {
            for (role_needs, turns) in needs.roles.iter_mut().zip(before) {
                role_needs.turns = turns;
            }
            failed.insert(next);
        }
    }
    best
}

/// Lets a waiting member take the turn before that of a less pressing member of another role.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Overtaking {
    pressing: Pressing,
    role: usize,
    other: usize,
}

impl Overtaking {
    fn apply(&self, needs: &mut ClusterNeeds<'_>, replaced: &[Replaced]) {
        let Self {
            pressing,
            role,
            other,
        } = self;
        // `role` gets the next turn, for that member. The turns of `other` are set to the members that it has replaced.
        if let Some(turn) = needs.roles[*role].turns.get_mut(replaced[*role].len()) {
            *turn = *pressing;
        }
        let turns = needs.roles[*other].turns.iter_mut();
        let mut in_fact: Vec<Pressing> = replaced[*other].iter().map(|(pressing, _)| *pressing).collect();
        in_fact.sort_unstable();
        turns.zip(in_fact).for_each(|(turn, in_fact)| *turn = in_fact);
    }
}

/// The lost members of a role that are replaced, each with the host that replaces it.
type Replaced = Vec<(Pressing, Choice)>;

fn replaced(site: &Site, needs: &ClusterNeeds<'_>, found: &[Found]) -> Vec<Replaced> {
    let of_role = |(role_needs, found): (&RoleNeeds<'_>, &Found)| {
        let pairs = assign_replacements(site, role_needs, found).into_iter();
        let lost = pairs.filter_map(|(old, by)| {
            let mut lost = role_needs.lost.iter();
            let known = lost.find(|known| known.member.host == *old.host())?;
            Some((RoleNeeds::order(known), by))
        });
        lost.collect()
    };
    needs.roles.iter().zip(found).map(of_role).collect()
}

/// The replaced members of all roles, or an empty list if every role has a replacement in each of its turns.
fn replaced_if_some_wait(site: &Site, needs: &ClusterNeeds<'_>, ordered: &Ordered) -> Vec<Replaced> {
    let mut roles = needs.roles.iter().zip(ordered.found());
    if roles.any(|(role_needs, found)| found.replaced < role_needs.replaceable) {
        replaced(site, needs, ordered.found())
    } else {
        Vec::new()
    }
}

/// Members that wait although a host that could replace them replaces a less pressing member of another role.
fn overtakings(
    site: &Site,
    needs: &ClusterNeeds<'_>,
    filtered: &[FilteredHosts],
    replaced: &[Replaced],
) -> Vec<Overtaking> {
    let mut overtakings = Vec::new();
    for (role, (role_needs, own)) in needs.roles.iter().zip(replaced).enumerate() {
        if own.len() >= at(role_needs.replaceable) {
            continue;
        }
        let mut waiting: Vec<Pressing> = role_needs
            .lost
            .iter()
            .filter(|known| role_needs.may_be_replaced(known))
            .map(RoleNeeds::order)
            .collect();
        for (pressing, _) in own {
            if let Some(place) = waiting.iter().position(|one| one == pressing) {
                waiting.remove(place);
            }
        }
        waiting.dedup();
        let key = role_needs.role.topology_key.as_ref();
        let could_have = |by: &Choice| {
            let domain = key.and_then(|key| site.label(key, by.host));
            filtered[role].free.contains(at(by.host))
                && domain.is_none_or(|domain| !role_needs.closed.contains(&domain))
        };
        for pressing in waiting {
            let others = replaced.iter().enumerate().filter(|(other, _)| *other != role);
            let others = others.filter(|(_, replaced)| {
                let mut less_pressing = replaced.iter().filter(|(other, _)| *other > pressing);
                less_pressing.any(|(_, by)| could_have(by))
            });
            overtakings.extend(others.map(|(other, _)| Overtaking {
                pressing,
                role,
                other,
            }));
        }
    }
    overtakings.sort();
    overtakings
}

/// Whether a solution replaces as many members as another one and more pressing ones, moves the same, takes no more hosts outside the
/// cluster's namespaces, and lets all roles grow if the other one does.
fn is_better(
    site: &Site,
    needs: &ClusterNeeds<'_>,
    (one, grows): (&Solution, bool),
    (other, other_grows): (&Solution, bool),
) -> bool {
    let moved =
        |solution: &Solution| -> Vec<u32> { solution.found.iter().map(|found| found.moved).collect() };
    let pressing = |solution: &Solution, grows| -> Vec<Pressing> {
        let replaced = replaced(site, needs, solution.decided(grows));
        let mut pressing: Vec<Pressing> = replaced
            .into_iter()
            .flatten()
            .map(|(pressing, _)| pressing)
            .collect();
        pressing.sort_unstable();
        pressing
    };
    (!other_grows || grows)
        && one.replacements() == other.replacements()
        && moved(one) == moved(other)
        && one.outside(grows) <= other.outside(grows)
        && pressing(one, grows) < pressing(other, other_grows)
}

/// Domains without whose hosts a member as pressing as this may be replaced.
type Attempt = (Pressing, Vec<LabelValue>);

/// A solution that replaces as many members of each role and more pressing ones; None if there is none. `grows`: the roles grow by the
/// other one. `needs` stay as they are.
fn prefer<'a>(
    site: &Site,
    needs: &mut ClusterNeeds<'a>,
    solution: &Solution,
    grows: bool,
    solve: impl Fn(&ClusterNeeds<'a>) -> Solution,
) -> Option<Solution> {
    let mut better: Option<Solution> = None;
    let mut closed: Vec<(usize, LabelValue, Gate)> = Vec::new();
    let mut failed: BTreeSet<(usize, Attempt)> = BTreeSet::new();
    for _ in 0..MAX_SOLUTIONS {
        let now = better.as_ref().unwrap_or(solution);
        let roles = needs.roles.iter().zip(now.decided(grows)).enumerate();
        let mut attempts = roles.flat_map(|(role, (role_needs, found))| {
            let attempts = attempts(site, role_needs, found).into_iter();
            attempts.map(move |attempt| (role, attempt))
        });
        let Some((role, attempt)) = attempts.find(|attempt| !failed.contains(attempt)) else {
            break;
        };
        let role_needs = &mut needs.roles[role];
        let gates: Vec<(LabelValue, Gate)> = attempt
            .1
            .iter()
            .filter_map(|domain| role_needs.gates.remove_entry(domain))
            .collect();
        role_needs.closed.extend(attempt.1.iter().cloned());
        let next = solve(needs);
        let is_as_good = counts(&next, grows) == counts(now, grows);
        let next_grows = grows && next.grows();
        if is_as_good && is_better(site, needs, (&next, next_grows), (now, grows)) {
            closed.extend(gates.into_iter().map(|(domain, gate)| (role, domain, gate)));
            better = Some(next);
        } else {
            let role_needs = &mut needs.roles[role];
            for (domain, gate) in gates {
                open(role_needs, domain, gate);
            }
            failed.insert((role, attempt));
        }
    }
    for (role, domain, gate) in closed {
        open(&mut needs.roles[role], domain, gate);
    }
    better
}

/// How many members of each role are replaced.
fn counts(solution: &Solution, grows: bool) -> Vec<u32> {
    let found = solution.decided(grows).iter();
    found.map(|found| found.replaced).collect()
}

fn open(role_needs: &mut RoleNeeds<'_>, domain: LabelValue, gate: Gate) {
    role_needs.closed.remove(&domain);
    role_needs.gates.insert(domain, gate);
}

/// Where a member waits though less pressing ones are replaced by hosts in their own domains: for each of those, its domain and the
/// domains of all less pressing ones that wait. A solution that replaces as many members without these domains replaces a more
/// pressing one.
fn attempts(site: &Site, role_needs: &RoleNeeds<'_>, found: &Found) -> Vec<Attempt> {
    if role_needs.lost.len() < 2 {
        return Vec::new();
    }
    let replaced = assign_replacements(site, role_needs, found);
    let by = |known: &LocatedMember<'_>| {
        let mut pairs = replaced.iter();
        pairs
            .find(|(old, _)| *old.host() == known.member.host)
            .map(|(_, by)| by.gate)
    };
    let candidates = || {
        role_needs
            .lost
            .iter()
            .filter(|known| role_needs.may_be_replaced(known))
    };
    let waiting = candidates().filter(|known| by(known).is_none());
    let waiting: BTreeSet<_> = waiting.map(RoleNeeds::order).collect();
    let mut attempts = Vec::new();
    for order in waiting {
        let own: BTreeSet<_> = candidates()
            .filter(|known| RoleNeeds::order(known) <= order)
            .filter_map(|known| known.domain.as_ref())
            .collect();
        let later = || {
            candidates().filter_map(|known| {
                let domain = known.domain.as_ref().filter(|domain| {
                    RoleNeeds::order(known) > order
                        && !own.contains(domain)
                        && role_needs.gates.contains_key(domain.as_str())
                })?;
                Some((domain, by(known)))
            })
        };
        let unused: Vec<&LabelValue> = later()
            .filter(|(_, by)| by.is_none())
            .map(|(domain, _)| domain)
            .collect();
        let used: Vec<&LabelValue> = later()
            .filter(|(_, by)| by.is_some_and(|gate| gate != Gate::Open))
            .map(|(domain, _)| domain)
            .collect();
        for one in used.iter().rev() {
            let unused = unused.iter().filter(|domain| !used.contains(domain));
            let domains = std::iter::once(one).chain(unused);
            attempts.push((order, domains.map(|domain| (*domain).clone()).collect()));
        }
    }
    attempts
}
