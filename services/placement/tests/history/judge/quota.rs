//! The quota of a namespace.

use placement::{Decision, HostId, MemberState, Replaces, Request};

use super::rule;
use crate::world::{Mem, World};

/// More than before are held only within the quota, in which each pair that stays takes two places.
pub(super) fn judge(
    world: &World,
    index: usize,
    request: &Request,
    decision: &Decision,
) -> Result<(), String> {
    let namespace = request.cluster.namespace();
    let Some(quota) = world.site.policy().quotas.get(namespace) else {
        return Ok(());
    };
    let others = world
        .tenants
        .iter()
        .enumerate()
        .filter(|(other, _)| *other != index);
    let held = |mem: &&Mem| mem.record.state != MemberState::Releasing;
    let others: usize = others
        .map(|(_, tenant)| tenant.members.iter().filter(held).count())
        .sum();
    let restored = world.tenants[index]
        .members
        .iter()
        .filter(|mem| mem.record.requested && decision.keep.iter().any(|keep| keep.host == mem.record.host));
    // A bound one whose move was withdrawn is one more beside the old one.
    let is_kept = |host: &HostId| decision.keep.iter().find(|keep| keep.host == *host);
    let doubled = world.tenants[index].members.iter().filter(|mem| {
        let stays_alone = is_kept(&mem.record.host).is_some_and(|keep| keep.replaces.is_none());
        let Some(Replaces::Beside(old)) = &mem.record.replaces else {
            return false;
        };
        stays_alone && is_kept(old).is_some()
    });
    let swapped = decision.release.iter().filter(|release| {
        world.tenants[index]
            .members
            .iter()
            .any(|mem| mem.record.host == release.host && !mem.record.requested)
    });
    let grown = decision
        .take
        .iter()
        .filter(|take| take.replaces.is_none())
        .count();
    let more = grown > 0 || restored.count() + doubled.count() > swapped.count();
    let wanted: usize = request.roles.iter().map(|role| role.want as usize).sum();
    let pairs = decision.keep.iter().filter(|keep| match &keep.replaces {
        Some(Replaces::Beside(old)) => is_kept(old).is_some(),
        Some(Replaces::Alone(_)) | None => false,
    });
    let pairs = pairs.count();
    rule(!more || others + wanted + pairs <= *quota as usize, || {
        format!("{others} and {wanted} and {pairs} that are moved are more than {quota}")
    })
}
