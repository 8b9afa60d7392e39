//! Numbers of members within their role, such as the 3 of `worker-3`: kept for life, and inherited by a replacement.
//!
//! While a replacement waits beside the member that it replaces, both have the same number: it means the bound one. A number of a
//! member that is released is used again only when that member is gone, except by its replacement.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use placement::{HostId, MemberState, Replaces, RoleName};

use super::member::Member;

/// Numbers above this were not given by a scheduler: a role has fewer members.
pub const MAX_ORDINAL: u32 = 65_535;

/// Gives every live member a number that no other live member of its role has, except that a replacement that waits has the number of the member
/// beside it. Idempotent; any other that has a number of its own keeps it.
pub fn assign(members: &mut BTreeMap<HostId, Member>) {
    let roles: BTreeSet<RoleName> = members.values().map(|member| member.role.clone()).collect();
    for role in roles {
        withdraw_shared(members, &role);
        number_new(members, &role);
        join_pairs(members, &role);
    }
}

/// Of members that have one number, and are not in each other's place, the first bound one keeps it.
fn withdraw_shared(members: &mut BTreeMap<HostId, Member>, role: &RoleName) {
    let mut order: Vec<(&HostId, &Member)> = live(members, role).collect();
    order.sort_by_key(|(id, member)| {
        let claimed = member.state != MemberState::Bound;
        (claimed, Reverse(member.is_numbered()), member.revision, *id)
    });
    let mut holders: BTreeMap<u32, Vec<(&HostId, &Member)>> = BTreeMap::new();
    let mut withdrawn = Vec::new();
    for (id, member) in order {
        let Some(ordinal) = member.ordinal else { continue };
        let holding = holders.entry(ordinal).or_default();
        let beside = holding
            .iter()
            .any(|(other, holder)| is_beside(member, other) || is_beside(holder, id));
        if ordinal <= MAX_ORDINAL && (holding.is_empty() || beside) {
            holding.push((id, member));
        } else {
            withdrawn.push(id.clone());
        }
    }
    for id in withdrawn {
        if let Some(member) = members.get_mut(&id) {
            member.ordinal = None;
        }
    }
}

/// Whether a member comes in the place of that one, which stays until it is bound.
fn is_beside(member: &Member, old: &HostId) -> bool {
    match &member.replaces {
        Some(Replaces::Beside(host)) => host == old,
        Some(Replaces::Alone(_)) | None => false,
    }
}

fn number_new(members: &mut BTreeMap<HostId, Member>, role: &RoleName) {
    let unnumbered = live(members, role).filter(|(_, member)| member.ordinal.is_none());
    // A replacement comes after the member beside it, whose number it has.
    let (beside, others): (Vec<_>, Vec<_>) = unnumbered.partition(|(_, member)| member.is_beside());
    let new = others.into_iter().chain(beside);
    let new: Vec<HostId> = new.map(|(id, _)| id.clone()).collect();
    let mut used: BTreeSet<u32> = of_role(members, role)
        .filter_map(|(_, member)| member.ordinal)
        .collect();
    let mut free = 0;
    for id in new {
        let inherited = inherited(members, role, &id);
        let ordinal = inherited.unwrap_or_else(|| {
            while used.contains(&free) {
                free += 1;
            }
            free
        });
        used.insert(ordinal);
        if let Some(member) = members.get_mut(&id) {
            member.ordinal = Some(ordinal);
        }
    }
}

/// Gives a replacement that waits the number of the member beside it, unless that one waits beside another itself. An earlier version gave two
/// numbers to a pair that it restored.
fn join_pairs(members: &mut BTreeMap<HostId, Member>, role: &RoleName) {
    let known = &*members;
    let joins = |member: &Member| {
        let old = match &member.replaces {
            Some(Replaces::Beside(old)) if member.state == MemberState::Claimed => known.get(old),
            Some(Replaces::Beside(_) | Replaces::Alone(_)) | None => None,
        };
        old.is_some_and(|old| old.state != MemberState::Releasing && !old.is_beside())
    };
    let waiting: Vec<HostId> = live(known, role)
        .filter(|(_, member)| joins(member))
        .map(|(id, _)| id.clone())
        .collect();
    for id in waiting {
        if let Some(ordinal) = inherited(members, role, &id)
            && let Some(member) = members.get_mut(&id)
        {
            member.ordinal = Some(ordinal);
        }
    }
}

