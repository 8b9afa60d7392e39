//! One role: which members stay, which go, and in which order.

use placement::{Decision, RefusalKind, ReleaseReason, Replaces, Role};

use super::{Health, Seen, domains, pairs, rule};
use crate::world::World;

/// How pressing it is that a place is released; the smallest first.
fn order(seen: &Seen<'_>, pairs: &[(&Seen<'_>, &Seen<'_>)]) -> (u8, bool, bool) {
    let new = pairs
        .iter()
        .find(|(old, _)| old.id() == seen.id())
        .map(|(_, new)| new);
    // Once the new one of a pair is bound, that serves.
    let (seen, is_old) = match new {
        Some(new) if !new.is_claimed() => (*new, false),
        Some(_) => (seen, true),
        None => (seen, false),
    };
    let on_its_way = is_old || seen.health == Health::Leaving && seen.mem.came_for.is_none();
    let kind = match seen.health {
        Health::Lost => 0,
        Health::Well | Health::Unknown | Health::Leaving => 2 - u8::from(on_its_way),
    };
    // Of the failed the more pressing reason goes before what is claimed.
    (
        kind,
        seen.is_used(),
        seen.health != Health::Lost && !seen.is_claimed(),
    )
}

/// Returns by how many the role wants to grow.
pub(super) fn judge(
    world: &World,
    index: usize,
    role: &Role,
    seen: &[Seen<'_>],
    decision: &Decision,
) -> Result<usize, String> {
    let pairs = pairs(seen);
    let surplus: Vec<&Seen<'_>> = seen
        .iter()
        .filter(|one| one.released == Some(ReleaseReason::Surplus) && !domains::is_withdrawn(seen, one))
        .collect();
    let is_new = |one: &Seen<'_>| pairs.iter().any(|(_, new)| new.id() == one.id());
    let is_old = |one: &Seen<'_>| pairs.iter().any(|(old, _)| old.id() == one.id());
    for (old, new) in &pairs {
        rule(old.kept == new.kept, || {
            format!("of a pair only one stays: {} and {}", old.id(), new.id())
        })?;
    }
    stays_beside(seen, &surplus)?;
    for victim in surplus.iter().filter(|victim| !is_new(victim)) {
        let kept = seen.iter().filter(|other| other.kept && !is_new(other));
        for other in kept.filter(|other| !(growth_waits_for_a_move(decision) && is_old(other))) {
            let (goes, stays) = (order(victim, &pairs), order(other, &pairs));
            rule(goes <= stays, || {
                format!("{} goes before {}", victim.id(), other.id())
            })?;
        }
        if order(victim, &pairs).0 > 0 {
            let lost = seen
                .iter()
                .find(|other| matches!(other.released, Some(ReleaseReason::Failed(_))));
            let lost = lost.filter(|lost| {
                decision
                    .take
                    .iter()
                    .any(|take| take.replaces.as_ref().is_some_and(|old| old.host() == lost.id()))
            });
            rule(lost.is_none(), || {
                format!("{} goes though a failed one is replaced", victim.id())
            })?;
        }
    }
    let kept = seen.iter().filter(|one| one.kept && !is_old(one)).count();
    let replaced = |one: &Seen<'_>| {
        decision
            .take
            .iter()
            .any(|take| take.replaces.as_ref().is_some_and(|old| old.host() == one.id()))
    };
    let lost_now = seen
        .iter()
        .filter(|one| matches!(one.released, Some(ReleaseReason::Failed(_))) && replaced(one))
        .count();
    let places = kept + lost_now;
    let want = role.want as usize;
    rule(places <= want, || {
        format!("{places} places are kept, {want} are wanted")
    })?;
    let has_counted_place = |one: &&Seen<'_>| {
        let has_place = one.kept || one.released == Some(ReleaseReason::Surplus) || replaced(one);
        has_place && !is_old(one) && !one.mem.record.requested && !domains::is_extra(seen, one)
    };
    let counted = seen.iter().filter(has_counted_place).count();
    let at_least = least(want, counted, decision);
    rule(surplus.is_empty() || places >= at_least, || {
        format!("{places} stay of {want}, and some are surplus")
    })?;
    for one in seen {
        // If the place of both is surplus, the new one goes for that.
        let successor = seen
            .iter()
            .find(|new| new.mem.record.replaces == Some(Replaces::Beside(one.id().clone())))
            .filter(|new| new.kept || replaced(new) || new.released == Some(ReleaseReason::Surplus));
        match one.released {
            Some(ReleaseReason::Moved) => {
                let is_there = |new: &Seen<'_>| matches!(new.health, Health::Well | Health::Leaving);
                let bound = successor.is_some_and(|new| !new.is_claimed() && is_there(new));
                rule(bound && one.health == Health::Leaving, || {
                    format!("{} is moved before its replacement is bound", one.id())
                })?;
            }
            Some(ReleaseReason::Failed(_)) => {
                let beside = match &one.mem.record.replaces {
                    Some(Replaces::Beside(old)) => seen.iter().any(|other| other.id() == old),
                    Some(Replaces::Alone(_)) | None => false,
                };
                let has = replaced(one) || successor.is_some() || beside;
                rule(has && one.health == Health::Lost, || {
                    format!("{} is released for nobody", one.id())
                })?;
            }
            Some(ReleaseReason::Surplus) | None => {}
        }
        if let Some(keep) = decision.keep.iter().find(|keep| keep.host == *one.id()) {
            let still = match &keep.replaces {
                None => true,
                Some(Replaces::Alone(_)) => one.is_claimed(),
                Some(Replaces::Beside(_)) => is_new(one),
            };
            rule(still, || {
                format!("{} replaces {:?} still", one.id(), keep.replaces)
            })?;
        }
    }
    domains::judge(world, index, role, seen, decision)?;
    Ok(want - places)
}

/// A kept member comes no earlier in the order than a surplus one; but a pair is not ended for growth that waits for its end.
fn growth_waits_for_a_move(decision: &Decision) -> bool {
    let refusal = decision.refusal.as_ref().map(|refusal| &refusal.kind);
    matches!(refusal, Some(RefusalKind::Quota { moving: 1.., .. }))
}

/// How many stay at least where some are surplus: what the quota has counted, also when it allows no more.
fn least(want: usize, counted: usize, decision: &Decision) -> usize {
    match decision.refusal.as_ref().map(|refusal| &refusal.kind) {
        Some(RefusalKind::Quota { .. }) => want.min(counted),
        Some(RefusalKind::NoFit | RefusalKind::ReplacementLimit) | None => want,
    }
}

/// Nobody who is replaced goes before the replacement is bound: as the simulator remembers it, whatever the ledger has lost.
fn stays_beside(seen: &[Seen<'_>], surplus: &[&Seen<'_>]) -> Result<(), String> {
    for victim in surplus {
        let comes = |new: &&Seen<'_>| {
            new.kept && new.is_claimed() && new.mem.beside && new.mem.came_for.as_ref() == Some(victim.id())
        };
        rule(!seen.iter().any(|new| comes(&new)), || {
            format!("{} goes before its replacement is bound", victim.id())
        })?;
    }
    Ok(())
}
