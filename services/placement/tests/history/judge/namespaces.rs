//! The namespaces from which replacements come.

use std::collections::BTreeSet;

use placement::{Decision, Namespace, Request};

use super::domains::{is_free, is_occupied};
use super::{rule, see};
use crate::world::World;

/// The namespaces of the members that stay, and of those that are replaced now.
pub(super) fn home(world: &World, index: usize, decision: &Decision) -> BTreeSet<Namespace> {
    let members = world.tenants[index].members.iter().map(|mem| &mem.record.host);
    let stays = members.filter(|host| {
        let is_kept = decision.keep.iter().any(|keep| keep.host == **host);
        let mut replaced = decision.take.iter().filter_map(|take| take.replaces.as_ref());
        is_kept || replaced.any(|old| old.host() == *host)
    });
    stays.map(|host| host.name.namespace().clone()).collect()
}

/// A replacement leaves the cluster's namespaces only if nobody there would do.
pub(super) fn judge(
    world: &World,
    index: usize,
    request: &Request,
    decision: &Decision,
) -> Result<(), String> {
    let home = home(world, index, decision);
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
            rule(taken || !open || !is_free(world, index, role, &host), || {
                format!("{} is outside, {} would do", take.host, host.id)
            })?;
        }
    }
    Ok(())
}
