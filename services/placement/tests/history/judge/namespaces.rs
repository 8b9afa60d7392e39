//! The namespaces from which replacements come.

use std::collections::BTreeSet;

use placement::{Decision, ReleaseReason, Request};

use super::domains::{is_free, is_occupied};
use super::{is_live, rule, see};
use crate::world::{Mem, World};

/// A replacement leaves the cluster's namespaces only if nobody there would do.
pub(super) fn judge(
    world: &World,
    index: usize,
    request: &Request,
    decision: &Decision,
) -> Result<(), String> {
    let wanted = |mem: &&Mem| request.roles.iter().any(|role| role.name == mem.record.role);
    let members = world.tenants[index]
        .members
        .iter()
        .filter(wanted)
        .filter(|mem| is_live(&mem.record));
    let stays = |mem: &&Mem| {
        let released = decision
            .release
            .iter()
            .find(|release| release.host == mem.record.host);
        released.is_none_or(|release| matches!(release.reason, ReleaseReason::Failed(_)))
    };
    let home: BTreeSet<_> = members
        .filter(stays)
        .map(|mem| mem.record.host.name.namespace().clone())
        .collect();
    for take in decision.take.iter().filter(|take| take.replaces.is_some()) {
        if home.contains(take.host.name.namespace()) {
            continue;
        }
        let Some(role) = request.roles.iter().find(|role| role.name == take.role) else {
            continue;
        };
        let seen = see(world, index, role, decision);
        for host in world
            .site
            .hosts()
            .filter(|host| home.contains(host.id.name.namespace()))
        {
            let taken = decision.take.iter().any(|other| other.host == host.id);
            let there = role.topology_key.as_ref().and_then(|key| host.labels.get(key));
            let open = there.is_none()
                || !is_occupied(world, index, role, there)
                    && seen.iter().all(|other| other.domain.as_ref() != there)
                    && decision
                        .take
                        .iter()
                        .all(|other| other.role != role.name || other.domain.as_ref() != there);
            rule(taken || !open || !is_free(world, role, &host), || {
                format!("{} is outside, {} would do", take.host, host.id)
            })?;
        }
    }
    Ok(())
}
