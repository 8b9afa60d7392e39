//! Members whose hosts fail: since when, and when that is to be looked at though nothing is reported.
//!
//! Times are points in time and are kept in the ledger, so that neither a restart of the scheduler nor one of the agent
//! begins them anew.

use std::time::{Duration, SystemTime};

use ::placement::{ClusterName, FailReason, HostId, MemberState, Role};
use proto::inventory::v1 as wire;

use super::{Site, settle};
use crate::{
    convert,
    record::{Member, Record},
};

/// How long a host may be gone that was paused or detached when it was seen last, before that is a failure: so it looks
/// when `clusterctl move`, or a restore, deletes the objects of hosts and makes them again under new uids.
pub const MOVE: Duration = Duration::from_mins(10);

impl Site {
    /// Takes in how a member's host is: since when it is unwell, and since when it has failed.
    pub(super) fn observe_failure(
        &self,
        id: &HostId,
        member: &mut Member,
        role: Option<&Role>,
        now: SystemTime,
    ) {
        let (unwell, seen) = match self.reported(id) {
            None => (member.suspended, None),
            Some(host) => {
                member.suspended = is_suspended(host);
                let in_error = host.operational_status() == wire::OperationalStatus::Error;
                let counts = role.is_some_and(|role| role.replace_after_error.is_some());
                // What metal3 says of a host that it was told to leave alone may be old.
                (
                    in_error && counts && !member.suspended,
                    convert::time(host.error_since),
                )
            }
        };
        member.unwell_since = unwell.then(|| seen.or(member.unwell_since).unwrap_or(now));
        let failed = role.is_some_and(|role| self.failure(id, member, role, now).is_some());
        member.failed_since = failed.then(|| member.failed_since.unwrap_or(now));
    }

    /// Why a member must be replaced, as its record has it.
    pub(super) fn failure(
        &self,
        id: &HostId,
        member: &Member,
        role: &Role,
        now: SystemTime,
    ) -> Option<FailReason> {
        let unwell_for = member
            .unwell_since
            .and_then(|since| now.duration_since(since).ok());
        if self.reported(id).is_none() && member.suspended && unwell_for.is_none_or(|gone| gone < MOVE) {
            return None;
        }
        ::placement::failure(&self.model, role, &settle::member(id, member, None), unwell_for)
    }

    /// When the next member fails, if the site goes on as it is.
    #[must_use]
    pub fn next_failure(&self) -> Option<SystemTime> {
        if !self.session.synced() {
            return None;
        }
        self.failing().map(|(_, at)| at).min()
    }

    /// Clusters with a member that has failed meanwhile.
    #[must_use]
    pub fn failed_meanwhile(&self, now: SystemTime) -> Vec<ClusterName> {
        let over = self
            .failing()
            .filter(|(_, at)| *at <= now && self.session.synced());
        let mut clusters: Vec<ClusterName> = over.map(|(record, _)| record.cluster.clone()).collect();
        clusters.dedup();
        clusters
    }

    /// Members that are unwell and have not failed yet, with the time at which they will have.
    fn failing(&self) -> impl Iterator<Item = (&Record, SystemTime)> {
        let records = self.records.values().filter(|record| !record.releasing);
        records.flat_map(move |record| {
            let unwell = record.members.iter().filter(|(_, member)| {
                member.state != MemberState::Releasing && member.failed_since.is_none()
            });
            unwell.filter_map(move |(id, member)| {
                // First of all, since it says no for nearly all of them.
                let since = member.unwell_since?;
                let role = record.spec.roles().iter().find(|role| role.name == member.role)?;
                let limit = match self.reported(id) {
                    None => MOVE,
                    Some(_) => role.replace_after_error?,
                };
                Some((&**record, since.checked_add(limit)?))
            })
        })
    }
}

/// Whether metal3 was told to leave a host alone.
fn is_suspended(host: &wire::Host) -> bool {
    host.paused || host.detached || host.operational_status() == wire::OperationalStatus::Detached
}
