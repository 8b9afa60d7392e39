//! What could be taken is taken.

use std::collections::BTreeSet;

use placement::{Decision, FailReason, Host, HostId, LabelValue, RefusalKind, Replaces, Request, Role, Take};

use super::domains::{is_free, is_occupied};
use super::namespaces::home;
use super::{Health, Seen, limit, pairs, rule, see};
use crate::world::World;

/// One role, and what is decided for it.
struct OfRole<'a> {
    role: &'a Role,
    seen: Vec<Seen<'a>>,
    takes: Vec<&'a Take>,
}

impl<'a> OfRole<'a> {
    fn new(world: &'a World, index: usize, role: &'a Role, decision: &'a Decision) -> Self {
        let takes = decision.take.iter().filter(|take| take.role == role.name);
        Self {
            role,
            seen: see(world, index, role, decision),
            takes: takes.collect(),
        }
    }

    fn staying(&self) -> impl Iterator<Item = &Seen<'a>> {
        self.seen.iter().filter(|one| one.kept)
    }

    /// Lost members that another one is taken for now.
    fn replaced(&self) -> impl Iterator<Item = &Seen<'a>> {
        let is_replaced = |one: &&Seen<'_>| {
            let mut old = self.takes.iter().filter_map(|take| take.replaces.as_ref());
            one.health == Health::Lost && old.any(|old| old.host() == one.id())
        };
        self.seen.iter().filter(is_replaced)
    }

    /// How many replacements may be begun in this decision: those that are well and not bound yet are under way.
    fn room(&self) -> usize {
        let under_way = self
            .staying()
            .filter(|one| one.mem.came_for.is_some() && one.health != Health::Lost);
        limit(self.role).saturating_sub(under_way.count())
    }

    /// Members of which one may be moved now, if no other one of the cluster is.
    fn movable(&self) -> impl Iterator<Item = &Seen<'a>> {
        let lost = self.staying().filter(|one| one.health == Health::Lost).count();
        let may_move = self.room() > lost + self.replaced().count();
        let is_pending = |one: &&Seen<'_>| one.health == Health::Leaving && one.mem.came_for.is_none();
        self.staying().filter(move |one| may_move && is_pending(one))
    }

    /// Whether a host is left that could be taken in addition, in the place of a member in this domain or of none.
    fn fits(&self, world: &World, index: usize, decision: &Decision, own: Option<&LabelValue>) -> bool {
        self.left(world, index, decision, own).next().is_some()
    }

    /// How many hosts could be taken in addition, each in a domain of its own.
    fn room_to_grow(&self, world: &World, index: usize, decision: &Decision) -> usize {
        let left = self.left(world, index, decision, None);
        let Some(key) = &self.role.topology_key else {
            return left.count();
        };
        let domains: BTreeSet<LabelValue> = left.filter_map(|host| host.labels.get(key).cloned()).collect();
        domains.len()
    }

    fn left<'b>(
        &'b self,
        world: &'b World,
        index: usize,
        decision: &'b Decision,
        own: Option<&'b LabelValue>,
    ) -> impl Iterator<Item = Host> + 'b {
        let is_left = move |host: &Host| decision.take.iter().all(|take| take.host != host.id);
        let hosts = world.site.hosts().filter(is_left);
        hosts.filter(move |host| self.has_place_for(world, index, host, own))
    }

    /// Whether this host could be taken in addition if it is not taken yet, in the place of a member in this domain or of none.
    fn has_place_for(&self, world: &World, index: usize, host: &Host, own: Option<&LabelValue>) -> bool {
        if !is_free(world, index, self.role, host) {
            return false;
        }
        let Some(key) = &self.role.topology_key else {
            return true;
        };
        let there = host.labels.get(key);
        let members = self.seen.iter().filter(|other| other.domain.as_ref() == there);
        let new = self.takes.iter().filter(|take| take.domain.as_ref() == there);
        let others = members.count() + new.count();
        !is_occupied(world, index, self.role, there)
            && (others == 0 || others == 1 && own.is_some() && own == there)
    }
}

/// Hosts that replace lost members less pressing than this one, of other roles than its own.
fn of_less_pressing<'a>(
    all: &'a [OfRole<'a>],
    role: &'a Role,
    one: &'a Seen<'a>,
) -> impl Iterator<Item = &'a HostId> + 'a {
    let others = all.iter().filter(|of| of.role.name != role.name);
    others.flat_map(move |of| {
        let of_later = move |take: &&&Take| {
            let old = take.replaces.as_ref().map(Replaces::host);
            of.replaced()
                .any(|later| old == Some(later.id()) && order(later) > order(one))
        };
        of.takes.iter().filter(of_later).map(|take| &take.host)
    })
}

/// How pressing it is that a lost member is replaced; the smallest first.
fn order(lost: &Seen<'_>) -> (bool, Option<FailReason>) {
    (lost.mem.came_for.is_none(), lost.mem.record.failed)
}