/// The number of the member in whose place this one comes, unless another live one has it.
fn inherited(members: &BTreeMap<HostId, Member>, role: &RoleName, id: &HostId) -> Option<u32> {
    let replaces = members.get(id)?.replaces.as_ref()?;
    let old = members.get(replaces.host());
    let ordinal = old.filter(|member| member.role == *role)?.ordinal?;
    let mut others = live(members, role).filter(|(other, _)| match replaces {
        Replaces::Beside(old) => *other != old,
        Replaces::Alone(_) => true,
    });
    others
        .all(|(_, member)| member.ordinal != Some(ordinal))
        .then_some(ordinal)
}

fn of_role<'a>(
    members: &'a BTreeMap<HostId, Member>,
    role: &RoleName,
) -> impl Iterator<Item = (&'a HostId, &'a Member)> {
    members.iter().filter(move |(_, member)| member.role == *role)
}

fn live<'a>(
    members: &'a BTreeMap<HostId, Member>,
    role: &RoleName,
) -> impl Iterator<Item = (&'a HostId, &'a Member)> {
    of_role(members, role).filter(|(_, member)| member.state != MemberState::Releasing)
}

#[cfg(test)]
mod tests {
    use placement::{HostName, Uid};
    use proptest::prelude::*;

    use super::*;

    fn id(index: usize) -> HostId {
        HostId {
            name: HostName::new("metal", format!("h{index}")).unwrap(),
            uid: Uid::new("u").unwrap(),
        }
    }

    fn member(role: &str, state: MemberState, ordinal: Option<u32>, replaces: Option<Replaces>) -> Member {
        let mut member = Member::new(RoleName::new(role).unwrap(), None, state);
        member.ordinal = ordinal;
        member.replaces = replaces;
        member.number(1);
        member
    }

    fn assigned(list: impl IntoIterator<Item = Member>) -> Vec<Option<u32>> {
        let ids = (0..).map(id);
        let mut members = ids.zip(list).collect();
        assign(&mut members);
        members.into_values().map(|member| member.ordinal).collect()
    }

    const BOUND: MemberState = MemberState::Bound;
    const CLAIMED: MemberState = MemberState::Claimed;
    const RELEASING: MemberState = MemberState::Releasing;

    #[test]
    fn each_role_counts_from_zero() {
        let new = |role| member(role, CLAIMED, None, None);
        assert_eq!(
            assigned([new("ControlPlane"), new("Worker"), new("ControlPlane")]),
            [Some(0), Some(0), Some(1)]
        );
    }

    #[test]
    fn the_smallest_free_number_is_given() {
        let with = |state, ordinal| member("Worker", state, ordinal, None);
        assert_eq!(
            assigned([
                with(BOUND, Some(0)),
                with(RELEASING, Some(1)),
                with(CLAIMED, None),
                with(BOUND, Some(3)),
                with(CLAIMED, None),
            ]),
            [Some(0), Some(1), Some(2), Some(3), Some(4)]
        );
    }

    #[test]
    fn a_replacement_inherits() {
        let old = |state| member("Worker", state, Some(7), None);
        let beside = member("Worker", CLAIMED, None, Some(Replaces::Beside(id(0))));
        assert_eq!(assigned([old(BOUND), beside.clone()]), [Some(7), Some(7)]);
        assert_eq!(assigned([old(RELEASING), beside]), [Some(7), Some(7)]);
        let alone = member("Worker", CLAIMED, None, Some(Replaces::Alone(id(0))));
        assert_eq!(assigned([old(RELEASING), alone]), [Some(7), Some(7)]);
    }

