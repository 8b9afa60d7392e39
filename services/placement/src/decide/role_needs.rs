//! Which of a cluster's members count: which stay, which must be released whatever hosts there are, and how many are missing. All of it follows
//! from the members' stages, see [`crate::life`].

use std::collections::{BTreeMap, BTreeSet};

use vocabulary::{HostId, LabelValue, RoleName};

use super::located_member::LocatedMember;
use super::pairs::Pairs;
use super::quota;
use super::surplus_members::{self, Place};
use crate::decision::{RefusalKind, Release, ReleaseReason};
use crate::life::{Circumstances, DomainUse, Quota, Stage};
use crate::request::{FailReason, Member, Request, Role};
use crate::site::{NONE, Site, Value, at};

/// For whom a host in a domain may be taken though a member of the role is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gate {
    /// For anybody: no member is in it.
    Open,
    /// For a lost replacement, which is under way already.
    FailedReplacement,
    /// For another lost member.
    Failed,
    /// For the one member that is moved.
    Move,
}

/// How pressing it is that a lost member is replaced, the smallest first: a lost replacement before all others, then by reason.
pub(crate) type Pressing = (bool, Option<FailReason>);

/// What one wanted role has and needs.
#[derive(Debug)]
pub(crate) struct RoleNeeds<'a> {
    pub(crate) role: &'a Role,
    /// Members that stay and are well, by host.
    pub(crate) present: Vec<LocatedMember<'a>>,
    /// Members that stay until a replacement is decided: lost replacements, then the others; the most pressing first.
    pub(crate) lost: Vec<LocatedMember<'a>>,
    /// Members that stay until somebody is claimed beside them, by host.
    pub(crate) leaving: Vec<LocatedMember<'a>>,
    /// Members that are kept beside their replacement until it is bound.
    pub(crate) outgoing: Vec<(LocatedMember<'a>, HostId)>,
    /// Domains with members in which a host may be taken.
    pub(crate) gates: BTreeMap<LabelValue, Gate>,
    /// Domains in which no host can be taken.
    pub(crate) closed: BTreeSet<LabelValue>,
    /// How many members are missing.
    pub(crate) growth: u32,
    /// How many of the lost may be replaced now.
    pub(crate) replaceable: u32,
    /// How many of these may be lost members other than lost replacements: each puts one more replacement under way.
    pub(crate) fresh: u32,
    /// In which turn each of the replaceable is replaced, among those of all roles.
    pub(crate) turns: Vec<Pressing>,
    /// Whether one of those leaving may be moved now, if no other role's is.
    pub(crate) may_move: bool,
    /// How many replacements may be under way.
    pub(crate) limit: u32,
}

impl<'a> RoleNeeds<'a> {
    /// Members that count.
    pub(crate) fn have(&self) -> u32 {
        count(self.present.len() + self.lost.len() + self.leaving.len())
    }

    /// How many hosts are to be found at most.
    pub(crate) fn demand(&self) -> u32 {
        self.growth
            .saturating_add(self.replaceable)
            .saturating_add(u32::from(self.may_move))
    }

    /// Whether it may be replaced now, as far as the limits go.
    pub(crate) fn may_be_replaced(&self, lost: &LocatedMember<'_>) -> bool {
        if lost.stage.counts().under_way {
            self.replaceable > 0
        } else {
            self.fresh > 0
        }
    }

    /// Every member that stays if nothing more is decided.
    pub(crate) fn staying(&self) -> impl Iterator<Item = &LocatedMember<'a>> {
        self.present
            .iter()
            .chain(&self.lost)
            .chain(&self.leaving)
            .chain(self.outgoing.iter().map(|(old, _)| old))
    }

    /// Members that are to be moved, but not before they are bound.
    pub(crate) fn postponed(&self) -> impl Iterator<Item = &LocatedMember<'a>> {
        self.present.iter().filter(|known| known.is_postponed())
    }
}