/// Of what is not taken nothing could be, one by one. `growth`: how many members all roles lack.
pub(super) fn judge(
    world: &World,
    index: usize,
    request: &Request,
    decision: &Decision,
    growth: usize,
) -> Result<(), String> {
    let roles = request.roles.iter();
    let all: Vec<OfRole<'_>> = roles
        .map(|role| OfRole::new(world, index, role, decision))
        .collect();
    let takes_beside = decision
        .take
        .iter()
        .any(|take| matches!(take.replaces, Some(Replaces::Beside(_))));
    let home = home(world, index, decision);
    let is_outside = |host: &HostId| !home.contains(host.name.namespace());
    judge_move(world, index, &all, decision)?;
    let moving = takes_beside || all.iter().any(|of| !pairs(&of.seen).is_empty());
    for of in &all {
        let fits = |own: Option<&LabelValue>| of.fits(world, index, decision, own);
        let room = of.room();
        let replaced = of.replaced().count();
        let lost: Vec<_> = of.staying().filter(|one| one.health == Health::Lost).collect();
        // A lost replacement is under way as it is: another one for it is not one more.
        let chain = |one: &&Seen<'_>| one.mem.came_for.is_some();
        let chains = lost.iter().filter(|one| chain(one)).count() + of.replaced().filter(chain).count();
        let fresh = of.replaced().filter(|one| !chain(one)).count();
        let could_be = |one: &&&Seen<'_>| replaced < room && (chain(one) || fresh + chains < room);
        for one in lost.iter().filter(could_be) {
            rule(!fits(one.domain.as_ref()), || {
                format!("{} could be replaced", one.id())
            })?;
            for later in of_less_pressing(&all, of.role, one) {
                let host = world.site.get(&later.name);
                let own = one.domain.as_ref();
                let fits = host.is_some_and(|host| of.has_place_for(world, index, &host, own));
                rule(!fits, || {
                    format!(
                        "{} is not replaced by {later}, which a less pressing one has",
                        one.id()
                    )
                })?;
            }
        }
        for one in &lost {
            for take in &of.takes {
                let mut replaced = of.replaced();
                let later =
                    replaced.find(|old| take.replaces.as_ref().is_some_and(|by| by.host() == old.id()));
                // Nobody goes first whose replacement is outside the cluster's namespaces, if the other one's is not.
                let fits = || {
                    let mut left = of.left(world, index, decision, one.domain.as_ref());
                    left.any(|host| is_outside(&take.host) || !is_outside(&host.id))
                };
                rule(
                    later.is_none_or(|later| order(later) <= order(one)) || !fits(),
                    || format!("{} is replaced before", one.id()),
                )?;
            }
        }
        for one in of.movable().filter(|_| !moving) {
            rule(!fits(one.domain.as_ref()), || {
                format!("{} could be moved", one.id())
            })?;
        }
        let quota = matches!(
            decision.refusal.as_ref().map(|refusal| &refusal.kind),
            Some(RefusalKind::Quota { .. })
        );
        let pairs = pairs(&of.seen).iter().filter(|(old, _)| old.kept).count();
        let places = (of.staying().count() + replaced).saturating_sub(pairs);
        let grows = of.takes.iter().any(|take| take.replaces.is_none());
        let lacks = !grows && places < of.role.want as usize;
        // Of one role alone it can be counted: each domain has room for one.
        let missing = (of.role.want as usize).saturating_sub(places);
        let alone = lacks && growth == missing;
        rule(
            !alone || quota || of.room_to_grow(world, index, decision) < missing,
            || format!("{} could grow by {missing}", of.role.name),
        )?;
    }
    Ok(())
}

/// The member of the first role by name is moved, unless that leaves less of what the cluster lacks than another move; and none to another
/// namespace if one can be moved within that of all members. Judged are other moves with all else as it is decided.
fn judge_move(world: &World, index: usize, all: &[OfRole<'_>], decision: &Decision) -> Result<(), String> {
    let is_move = |take: &&Take| matches!(take.replaces, Some(Replaces::Beside(_)));
    let Some(take) = decision.take.iter().find(is_move) else {
        return Ok(());
    };
    let is_complete = match decision.refusal.as_ref().map(|refusal| &refusal.kind) {
        // Whether there are hosts for the growth that the quota does not allow cannot be seen.
        Some(RefusalKind::Quota { .. }) => return Ok(()),
        Some(RefusalKind::NoFit) => false,
        Some(RefusalKind::ReplacementLimit) | None => true,
    };
    let home = home(world, index, decision);
    let is_inside = |host: &HostId| home.len() == 1 && home.contains(host.name.namespace());
    let others = decision.take.iter().filter(|other| other.host != take.host);
    let leaves_for_nothing =
        is_complete && !is_inside(&take.host) && others.map(|other| &other.host).all(is_inside);
    let is_left =
        |host: &Host| host.id == take.host || decision.take.iter().all(|other| other.host != host.id);
    for of in all.iter().filter(|of| of.role.name != take.role) {
        for one in of.movable() {
            let could_have = |host: &Host| of.has_place_for(world, index, host, one.domain.as_ref());
            for host in world
                .site
                .hosts()
                .filter(|host| is_left(host) && could_have(host))
            {
                let is_earlier =
                    of.role.name < take.role && host.id.name.namespace() == take.host.name.namespace();
                rule(!is_earlier, || {
                    format!("{} could be moved to {} before {}", one.id(), host.id, take.role)
                })?;
                rule(!(leaves_for_nothing && is_inside(&host.id)), || {
                    format!(
                        "{} is outside, {} could be moved to {}",
                        take.host,
                        one.id(),
                        host.id
                    )
                })?;
            }
        }
    }
    Ok(())
}
