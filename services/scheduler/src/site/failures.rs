//! Members whose hosts fail: since when, and when that is decided though nothing is reported.
//!
//! Times are points in time and are stored in the ledger, so that neither a restart of the scheduler nor one of the agent
//! begins them anew.

use std::time::{Duration, SystemTime};

use ::placement::{ClusterName, FailReason, HostId, MemberState, Role};

use super::{requested_releases::is_request, view::View};
use crate::record::{Member, Record};

/// How long a host may be gone that was paused or detached when it was observed last, before that is a failure: `clusterctl
/// move`, or a restore, deletes the objects of hosts and makes them again under new uids.
pub const MISSING_LIMIT: Duration = Duration::from_mins(10);

const SECOND: Duration = Duration::from_secs(1);

/// Takes in how a member's host is: since when it is unwell, and since when it has failed or is to be moved.
pub(super) fn observe(
    view: View<'_>,
    id: &HostId,
    member: &mut Member,
    role: Option<&Role>,
    now: SystemTime,
) {
    let (unwell, since) = match view.reported(id) {
        None => (member.suspended, None),
        Some(host) => {
            // Errors of a suspended host do not count, so the stored time is since when the host was gone; now it is back.
            if member.suspended {
                member.unwell_since = None;
            }
            member.suspended = host.is_suspended();
            let counts = role.is_some_and(|role| role.replace_after_error.is_some());
            // metal3 does not update the status of a suspended host, so an error in it may be old.
            let unwell = host.is_in_error() && counts && !member.suspended;
            (unwell, host.details().error_since)
        }
    };
    member.unwell_since = unwell.then(|| since.or(member.unwell_since).unwrap_or(now));
    let reason = role.and_then(|role| failure(view, id, member, role, now));
    let is_request = reason == Some(FailReason::MoveRequested);
    member.failed_since = reason.map(|_| match member.failed_since {
        None => now,
        // Agents recognise a failure after a request to move by its later time. Statuses store whole seconds, so it is at least a second later.
        Some(since) if member.move_requested && !is_request => now.max(since + SECOND),
        Some(since) => since,
    });
    member.move_requested = is_request;
}

/// Why a member must be replaced, as its record has it.
pub(super) fn failure(
    view: View<'_>,
    id: &HostId,
    member: &Member,
    role: &Role,
    now: SystemTime,
) -> Option<FailReason> {
    let unwell_for = member
        .unwell_since
        .and_then(|since| now.duration_since(since).ok());
    if view.reported(id).is_none()
        && member.suspended
        && unwell_for.is_none_or(|missing| missing < MISSING_LIMIT)
    {
        return None;
    }
    let member = as_decided(id, member, None);
    ::placement::failure(view.inventory.model(), role, &member, unwell_for)
}

/// Whether a member can fail: one whose release is final cannot.
pub(super) fn is_observed(view: View<'_>, cluster: &ClusterName, id: &HostId, member: &Member) -> bool {
    member.state != MemberState::Releasing || is_request(view, cluster, id, member)
}

/// When the next member fails, if the site stays as it is.
pub(super) fn next(view: View<'_>) -> Option<SystemTime> {
    failing(view).map(|(_, at)| at).min()
}

/// Clusters with a member that has failed meanwhile.
pub(super) fn failed(view: View<'_>, now: SystemTime) -> Vec<ClusterName> {
    let failed = failing(view).filter(|(_, at)| *at <= now);
    let mut clusters: Vec<ClusterName> = failed.map(|(record, _)| record.cluster.clone()).collect();
    clusters.dedup();
    clusters
}

/// Members that are unwell and have not failed yet, with the time at which they will have. While the site is not synced, none.
fn failing(view: View<'_>) -> impl Iterator<Item = (&Record, SystemTime)> {
    let records = view.claims.records().values();
    let records = records.filter(move |record| view.synced && !record.releasing);
    records.flat_map(move |record| {
        let members = record.members.iter();
        members.filter_map(move |(id, member)| {
            // Checked first, since nearly all members have no such time.
            let since = member.unwell_since?;
            let has_failed = member.failed_since.is_some() && !member.move_requested;
            if has_failed || !is_observed(view, &record.cluster, id, member) {
                return None;
            }
            let role = record.spec.roles().iter().find(|role| role.name == member.role)?;
            let limit = match view.reported(id) {
                None => MISSING_LIMIT,
                Some(_) => role.replace_after_error?,
            };
            Some((&**record, since.checked_add(limit)?))
        })
    })
}

/// A member as the decision reads it.
pub(super) fn as_decided(id: &HostId, member: &Member, failed: Option<FailReason>) -> ::placement::Member {
    ::placement::Member {
        host: id.clone(),
        role: member.role.clone(),
        state: member.state,
        domain: member.domain.clone(),
        requested: false,
        failed,
        replaces: member.replaces.clone(),
    }
}
