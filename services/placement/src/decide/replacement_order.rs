//! Which failed members are replaced first, where the limits let some of them wait: the more pressing ones.
//!
//! A host in the domain of a failed member can replace that one only. The best hosts may be those, though any host could
//! replace a more pressing member.

use std::collections::BTreeSet;

use vocabulary::LabelValue;

use super::assign_replacements;
use super::known::Known;
use super::role_needs::{Account, Accounts, Gate};
use super::solution::{Found, Solution};
use crate::request::FailReason;
use crate::site::Site;

/// How many other solutions are tried. There are more only where many members have failed at once.
const MOST_TRIED: usize = 32;

/// How pressing the members are, and domains without whose hosts one of them may be replaced.
type Attempt = ((bool, Option<FailReason>), Vec<LabelValue>);

/// A solution that finds as much and replaces more pressing members; None if there is none. `grows`: the roles grow by the other one.
/// `accounts` stay as they are.
pub(crate) fn prefer<'a>(
    site: &Site,
    accounts: &mut Accounts<'a>,
    solution: &Solution,
    grows: bool,
    solve: impl Fn(&Accounts<'a>) -> Solution,
) -> Option<Solution> {
    let mut better: Option<Solution> = None;
    let mut closed: Vec<(usize, LabelValue, Gate)> = Vec::new();
    let mut failed: BTreeSet<(usize, Attempt)> = BTreeSet::new();
    for _ in 0..MOST_TRIED {
        let now = better.as_ref().unwrap_or(solution);
        let roles = accounts.roles.iter().zip(now.decided(grows)).enumerate();
        let mut attempts = roles.flat_map(|(role, (account, found))| {
            let attempts = attempts(site, account, found).into_iter();
            attempts.map(move |attempt| (role, attempt))
        });
        let Some((role, attempt)) = attempts.find(|attempt| !failed.contains(attempt)) else {
            break;
        };
        let account = &mut accounts.roles[role];
        let gates: Vec<(LabelValue, Gate)> = attempt
            .1
            .iter()
            .filter_map(|domain| account.gates.remove_entry(domain))
            .collect();
        account.closed.extend(attempt.1.iter().cloned());
        let next = solve(accounts);
        if next.replaces_as_many_as(solution, grows) {
            closed.extend(gates.into_iter().map(|(domain, gate)| (role, domain, gate)));
            better = Some(next);
        } else {
            let account = &mut accounts.roles[role];
            for (domain, gate) in gates {
                open(account, domain, gate);
            }
            failed.insert((role, attempt));
        }
    }
    for (role, domain, gate) in closed {
        open(&mut accounts.roles[role], domain, gate);
    }
    better
}

fn open(account: &mut Account<'_>, domain: LabelValue, gate: Gate) {
    account.closed.remove(&domain);
    account.gates.insert(domain, gate);
}

/// Where a member waits though less pressing ones are replaced by hosts in their own domains: for each of those, its domain and the
/// domains of all less pressing ones that wait. A solution that replaces as many members without these domains replaces a more
/// pressing one.
fn attempts(site: &Site, account: &Account<'_>, found: &Found) -> Vec<Attempt> {
    if account.lost.len() < 2 {
        return Vec::new();
    }
    let replaced = assign_replacements(site, account, found);
    let by = |known: &Known<'_>| {
        let mut pairs = replaced.iter();
        pairs
            .find(|(old, _)| *old.host() == known.member.host)
            .map(|(_, by)| by.gate)
    };
    let candidates = || account.lost.iter().filter(|known| account.may_be_replaced(known));
    let waiting = candidates().filter(|known| by(known).is_none());
    let waiting: BTreeSet<_> = waiting.map(Account::order).collect();
    let mut attempts = Vec::new();
    for order in waiting {
        let own: BTreeSet<_> = candidates()
            .filter(|known| Account::order(known) <= order)
            .filter_map(|known| known.domain.as_ref())
            .collect();
        let later = || {
            candidates().filter_map(|known| {
                let domain = known.domain.as_ref().filter(|domain| {
                    Account::order(known) > order
                        && !own.contains(domain)
                        && account.gates.contains_key(domain.as_str())
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
