//! What is observed, into a copy of a record. Pure: nothing is staged here, and nothing is claimed.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use ::placement::{ClusterName, Domain, HostId, LabelKey, LabelValue, MemberState, Replaces, Role, RoleName};

use super::{
    changed_addresses::{self, lacks, left_behind},
    claims_of_lost_ledger::{self, Promise},
    completed_releases::is_freed,
    conflicts::conflicts,
    failures,
    view::View,
};
use crate::{
    observed::{self, Labels},
    record::{Member, Record, ReleaseReason},
};

/// In the place of the uid of a `SIPCluster` that does not exist. Kubernetes' uids are never like it.
pub const MISSING_UID: &str = "absent";

/// Brings the record in line with what is observed. Level-triggered: the order of observations does not matter. Returns how many former
/// places of hosts that have moved it has added, which are `most_places` at most.
pub(super) fn settle(view: View<'_>, record: &mut Record, now: SystemTime, most_places: usize) -> usize {
    let mut places = follow_recreated_hosts(view, record, most_places);
    places += changed_addresses::follow_moved_hosts(view, record, most_places - places);
    if !view.existence.is_of_predecessor(record) {
        take_over_promises(view, record);
        adopt(view, record);
    }
    claim_after_old(view, record);
    let cluster = record.cluster.clone();
    let spec = record.spec.clone();
    record.members.retain(|id, member| {
        if is_free(view, &cluster, id, member) {
            return false;
        }
        let role = spec.roles().iter().find(|role| role.name == member.role);
        if member.state != MemberState::Releasing {
            follow_topology_key(view, id, member, role);
        }
        if view.synced && failures::is_observed(view, &cluster, id, member) {
            failures::observe(view, id, member, role, now);
        }
        true
    });
    record.conflicts = conflicts(view, record);
    places
}

/// Takes in what a member's host shows. Returns whether the member has ended and its host is free.
fn is_free(view: View<'_>, cluster: &ClusterName, id: &HostId, member: &mut Member) -> bool {
    let host = view.reported(id);
    if let Some(host) = host {
        refresh(member, host);
    }
    // It may have been confirmed to a ledger that is lost. Any other release of a SIPCluster that is gone is confirmed by its agent.
    let abandoned = view.existence.is_missing(cluster)
        && member.release_reason != Some(ReleaseReason::Orphaned)
        && view.positions.is_before_loss(member.revision);
    let presumed_confirmed = abandoned || view.promises.wants(id, cluster);
    let observed = host.map(|host| {
        let mut mark = view.positions.mark(host.release_mark());
        // Statuses are written before hosts are: a release that is lost would be in it.
        let is_claimed = |observed| claims_of_lost_ledger::claims_host(observed, id);
        mark.lost = mark.lost && !view.existence.get(cluster).is_some_and(is_claimed);
        (mark, host.labels_for(cluster))
    });
    if is_freed(member, observed, presumed_confirmed, view.synced) {
        return true;
    }
    let labels = observed.map(|(_, labels)| labels);
    if member.state != MemberState::Releasing && labels == Some(Labels::Ours(&member.role)) {
        member.state = MemberState::Bound;
    }
    false
}

/// Members whose hosts were made again with the cluster's labels (a restore, a pivot) continue as those. Where the new host does
/// not show an address of the member, the former host is released like any other: load balancers may route to that address, which may
/// be another machine's by now. At most `most` of those are added: beyond that the member keeps its addresses, as one that has moved.
/// Returns how many were added.
fn follow_recreated_hosts(view: View<'_>, record: &mut Record, most: usize) -> usize {
    let mut places = 0;
    let again = |id: &HostId, member: &Member| {
        let now = view.inventory.incarnation(&id.name).filter(|now| *now != id)?;
        let labels = view.reported(now)?.labels_for(&record.cluster);
        let follows = labels == Labels::Ours(&member.role)
            && !record.members.contains_key(now)
            && view.inventory.other_holder(now, &record.cluster).is_none();
        follows.then(|| (id.clone(), now.clone()))
    };
    // Several incarnations of one host can be members, the later of them live: that one continues. The others are gone.
    let order = |id: &HostId| {
        let member = record.members.get(id);
        member.map(|member| (member.state != MemberState::Releasing, member.revision))
    };
    let mut moved: BTreeMap<HostId, HostId> = BTreeMap::new();
    for (before, now) in record.members.iter().filter_map(|(id, member)| again(id, member)) {
        let other = moved.get(&now);
        if other.is_none_or(|other| order(other) < order(&before)) {
            moved.insert(now, before);
        }
    }
    for (now, before) in moved {
        let Some(mut member) = record.members.remove(&before) else {
            continue;
        };
        // A release that this host shows, now or in a later report, was of an earlier claim than this.
        if member.state != MemberState::Releasing {
            member.renumber();
        }
        let host = view.reported(&now).map(observed::Host::details);
        let host = host.filter(|host| places < most && lacks(&host.addresses, &member));
        if let Some(host) = host {
            places += 1;
            record.members.insert(before.clone(), left_behind(member.clone()));
            member.addresses.clone_from(&host.addresses);
        }
        member.confirmed = false;
        for other in record.members.values_mut() {
            follow_replaced(other, &before, &now);
        }
        record.members.insert(now, member);
    }
    places
}

