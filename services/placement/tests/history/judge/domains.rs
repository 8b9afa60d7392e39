//! What is taken is free, and in a domain that nobody else of the role needs.

use std::collections::BTreeSet;

use placement::{Decision, Host, LabelValue, OperationalStatus, Replaces, Role, SipLabels};

use super::{Health, Seen, is_live, rule};
use crate::world::World;

pub(super) fn judge(
    world: &World,
    index: usize,
    role: &Role,
    seen: &[Seen<'_>],
    decision: &Decision,
) -> Result<(), String> {
    let takes: Vec<_> = decision
        .take
        .iter()
        .filter(|take| take.role == role.name)
        .collect();
    for new in seen.iter().filter(|new| new.kept) {
        rule(!is_withdrawn(seen, new), || {
            format!("{} was claimed beside one that is not moved any more", new.id())
        })?;
    }
    let mut used = BTreeSet::new();
    for take in &takes {
        let host = world
            .site
            .get(&take.host.name)
            .filter(|host| host.id == take.host);
        let Some(host) = host else {
            return Err(format!("{} is not there", take.host));
        };
        rule(is_free(world, index, role, &host), || {
            format!("{} is not free", take.host)
        })?;
        let Some(key) = &role.topology_key else { continue };
        let value = host.labels.get(key).cloned();
        rule(
            value.is_some() && value == take.domain && used.insert(value.clone()),
            || format!("{:?} twice", take.domain),
        )?;
        rule(!is_occupied(world, index, role, value.as_ref()), || {
            format!("{} is in the domain of one that is not freed yet", take.host)
        })?;
        // Its one place there is only for who comes instead of somebody there; of several lost ones the others wait.
        let is_old = |other: &Seen<'_>| take.replaces.as_ref().is_some_and(|old| old.host() == other.id());
        let there = || seen.iter().filter(|other| other.domain == value);
        let replaces_lost = there().any(|other| other.health == Health::Lost && is_old(other));
        for other in there() {
            let waits = other.health == Health::Lost && other.kept && replaces_lost;
            rule(waits || is_old(other), || {
                format!("{} is in {}'s domain", take.host, other.id())
            })?;
        }
    }
    Ok(())
}

/// Whether a member was claimed beside one that is not moved any more, and is not bound.
pub(super) fn is_withdrawn(seen: &[Seen<'_>], new: &Seen<'_>) -> bool {
    new.is_claimed() && is_extra(seen, new)
}

/// Whether it was claimed beside one that is not moved any more.
pub(super) fn is_extra(seen: &[Seen<'_>], new: &Seen<'_>) -> bool {
    let Some(Replaces::Beside(old)) = &new.mem.record.replaces else {
        return false;
    };
    seen.iter()
        .any(|other| other.id() == old && other.health == Health::Well)
}

/// For a role of this cluster.
pub(super) fn is_free(world: &World, index: usize, role: &Role, host: &Host) -> bool {
    let cordoned = world
        .site
        .policy()
        .cordoned
        .iter()
        .any(|domain| host.labels.get(&domain.key) == Some(&domain.value));
    role.selector.matches(&host.labels)
        && role
            .topology_key
            .as_ref()
            .is_none_or(|key| host.labels.contains_key(key))
        && !(host.paused
            || host.cordoned
            || host.marked_failed
            || host.replace_requested
            || host.write_refused
            || cordoned)
        && host.operational != OperationalStatus::Error
        && world.tenants[index].networks.is_subset(&host.networks)
        && host.consumer.is_none()
        && host.sip_labels == SipLabels::None
        && world
            .tenants
            .iter()
            .all(|tenant| tenant.members.iter().all(|mem| mem.record.host != host.id))
}

/// By a member that is releasing.
pub(super) fn is_occupied(world: &World, index: usize, role: &Role, domain: Option<&LabelValue>) -> bool {
    let Some(key) = &role.topology_key else {
        return false;
    };
    let members = world.tenants[index].members.iter();
    let mut releasing = members.filter(|mem| mem.record.role == role.name && !is_live(&mem.record));
    releasing.any(|mem| {
        let host = world
            .site
            .get(&mem.record.host.name)
            .filter(|host| host.id == mem.record.host);
        let known = || {
            mem.record
                .domain
                .as_ref()
                .filter(|known| known.key == *key)
                .map(|known| known.value.clone())
        };
        host.map_or_else(known, |host| host.labels.get(key).cloned())
            .as_ref()
            == domain
    })
}