    #[test]
    fn a_pair_without_numbers_gets_one() {
        let new = member("Worker", CLAIMED, None, Some(Replaces::Beside(id(1))));
        let old = member("Worker", BOUND, None, None);
        assert_eq!(assigned([new, old]), [Some(0), Some(0)]);
    }

    #[test]
    fn a_pair_with_two_numbers_gets_that_of_the_older() {
        let new = |state| member("Worker", state, Some(0), Some(Replaces::Beside(id(1))));
        let old = |state| member("Worker", state, Some(1), None);
        assert_eq!(assigned([new(CLAIMED), old(BOUND)]), [Some(1), Some(1)]);
        assert_eq!(assigned([new(BOUND), old(BOUND)]), [Some(0), Some(1)]);
        assert_eq!(assigned([new(CLAIMED), old(RELEASING)]), [Some(0), Some(1)]);
    }

    #[test]
    fn only_one_replacement_inherits() {
        let old = member("Worker", BOUND, Some(0), None);
        let new = member("Worker", CLAIMED, None, Some(Replaces::Beside(id(0))));
        assert_eq!(assigned([old, new.clone(), new]), [Some(0), Some(0), Some(1)]);
    }

    #[test]
    fn a_withdrawn_replacement_gets_a_number_of_its_own() {
        let old = member("Worker", BOUND, Some(4), None);
        let new = member("Worker", CLAIMED, Some(4), None);
        assert_eq!(assigned([new, old]), [Some(0), Some(4)]);
    }

    #[test]
    fn forged_numbers_are_withdrawn() {
        let forged = member("Worker", BOUND, Some(MAX_ORDINAL + 1), None);
        assert_eq!(assigned([forged]), [Some(0)]);
    }

    fn some_member() -> impl Strategy<Value = Member> {
        let state = prop_oneof![Just(BOUND), Just(CLAIMED), Just(RELEASING)];
        let replaces = proptest::option::of((any::<bool>(), 0..6_usize).prop_map(|(beside, index)| {
            if beside {
                Replaces::Beside(id(index))
            } else {
                Replaces::Alone(id(index))
            }
        }));
        let role = prop_oneof![Just("Worker"), Just("ControlPlane")];
        (role, state, proptest::option::of(0..4_u32), replaces)
            .prop_map(|(role, state, ordinal, replaces)| member(role, state, ordinal, replaces))
    }

    proptest! {
        #[test]
        fn numbers_are_unique_and_stable(list in proptest::collection::vec(some_member(), 0..6)) {
            let before: BTreeMap<HostId, Member> = (0..).map(id).zip(list).collect();
            let mut members = before.clone();
            assign(&mut members);
            let mut again = members.clone();
            assign(&mut again);
            prop_assert_eq!(&again, &members);
            let is_live = |member: &Member| member.state != RELEASING;
            for (id, member) in members.iter().filter(|(_, member)| is_live(member)) {
                prop_assert!(member.ordinal.is_some());
                let twins: Vec<_> = members
                    .iter()
                    .filter(|(other, twin)| {
                        *other != id && is_live(twin) && twin.role == member.role && twin.ordinal == member.ordinal
                    })
                    .collect();
                for (other, twin) in twins {
                    let beside = |a: &Member, b: &HostId| a.replaces == Some(Replaces::Beside(b.clone()));
                    let chained = beside(member, other) || beside(twin, id) || members.iter().any(|(third, between)| {
                        between.ordinal == member.ordinal && (beside(member, third) || beside(twin, third))
                    });
                    prop_assert!(chained, "{id} and {other} share a number");
                }
                // A number that nobody else has is kept, except by a replacement that gets the number of the one beside it.
                let old = before[id].ordinal;
                let joins = member.state == CLAIMED && match &member.replaces {
                    Some(Replaces::Beside(old)) => before.get(old).is_some_and(is_live),
                    Some(Replaces::Alone(_)) | None => false,
                };
                let unique = before.iter().filter(|(_, twin)| {
                    is_live(twin) && twin.role == member.role && twin.ordinal == old
                }).count() == 1;
                if unique && old.is_some() && !joins {
                    prop_assert_eq!(member.ordinal, old);
                }
            }
        }
    }
}
