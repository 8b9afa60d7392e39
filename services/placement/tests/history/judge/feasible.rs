//! What could be taken is taken.

use placement::{Decision, LabelValue, RefusalKind, Request};

use super::domains::{is_free, is_occupied};
use super::{Health, Seen, limit, pairs, rule, see};
use crate::world::World;

/// Nothing is taken: then nobody could be, one by one.
pub(super) fn judge(
    world: &World,
    index: usize,
    request: &Request,
    decision: &Decision,
    growth: usize,
) -> Result<(), String> {
    let all: Vec<Vec<Seen<'_>>> = request
        .roles
        .iter()
        .map(|role| see(world, index, role, decision))
        .collect();
    let moving = all.iter().any(|seen| !pairs(seen).is_empty());
    for (role, seen) in request.roles.iter().zip(&all) {
        let fits = |own: Option<&LabelValue>| {
            world
                .site
                .hosts()
                .filter(|host| is_free(world, role, host))
                .any(|host| {
                    let Some(key) = &role.topology_key else {
                        return true;
                    };
                    let there = host.labels.get(key);
                    let others = seen.iter().filter(|other| other.domain.as_ref() == there).count();
                    !is_occupied(world, index, role, there)
                        && (others == 0 || others == 1 && own.is_some() && own == there)
                })
        };
        let kept = || seen.iter().filter(|one| one.kept);
        let under_way = kept()
            .filter(|one| one.mem.came_for.is_some() && one.health != Health::Lost)
            .count();
        let lost: Vec<_> = kept().filter(|one| one.health == Health::Lost).collect();
        let chain = lost.iter().any(|one| one.mem.came_for.is_some());
        let room = limit(role).saturating_sub(under_way);
        for one in lost
            .iter()
            .filter(|one| room > 0 && (!chain || one.mem.came_for.is_some()))
        {
            rule(!fits(one.domain.as_ref()), || {
                format!("{} could be replaced", one.id())
            })?;
        }
        let leaving = kept().filter(|one| one.health == Health::Leaving && one.mem.came_for.is_none());
        for one in leaving.filter(|_| !moving && room > lost.len()) {
            rule(!fits(one.domain.as_ref()), || {
                format!("{} could be moved", one.id())
            })?;
        }
        let quota = matches!(
            decision.refusal.as_ref().map(|refusal| &refusal.kind),
            Some(RefusalKind::Quota { .. })
        );
        let own = seen.iter().filter(|one| one.kept).count()
            < role.want as usize + pairs(seen).iter().filter(|(old, _)| old.kept).count();
        rule(growth != 1 || !own || quota || !fits(None), || {
            format!("{} could grow", role.name)
        })?;
    }
    Ok(())
}