/// Updates a member that replaces the host `before`, after that member has moved on to the recreated host `now`.
fn follow_replaced(member: &mut Member, before: &HostId, now: &HostId) {
    if let Some(Replaces::Beside(host) | Replaces::Alone(host)) = &mut member.replaces
        && host == before
    {
        host.clone_from(now);
    }
}

/// A status tells by revisions whether a replacement was claimed after the member beside it: if that one has a new number, so has this.
/// A mark that is not below the claim is of a release by a ledger that is lost, and must be known as that.
fn claim_after_old(view: View<'_>, record: &mut Record) {
    let is_live = |member: &Member| member.state != MemberState::Releasing;
    let is_early = |member: &Member| match &member.replaces {
        Some(Replaces::Beside(old)) => record
            .members
            .get(old)
            .is_some_and(|old| is_live(old) && (!old.is_numbered() || old.revision > member.revision)),
        Some(Replaces::Alone(_)) | None => false,
    };
    let is_released = |id: &HostId, member: &Member| {
        let host = view.reported(id);
        host.is_some_and(|host| host.release_mark() >= member.revision)
    };
    let early: Vec<HostId> = record
        .members
        .iter()
        .filter(|(id, member)| is_live(member) && is_early(member) && !is_released(id, member))
        .map(|(id, _)| id.clone())
        .collect();
    for id in early {
        if let Some(member) = record.members.get_mut(&id) {
            member.renumber();
        }
    }
}

/// When its role has got another topology key, a member's domain is what its host shows of that; and when its host is gone, what that
/// has shown last.
fn follow_topology_key(view: View<'_>, id: &HostId, member: &mut Member, role: Option<&Role>) {
    let Some(key) = role.and_then(|role| role.topology_key.as_ref()) else {
        return;
    };
    let has_other_key = member.domain.as_ref().is_none_or(|domain| domain.key != *key);
    let shown = view.reported(id).filter(|_| has_other_key);
    let labels = shown.map(|host| &host.facts().labels);
    if let Some(labels) = labels.or_else(|| view.inventory.last_labels(id)) {
        member.domain = domain(labels, key);
    }
}

/// Members that a newer status names are what it says, whatever became of them since the record was written.
fn take_over_promises(view: View<'_>, record: &mut Record) {
    for (id, promise) in view.promises.held(&record.cluster).into_iter().flatten() {
        let Some(member) = record.members.get_mut(id) else {
            continue;
        };
        let Promise {
            role,
            state,
            domain,
            replaces,
            ordinal,
            release_reason,
        } = promise;
        member.ordinal = ordinal.or(member.ordinal);
        member.replaces.clone_from(replaces);
        if view.reported(id).is_none() && domain.is_some() {
            member.domain.clone_from(domain);
        }
        if record.releasing {
            member.begin_final_release(ReleaseReason::Deleted);
        } else if *state == MemberState::Releasing {
            let reason = release_reason.unwrap_or(ReleaseReason::Surplus);
            member.begin_release(reason);
            // The record may know an earlier release.
            member.release_reason = Some(reason);
        } else {
            member.state = *state;
            member.role.clone_from(role);
            member.release_reason = None;
        }
        member.confirmed = false;
        member.renumber();
    }
}

