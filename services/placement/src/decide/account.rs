//! Who of a cluster's members counts: what stays, what must go whatever hosts there are, and what is missing.

use std::collections::{BTreeMap, BTreeSet};

use super::victims;
use crate::decision::{Release, ReleaseReason};
use crate::host::Consumer;
use crate::names::{HostId, LabelValue, RoleName};
use crate::request::{FailReason, Member, MemberState, Request, Role};
use crate::site::{Site, Slot};

/// A member with what the site knows of it now.
#[derive(Debug, Clone)]
pub(crate) struct Known<'a> {
    pub(crate) member: &'a Member,
    pub(crate) slot: Option<Slot>,
    /// Its topology domain: what its label says now, and as last known while the host is not there. Never empty.
    pub(crate) domain: Option<LabelValue>,
    pub(crate) failed: Option<FailReason>,
    pub(crate) consumer: Option<Consumer>,
}

impl<'a> Known<'a> {
    fn new(site: &Site, key: Option<&crate::names::LabelKey>, member: &'a Member) -> Self {
        let slot = site.slot_of(&member.host);
        let row = slot.and_then(|slot| site.row(slot));
        let domain = match (slot, key) {
            (Some(slot), Some(key)) => site.label(key, slot),
            (None, Some(_)) => member.domain.clone(),
            (_, None) => None,
        };
        let marked = row
            .is_some_and(crate::site::Row::is_marked_failed)
            .then_some(FailReason::Marked);
        let asked = row
            .is_some_and(crate::site::Row::is_to_be_moved)
            .then_some(FailReason::ReplaceRequested);
        Self {
            member,
            slot,
            domain: domain.filter(|value| !value.is_empty()),
            failed: [member.failed, marked, asked].into_iter().flatten().min(),
            consumer: row.and_then(|row| row.consumer.as_deref().cloned()),
        }
    }
}

/// What one wanted role has and needs.
#[derive(Debug)]
pub(crate) struct Account<'a> {
    pub(crate) role: &'a Role,
    /// Members that stay and are well, by host.
    pub(crate) present: Vec<Known<'a>>,
    /// Members that stay until a replacement is decided, the most pressing first.
    pub(crate) failed: Vec<Known<'a>>,
    /// Members that are kept beside their replacement until it is bound.
    pub(crate) outgoing: Vec<(Known<'a>, HostId)>,
    /// Domains used up whatever is decided: by present, outgoing and releasing members.
    pub(crate) used: BTreeSet<LabelValue>,
    /// How many members are missing.
    pub(crate) growth: u32,
    /// How many of the failed may be replaced now.
    pub(crate) replaceable: u32,
    /// How many replacements may be under way.
    pub(crate) limit: u32,
}

impl Account<'_> {
    /// Members that count.
    pub(crate) fn have(&self) -> u32 {
        count(self.present.len() + self.failed.len())
    }

    /// How many hosts are to be found.
    pub(crate) fn demand(&self) -> u32 {
        self.growth.saturating_add(self.replaceable)
    }

    /// The failed members that may be replaced now.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = &Known<'_>> {
        let lost = self
            .failed
            .iter()
            .filter(|known| known.failed != Some(FailReason::ReplaceRequested))
            .count();
        // A requested move comes last in the order, and there is at most one.
        let moves =
            usize::from(usize::try_from(self.replaceable).is_ok_and(|replaceable| replaceable > lost));
        self.failed.iter().take(lost + moves)
    }

    /// Domains that a replacement may use, though a failed member is in them.
    pub(crate) fn yielding(&self) -> impl Iterator<Item = LabelValue> {
        self.candidates()
            .filter_map(|known| known.domain.clone())
            .filter(|domain| !self.used.contains(domain))
    }

    /// Domains in which no host can be taken: those used up, and those of failed members that are not replaced now.
    pub(crate) fn closed(&self) -> BTreeSet<LabelValue> {
        let open: BTreeSet<LabelValue> = self.yielding().collect();
        let waiting = self
            .failed
            .iter()
            .filter_map(|known| known.domain.clone())
            .filter(|domain| !open.contains(domain));
        if self.replaceable == 0 {
            let failed = self.failed.iter().filter_map(|known| known.domain.clone());
            return self.used.iter().cloned().chain(failed).collect();
        }
        self.used.iter().cloned().chain(waiting).collect()
    }
}

/// The accounts of all wanted roles by name, and what is released for no new host.
pub(crate) struct Accounts<'a> {
    pub(crate) roles: Vec<Account<'a>>,
    pub(crate) release: Vec<Release>,
}

/// At most one control-plane host, and a tenth (at least one) of each other role, have a replacement not yet bound.
fn limit(role: &Role) -> u32 {
    if role.name.is_control_plane() {
        1
    } else {
        (role.want / 10).max(1)
    }
}

pub(crate) fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

