//! What one role keeps, takes and releases, from its needs and from what was found for it.

use super::located_member::LocatedMember;
use super::role_needs::{Gate, RoleNeeds, released};
use super::solution::{Choice, Found};
use crate::decision::{Decision, Keep, ReleaseReason, Take};
use crate::request::{FailReason, Replaces};
use crate::site::{Site, at};

/// Adds what one role keeps, takes and releases to the decision.
pub(crate) fn add(site: &Site, role_needs: &RoleNeeds<'_>, found: &Found, decision: &mut Decision) {
    let replaced = assign_replacements(site, role_needs, found);
    let is_replaced =
        |known: &LocatedMember<'_>| replaced.iter().any(|(old, _)| old.host() == &known.member.host);
    for known in role_needs.staying() {
        match known.failed {
            Some(
                reason @ (FailReason::Gone
                | FailReason::MarkedFailed
                | FailReason::InError
                | FailReason::UsedBeforeLabelled
                | FailReason::WriteRefused),
            ) if is_replaced(known) => {
                let reason = ReleaseReason::Failed(reason);
                decision.release.push(released(known, reason));
            }
            Some(_) | None => decision.keep.push(keep(known)),
        }
    }
    for choice in &found.choices {
        let Some(row) = site.row(choice.host) else {
            continue;
        };
        decision.take.push(Take {
            role: role_needs.role.name.clone(),
            host: row.id.clone(),
            domain: role_needs.domain(site, choice.domain),
            replaces: replaced
                .iter()
                .find(|(_, by)| by == choice)
                .map(|(old, _)| old.clone()),
        });
    }
}

/// Which member each replacement is for. One that uses the domain of a member replaces that member; the others replace the lost
/// in their order, and then the first of those leaving.
pub(crate) fn assign_replacements(
    site: &Site,
    role_needs: &RoleNeeds<'_>,
    found: &Found,
) -> Vec<(Replaces, Choice)> {
    let mut lost: Vec<&LocatedMember<'_>> = role_needs
        .lost
        .iter()
        .filter(|known| role_needs.may_be_replaced(known))
        .collect();
    let mut leaving: Vec<&LocatedMember<'_>> = role_needs.leaving.iter().collect();
    let (open, gated): (Vec<Choice>, Vec<Choice>) =
        found.choices.iter().partition(|choice| choice.gate == Gate::Open);
    let mut pairs = Vec::new();
    let (mut lost_left, mut moves_left) = (found.replaced, found.moved);
    for choice in gated {
        let domain = role_needs.domain(site, choice.domain);
        let (waiting, left) = match choice.gate {
            Gate::Move => (&mut leaving, &mut moves_left),
            Gate::Open | Gate::FailedReplacement | Gate::Failed => (&mut lost, &mut lost_left),
        };
        if let Some(place) = waiting.iter().position(|known| known.domain == domain) {
            pairs.push((replaces(waiting.remove(place)), choice));
            *left = left.saturating_sub(1);
        }
    }
    let lost = lost.into_iter().take(at(lost_left));
    let moved = leaving.into_iter().take(at(moves_left));
    pairs.extend(lost.chain(moved).map(replaces).zip(open));
    pairs
}

/// What a replacement of this member is taken for.
fn replaces(known: &LocatedMember<'_>) -> Replaces {
    let host = known.member.host.clone();
    if known.failed.is_some_and(FailReason::is_failure) {
        Replaces::Alone(host)
    } else {
        Replaces::Beside(host)
    }
}

fn keep(known: &LocatedMember<'_>) -> Keep {
    Keep {
        role: known.member.role.clone(),
        host: known.member.host.clone(),
        domain: known.domain.clone(),
        replaces: known.replaces.clone(),
    }
}