/// What all wanted roles have and need, by name, and what is released for no new host.
pub(crate) struct ClusterNeeds<'a> {
    pub(crate) roles: Vec<RoleNeeds<'a>>,
    pub(crate) release: Vec<Release>,
    /// The quota that keeps the request from growing.
    pub(crate) quota: Option<RefusalKind>,
}

/// How many members of a role may have a replacement that is not bound yet: one of a control plane, and a tenth (at least one) of any
/// other role.
#[must_use]
pub fn replacement_limit(role: &Role) -> u32 {
    if role.name.is_control_plane() {
        1
    } else {
        (role.want / 10).max(1)
    }
}

pub(crate) fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

impl<'a> ClusterNeeds<'a> {
    pub(crate) fn new(site: &Site, request: &'a Request, members: &'a [Member]) -> Self {
        let mut wanted: BTreeMap<&RoleName, (&'a Role, Vec<&'a Member>)> = request
            .roles
            .iter()
            .map(|role| (&role.name, (role, Vec::new())))
            .collect();
        let mut release = Vec::new();
        for member in members {
            if let Some((_, of_role)) = wanted.get_mut(&member.role) {
                of_role.push(member);
            } else if member.is_live() {
                let known = LocatedMember::new(site, None, member);
                release.push(released(&known, ReleaseReason::Surplus));
            }
        }
        let drafts: Vec<Draft<'a>> = wanted
            .into_values()
            .map(|(role, of_role)| Draft::new(site, role, &of_role, &mut release))
            .collect();
        let moving = || drafts.iter().map(|draft| draft.moving(site)).sum();
        let grows = drafts.iter().any(Draft::grows);
        let quota = grows.then(|| quota::exceeded(site, request, moving)).flatten();
        let mut roles: Vec<RoleNeeds<'a>> = drafts
            .into_iter()
            .map(|draft| draft.release_surplus(site, quota.as_ref(), &mut release))
            .collect();
        // One move of a cluster at a time.
        if roles.iter().any(|role_needs| !role_needs.outgoing.is_empty()) {
            for role_needs in &mut roles {
                role_needs.may_move = false;
            }
        }
        roles.iter_mut().for_each(RoleNeeds::set_gates);
        Self {
            roles,
            release,
            quota,
        }
    }

    /// No role gets more members than it has.
    pub(crate) fn withhold_growth(&mut self) {
        for role_needs in &mut self.roles {
            role_needs.growth = 0;
        }
    }

    /// Whether every role has what it wants, nobody has to go, and the records state what they should.
    pub(crate) fn need_no_decision(&self) -> bool {
        let needs_none = |role_needs: &RoleNeeds<'_>| {
            role_needs.growth == 0
                && role_needs.lost.is_empty()
                && role_needs.leaving.is_empty()
                && role_needs.postponed().next().is_none()
                && role_needs
                    .staying()
                    .all(|known| !known.member.requested && known.replaces == known.member.replaces)
        };
        self.release.is_empty() && self.roles.iter().all(needs_none)
    }
}

pub(crate) fn released(known: &LocatedMember<'_>, reason: ReleaseReason) -> Release {
    Release {
        role: known.member.role.clone(),
        host: known.member.host.clone(),
        reason,
        consumer: known.consumer.clone(),
    }
}

/// A role's members before it is known how many of them it may keep.
struct Draft<'a> {
    role: &'a Role,
    places: Vec<Place<'a>>,
    /// Domains of members that are releasing.
    used: BTreeSet<LabelValue>,
}