/// Hosts that carry the cluster's labels or that its status names, and that nobody else holds, become members: SIP
/// placed them, or a ledger that is lost.
fn adopt(view: View<'_>, record: &mut Record) {
    if record.uid == MISSING_UID {
        return;
    }
    let none = BTreeMap::new();
    let promised = view.promises.held(&record.cluster).unwrap_or(&none);
    let labelled = view.inventory.labelled(&record.cluster);
    let candidates: BTreeSet<&HostId> = labelled.chain(promised.keys()).collect();
    for id in candidates {
        if record.members.contains_key(id) || view.inventory.other_holder(id, &record.cluster).is_some() {
            continue;
        }
        let promise = promised.get(id);
        let releasing = promise.is_some_and(|promise| promise.state == MemberState::Releasing);
        let host = view.reported(id);
        let labels = host.map_or(Labels::None, |host| host.labels_for(&record.cluster));
        let (role, state) = match (labels, promise) {
            (Labels::Ours(role), _) => (role.clone(), MemberState::Bound),
            (Labels::None | Labels::Partial | Labels::Others(_), Some(promise)) => {
                (promise.role.clone(), promise.state)
            }
            (Labels::None | Labels::Partial | Labels::Others(_), None) => continue,
        };
        let mut member = adopted(view, record, id, role, state);
        if host.is_none() {
            member.domain = promise.and_then(|promise| promise.domain.clone());
        }
        member.replaces = promise.and_then(|promise| promise.replaces.clone());
        member.ordinal = promise.and_then(|promise| promise.ordinal);
        if releasing || record.releasing {
            member.state = MemberState::Bound;
            let reason = if record.releasing {
                ReleaseReason::Deleted
            } else {
                let reason = promise.and_then(|promise| promise.release_reason);
                reason.unwrap_or(ReleaseReason::Surplus)
            };
            member.begin_release(reason);
        }
        if member.state != MemberState::Releasing {
            let told = if promise.is_some() { promised } else { &none };
            restore_pair(record, (id, &mut member), told);
        }
        record.members.insert(id.clone(), member);
    }
}

/// Keeps a member that comes back beside the one that was claimed in its place and is not bound yet: its host was gone, and a backup that
/// was restored may know nothing of it. `told`: members of a status that names both, which tells whether they are a pair. If the first was
/// released and claimed again, they are none. Both have one number from then on, by which a status tells them as a pair.
fn restore_pair(
    record: &mut Record,
    (id, returned): (&HostId, &mut Member),
    told: &BTreeMap<HostId, Promise>,
) {
    for (new, member) in &mut record.members {
        let is_unbound = member.state == MemberState::Claimed;
        let is_told = told.get(new).is_some_and(|promise| promise.replaces.is_some());
        if is_unbound
            && !is_told
            && member
                .replaces
                .as_ref()
                .is_some_and(|old| old.host().name == id.name)
        {
            member.replaces = Some(Replaces::Beside(id.clone()));
            returned.ordinal = returned.ordinal.or(member.ordinal);
            member.ordinal = returned.ordinal;
        }
    }
}

/// A host as a member of the cluster that its labels or status name.
pub(super) fn adopted(
    view: View<'_>,
    record: &Record,
    id: &HostId,
    role: RoleName,
    state: MemberState,
) -> Member {
    let wanted = record.spec.roles().iter().find(|wanted| wanted.name == role);
    let key = wanted.and_then(|role| role.topology_key.as_ref());
    let domain = key
        .zip(view.reported(id))
        .and_then(|(key, host)| domain(&host.facts().labels, key));
    let mut member = new_member(view, id, role, domain, state);
    // It is not known how it was before it went: it may have been paused for a pivot.
    member.suspended |= view.reported(id).is_none();
    member
}

/// A host that begins to be a member.
pub(super) fn new_member(
    view: View<'_>,
    id: &HostId,
    role: RoleName,
    domain: Option<Domain>,
    state: MemberState,
) -> Member {
    let mut member = Member::new(role, domain, state);
    if let Some(host) = view.reported(id) {
        refresh(&mut member, host);
    }
    member
}

/// The domain of a topology key that a host is in.
fn domain(labels: &BTreeMap<LabelKey, LabelValue>, key: &LabelKey) -> Option<Domain> {
    let value = labels.get(key)?;
    Some(Domain {
        key: key.clone(),
        value: value.clone(),
    })
}

/// Takes over what the host's data say now. An address that vanished stays as last known, and so does one that is another now, until
/// there is room to release it.
fn refresh(member: &mut Member, host: &observed::Host) {
    let details = host.details();
    for (network, address) in &details.addresses {
        if !member.addresses.contains_key(network) {
            member.addresses.insert(network.clone(), *address);
        }
    }
    if !details.bmc_address.is_empty() {
        member.bmc_address.clone_from(&details.bmc_address);
    }
}
