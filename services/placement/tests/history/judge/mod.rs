//! The rules, as plainly as can be, checked against one decision. Nothing here is shared with the decision.

mod domains;
mod feasible;
mod helps;
mod namespaces;
mod quota;
mod role;

use placement::{
    Decision, FailReason, Host, HostId, LabelValue, Member, MemberState, ReleaseReason, Replaces, Request,
    Role,
};

use crate::world::{Mem, World};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Well,
    Leaving,
    Unknown,
    Lost,
}

/// One live member before the decision.
struct Seen<'a> {
    mem: &'a Mem,
    host: Option<Host>,
    health: Health,
    domain: Option<LabelValue>,
    kept: bool,
    released: Option<ReleaseReason>,
}

impl Seen<'_> {
    fn id(&self) -> &HostId {
        &self.mem.record.host
    }

    fn is_used(&self) -> bool {
        self.host.as_ref().is_some_and(|host| host.consumer.is_some())
    }

    fn is_claimed(&self) -> bool {
        self.mem.record.state == MemberState::Claimed
    }
}

fn is_live(member: &Member) -> bool {
    member.requested || member.state != MemberState::Releasing
}

fn limit(role: &Role) -> usize {
    if role.name.as_str() == "ControlPlane" {
        1
    } else {
        (role.want as usize / 10).max(1)
    }
}

fn see<'a>(world: &'a World, index: usize, role: &Role, decision: &Decision) -> Vec<Seen<'a>> {
    let members = world.tenants[index].members.iter();
    let of_role = members.filter(|mem| mem.record.role == role.name && is_live(&mem.record));
    of_role
        .map(|mem| {
            let record = &mem.record;
            let host = world
                .site
                .get(&record.host.name)
                .filter(|host| host.id == record.host);
            let health = match record.failed {
                Some(FailReason::MoveRequested) => Health::Leaving,
                Some(_) => Health::Lost,
                None if host.is_none() => Health::Unknown,
                None => Health::Well,
            };
            let domain = match (&role.topology_key, &host) {
                (Some(key), Some(host)) => host.labels.get(key).cloned(),
                (Some(key), None) => {
                    let known = record.domain.as_ref().filter(|domain| domain.key == *key);
                    known.map(|domain| domain.value.clone())
                }
                (None, _) => None,
            };
            Seen {
                mem,
                health,
                domain,
                kept: decision.keep.iter().any(|keep| keep.host == record.host),
                released: decision
                    .release
                    .iter()
                    .find(|release| release.host == record.host)
                    .map(|one| one.reason),
                host,
            }
        })
        .collect()
}

fn rule(holds: bool, text: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(text()) }
}

/// Judges a decision before it is applied.
pub(crate) fn step(
    world: &World,
    index: usize,
    request: &Request,
    decision: &Decision,
) -> Result<(), String> {
    let shown = || format!("{decision:#?}");
    for mem in &world.tenants[index].members {
        let host = &mem.record.host;
        let kept = decision.keep.iter().filter(|keep| keep.host == *host).count();
        let released = decision
            .release
            .iter()
            .filter(|release| release.host == *host)
            .count();
        let expected = usize::from(is_live(&mem.record));
        rule(kept + released == expected, || {
            format!("{host} is not either kept or released: {}", shown())
        })?;
        let wanted = request.roles.iter().any(|role| role.name == mem.record.role);
        rule(wanted || kept == 0, || format!("{host} is kept in no role"))?;
    }
    let mut growth = 0;
    for role in &request.roles {
        let seen = see(world, index, role, decision);
        growth += role::judge(world, index, role, &seen, decision)
            .map_err(|rule| format!("{}: {rule}: {}", role.name, shown()))?;
    }
    let grown = decision
        .take
        .iter()
        .filter(|take| take.replaces.is_none())
        .count();
    rule(grown == 0 || grown == growth, || {
        format!("grows by {grown} of {growth}: {}", shown())
    })?;
    quota::judge(world, index, request, decision).map_err(|rule| format!("{rule}: {}", shown()))?;
    namespaces::judge(world, index, request, decision).map_err(|rule| format!("{rule}: {}", shown()))?;
    feasible::judge(world, index, request, decision, growth)
        .map_err(|rule| format!("{rule}: {}", shown()))?;
    if let Some(refusal) = &decision.refusal {
        helps::judge(world, index, request, refusal)?;
    }
    Ok(())
}

/// The member that comes for one that is asked to be moved, or one that came for it where nobody can see one of them.
fn pairs<'a>(seen: &'a [Seen<'a>]) -> Vec<(&'a Seen<'a>, &'a Seen<'a>)> {
    let mut pairs = Vec::new();
    for new in seen.iter().filter(|new| new.health != Health::Lost) {
        let Some(Replaces::Beside(old)) = &new.mem.record.replaces else {
            continue;
        };
        let Some(old) = seen.iter().find(|other| other.id() == old) else {
            continue;
        };
        let comes = new.is_claimed() || new.health == Health::Unknown;
        let waits = old.health == Health::Unknown || old.health == Health::Leaving && comes;
        if waits {
            pairs.push((old, new));
        }
    }
    pairs
}

/// The replacements of a role that are not bound, of all that have not begun to go.
fn unbound<'a>(world: &'a World, index: usize, role: &Role) -> Vec<&'a Mem> {
    let members = world.tenants[index].members.iter();
    let unbound = members.filter(|mem| {
        mem.record.role == role.name && mem.record.state == MemberState::Claimed && mem.came_for.is_some()
    });
    unbound.collect()
}

/// How many replacements of each role are not bound.
pub(crate) fn under_way(world: &World, index: usize, request: &Request) -> Vec<usize> {
    let roles = request.roles.iter();
    roles.map(|role| unbound(world, index, role).len()).collect()
}

/// Judges what holds at every instant, after a decision is applied; `before`: how many replacements were under way. A role that
/// wants fewer members than before may have more of them than it may begin.
pub(crate) fn after(world: &World, index: usize, request: &Request, before: &[usize]) -> Result<(), String> {
    let mut moves = 0;
    for (role, before) in request.roles.iter().zip(before) {
        let unbound = unbound(world, index, role);
        moves += unbound
            .iter()
            .filter(|mem| matches!(mem.record.replaces, Some(Replaces::Beside(_))))
            .count();
        rule(unbound.len() <= limit(role).max(*before), || {
            format!(
                "{}: {} replacements are not bound, {before} before",
                role.name,
                unbound.len()
            )
        })?;
    }
    rule(moves <= 1, || format!("{moves} moves at a time"))
}