impl<'a> Draft<'a> {
    fn new(site: &Site, role: &'a Role, members: &[&'a Member], release: &mut Vec<Release>) -> Self {
        let mut known: Vec<LocatedMember<'a>> = members
            .iter()
            .map(|member| LocatedMember::new(site, role.topology_key.as_ref(), member))
            .collect();
        known.sort_by(|a, b| a.member.host.cmp(&b.member.host));
        let (live, releasing): (Vec<_>, Vec<_>) = known.into_iter().partition(|known| known.member.is_live());
        let mut used: BTreeSet<LabelValue> = releasing.into_iter().filter_map(|known| known.domain).collect();
        let pairs = Pairs::new(&live);
        let mut places: Vec<Place<'a>> = Vec::with_capacity(live.len());
        let mut outgoing: BTreeMap<&HostId, LocatedMember<'a>> = BTreeMap::new();
        for mut known in live {
            if let Some(reason) = pairs.ended.get(&known.member.host) {
                used.extend(known.domain.clone());
                release.push(released(&known, *reason));
                continue;
            }
            let by = pairs.outgoing.get(&known.member.host);
            known.replaces = pairs.replaces(&known);
            known.stage = Stage::of_member(
                known.member,
                Circumstances {
                    failed: known.failed,
                    paired: by.is_some(),
                },
            );
            known.is_extra = pairs.extra.contains(&known.member.host);
            match by.filter(|_| !known.stage.counts().place) {
                Some(by) => {
                    outgoing.insert(by, known);
                }
                None => places.push(Place::filled_by(known)),
            }
        }
        for place in &mut places {
            place.beside = outgoing.remove(&place.filled_by.member.host);
        }
        // A chain of pairs: no decision makes one, and each of its members stays.
        places.extend(outgoing.into_values().map(Place::filled_by));
        Self { role, places, used }
    }

    /// How many of its places its quota has counted.
    fn counted(&self) -> usize {
        let is_counted = |place: &&Place<'_>| match place.filled_by.quota() {
            Quota::Counted => true,
            Quota::CountedAsGrowth | Quota::NotCounted => false,
        };
        self.places.iter().filter(is_counted).count()
    }

    /// Whether the role wants more hosts than its quota has counted.
    fn grows(&self) -> bool {
        at(self.role.want) > self.counted()
    }

    /// How many of its members stay beside their replacements if the role has what it wants.
    fn moving(&self, site: &Site) -> u32 {
        let paired =
            |places: &[Place<'_>]| count(places.iter().filter(|place| place.beside.is_some()).count());
        let surplus = self.places.len().saturating_sub(at(self.role.want));
        if surplus == 0 || paired(&self.places) == 0 {
            return paired(&self.places);
        }
        let mut places = self.places.clone();
        surplus_members::choose(site, &mut places, surplus);
        paired(&places)
    }

    /// Releases the members beyond those that it may have. `quota`: what keeps the role from having more than its quota has counted.
    fn release_surplus(
        self,
        site: &Site,
        quota: Option<&RefusalKind>,
        release: &mut Vec<Release>,
    ) -> RoleNeeds<'a> {
        // Growth that waits for the end of a move does not end that.
        let waits = matches!(quota, Some(RefusalKind::Quota { moving: 1.., .. })) && self.grows();
        let most = quota.map_or(usize::MAX, |_| self.counted());
        let Self {
            role,
            mut places,
            mut used,
        } = self;
        let keep = at(role.want).min(most);
        let surplus = places.len().saturating_sub(keep);
        let victims = if waits {
            surplus_members::choose_unpaired(site, &mut places, surplus)
        } else {
            surplus_members::choose(site, &mut places, surplus)
        };
        for victim in victims {
            let Place { filled_by, beside } = victim;
            for known in std::iter::once(filled_by).chain(beside) {
                used.extend(known.domain.clone());
                release.push(released(&known, ReleaseReason::Surplus));
            }
        }
        let growth = role.want.saturating_sub(count(places.len()));
        let limit = replacement_limit(role);
        let mut role_needs = RoleNeeds {
            role,
            present: Vec::with_capacity(places.len()),
            lost: Vec::new(),
            leaving: Vec::new(),
            outgoing: Vec::new(),
            gates: BTreeMap::new(),
            closed: used,
            growth,
            replaceable: 0,
            fresh: 0,
            turns: Vec::new(),
            may_move: false,
            limit,
        };
        let mut under_way = 0;
        for place in places {
            let Place { filled_by, beside } = place;
            let by = filled_by.member.host.clone();
            role_needs.outgoing.extend(beside.map(|old| (old, by)));
            let counts = filled_by.stage.counts();
            match counts.domain {
                DomainUse::Used => {
                    under_way += u32::from(counts.under_way);
                    role_needs.present.push(filled_by);
                }
                DomainUse::YieldsToItsReplacement => role_needs.leaving.push(filled_by),
                DomainUse::Yields => role_needs.lost.push(filled_by),
            }
        }
        role_needs.count_replacements(under_way);
        role_needs
    }
}

