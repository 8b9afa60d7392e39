//! Which failed members are replaced first, where the limits let some of them wait: the more pressing ones.
//!
//! A host in the domain of a failed member can replace that one only. The best hosts may be those, though any host could
//! replace a more pressing member.

use std::collections::BTreeSet;

use vocabulary::LabelValue;

use super::account::{Account, Accounts, Gate};
use super::assign_replacements;
use super::known::Known;
use super::solution::{Found, Solution};
use crate::site::Site;

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
    let mut needed: BTreeSet<(usize, LabelValue)> = BTreeSet::new();
    loop {
        let now = better.as_ref().unwrap_or(solution);
        let found = if grows { &now.found } else { &now.replacements_only };
        let mut roles = accounts.roles.iter().zip(found).enumerate();
        let early = roles.find_map(|(role, (account, found))| {
            let mut domains = too_early(site, account, found).into_iter();
            let domain = domains.find(|domain| !needed.contains(&(role, domain.clone())))?;
            Some((role, domain))
        });
        let Some((role, domain)) = early else { break };
        let Some(gate) = accounts.roles[role].gates.remove(&domain) else {
            break;
        };
        accounts.roles[role].closed.insert(domain.clone());
        let next = solve(accounts);
        if next.replaces_as_many_as(solution, grows) {
            closed.push((role, domain, gate));
            better = Some(next);
        } else {
            open(&mut accounts.roles[role], domain.clone(), gate);
            needed.insert((role, domain));
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

/// The domains in which hosts replace failed members though a more pressing one waits, the least pressing first.
fn too_early(site: &Site, account: &Account<'_>, found: &Found) -> Vec<LabelValue> {
    let replaced = assign_replacements(site, account, found);
    let by = |known: &Known<'_>| {
        let mut pairs = replaced.iter();
        pairs
            .find(|(old, _)| *old.host() == known.member.host)
            .map(|(_, by)| *by)
    };
    let candidates = || account.lost.iter().filter(|known| account.may_be_replaced(known));
    let Some(waiting) = candidates().find(|known| by(known).is_none()) else {
        return Vec::new();
    };
    let waiting = Account::order(waiting);
    let later = candidates()
        .rev()
        .take_while(|known| Account::order(known) > waiting);
    let gated = later.filter(|known| by(known).is_some_and(|by| by.gate != Gate::Open));
    gated.filter_map(|known| known.domain.clone()).collect()
}