impl<'a> Accounts<'a> {
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
            } else if member.state != MemberState::Releasing {
                release.push(given_back(
                    &Known::new(site, None, member),
                    ReleaseReason::Surplus,
                ));
            }
        }
        let mut roles: Vec<Account<'a>> = wanted
            .into_values()
            .map(|(role, of_role)| account(site, role, &of_role, &mut release))
            .collect();
        one_move_at_a_time(&mut roles);
        Self { roles, release }
    }

    /// Whether every role has what it wants, and nobody has to go.
    pub(crate) fn are_settled(&self) -> bool {
        let is_settled = |account: &Account<'_>| account.growth == 0 && account.failed.is_empty();
        self.release.is_empty() && self.roles.iter().all(is_settled)
    }
}

pub(crate) fn given_back(known: &Known<'_>, reason: ReleaseReason) -> Release {
    Release {
        role: known.member.role.clone(),
        host: known.member.host.clone(),
        reason,
        consumer: known.consumer.clone(),
    }
}

fn account<'a>(
    site: &Site,
    role: &'a Role,
    members: &[&'a Member],
    release: &mut Vec<Release>,
) -> Account<'a> {
    let mut known: Vec<Known<'a>> = members
        .iter()
        .map(|member| Known::new(site, role.topology_key.as_ref(), member))
        .collect();
    known.sort_by(|a, b| a.member.host.cmp(&b.member.host));
    let (releasing, known): (Vec<_>, Vec<_>) = known
        .into_iter()
        .partition(|known| known.member.state == MemberState::Releasing);
    let mut used: BTreeSet<LabelValue> = releasing.into_iter().filter_map(|known| known.domain).collect();

    let (mut counted, outgoing) = split_replaced(known, &mut used, release);
    let surplus = counted
        .len()
        .saturating_sub(usize::try_from(role.want).unwrap_or(usize::MAX));
    let victims = victims::choose(site, &mut counted, surplus);
    let (cancelled, outgoing): (Vec<_>, Vec<_>) = outgoing
        .into_iter()
        .partition(|(_, by)| victims.iter().any(|victim| victim.member.host == *by));
    for victim in victims.iter().chain(cancelled.iter().map(|(old, _)| old)) {
        used.extend(victim.domain.clone());
        release.push(given_back(victim, ReleaseReason::Surplus));
    }

    let growth = role.want.saturating_sub(count(counted.len()));
    let (mut failed, present): (Vec<_>, Vec<_>) =
        counted.into_iter().partition(|known| known.failed.is_some());
    failed.sort_by(|a, b| (a.failed, &a.member.host).cmp(&(b.failed, &b.member.host)));
    used.extend(
        present
            .iter()
            .chain(outgoing.iter().map(|(old, _)| old))
            .filter_map(|known| known.domain.clone()),
    );
    let under_way = present
        .iter()
        .filter(|known| known.member.state == MemberState::Claimed && known.member.replaces.is_some())
        .count();
    let limit = limit(role);
    let replaceable = limit.saturating_sub(count(under_way)).min(count(failed.len()));
    Account {
        role,
        present,
        failed,
        outgoing,
        used,
        growth,
        replaceable,
        limit,
    }
}

/// Takes out the members that have a living replacement: once it is bound (or at once, if the old one is lost anyway)
/// they are released; before that they are kept beside it and do not count.
fn split_replaced<'a>(
    known: Vec<Known<'a>>,
    used: &mut BTreeSet<LabelValue>,
    release: &mut Vec<Release>,
) -> (Vec<Known<'a>>, Vec<(Known<'a>, HostId)>) {
    let replacements: BTreeMap<HostId, (HostId, MemberState)> = known
        .iter()
        .filter(|known| known.failed.is_none())
        .filter_map(|known| {
            Some((
                known.member.replaces.clone()?,
                (known.member.host.clone(), known.member.state),
            ))
        })
        .collect();
    let mut counted = Vec::new();
    let mut outgoing = Vec::new();
    for old in known {
        match (old.failed, replacements.get(&old.member.host)) {
            (None, _) | (_, None) => counted.push(old),
            (Some(FailReason::ReplaceRequested), Some((by, MemberState::Claimed))) => {
                let by = by.clone();
                outgoing.push((old, by));
            }
            (Some(reason), Some(_)) => {
                let reason = match reason {
                    FailReason::ReplaceRequested => ReleaseReason::Moved,
                    FailReason::Gone | FailReason::Marked | FailReason::InError | FailReason::Taken => {
                        ReleaseReason::Failed(reason)
                    }
                };
                used.extend(old.domain.clone());
                release.push(given_back(&old, reason));
            }
        }
    }
    (counted, outgoing)
}

/// Of the members that somebody asked to move off, only the first of the cluster is replaced at a time.
fn one_move_at_a_time(roles: &mut [Account<'_>]) {
    let mut moving = roles.iter().any(|account| !account.outgoing.is_empty());
    for account in roles {
        // Requested ones come last in the order of reasons, so a count is enough to leave them out.
        let lost = account
            .failed
            .iter()
            .filter(|known| known.failed != Some(FailReason::ReplaceRequested))
            .count();
        let moves = account.failed.len() > lost && !moving && account.replaceable > count(lost);
        account.replaceable = account.replaceable.min(count(lost) + u32::from(moves));
        moving |= moves;
    }
}