impl RoleNeeds<'_> {
    /// The topology domain of this number; none for a role without a key.
    pub(crate) fn domain(&self, site: &Site, number: Value) -> Option<LabelValue> {
        if number == NONE {
            return None;
        }
        let (_, column) = site.column(self.role.topology_key.as_ref()?)?;
        column.text(number).cloned()
    }

    /// How pressing it is that a lost member is replaced.
    pub(crate) fn order(known: &LocatedMember<'_>) -> Pressing {
        (!known.stage.counts().under_way, known.failed)
    }

    /// A lost replacement is under way as it is; so it goes first, and another one for it is not one more.
    fn count_replacements(&mut self, under_way: u32) {
        self.lost.sort_by(|a, b| {
            let (a, b) = ((Self::order(a), &a.member.host), (Self::order(b), &b.member.host));
            a.cmp(&b)
        });
        let lost_replacements = count(
            self.lost
                .iter()
                .filter(|known| known.stage.counts().under_way)
                .count(),
        );
        let lost = count(self.lost.len());
        let room = self.limit.saturating_sub(under_way);
        self.replaceable = room.min(lost);
        self.fresh = room
            .saturating_sub(lost_replacements)
            .min(lost - lost_replacements);
        self.may_move = room > lost && !self.leaving.is_empty();
        self.set_turns();
    }

    fn set_turns(&mut self) {
        let lost = self.lost.iter().filter(|known| self.may_be_replaced(known));
        self.turns = lost.map(Self::order).take(at(self.replaceable)).collect();
    }

    /// No more of the lost are replaced than so many.
    pub(crate) fn limit_replacements(&mut self, most: u32) {
        self.replaceable = most;
        self.fresh = self.fresh.min(most);
        self.set_turns();
        self.set_gates();
    }

    /// Sorts the domains of members into `gates` and `closed`.
    fn set_gates(&mut self) {
        let present = self
            .present
            .iter()
            .chain(self.outgoing.iter().map(|(old, _)| old));
        self.closed
            .extend(present.filter_map(|known| known.domain.clone()));
        let mut leaving: BTreeMap<&LabelValue, u32> = BTreeMap::new();
        for domain in self.leaving.iter().filter_map(|known| known.domain.as_ref()) {
            *leaving.entry(domain).or_default() += 1;
        }
        let mut gates = BTreeMap::new();
        for known in &self.lost {
            let Some(domain) = &known.domain else { continue };
            if self.may_be_replaced(known) && !leaving.contains_key(domain) {
                let gate = if known.stage.counts().under_way {
                    Gate::FailedReplacement
                } else {
                    Gate::Failed
                };
                gates.entry(domain.clone()).or_insert(gate);
            }
        }
        // Where two of them are, or a failed one, the one that stays would share its domain with the new one.
        let has_lost = |domain: &LabelValue| {
            self.lost
                .iter()
                .any(|known| known.domain.as_ref() == Some(domain))
        };
        let moved = leaving
            .iter()
            .filter(|(domain, members)| self.may_move && **members == 1 && !has_lost(domain));
        gates.extend(moved.map(|(domain, _)| ((*domain).clone(), Gate::Move)));
        gates.retain(|domain, _| !self.closed.contains(domain));
        let waiting = self.lost.iter().chain(&self.leaving);
        let waiting = waiting.filter_map(|known| known.domain.clone());
        let waiting: Vec<LabelValue> = waiting.filter(|domain| !gates.contains_key(domain)).collect();
        self.closed.extend(waiting);
        self.gates = gates;
    }
}
