//! How long hosts wait for the deletion of their Nodes. The time counts from when this process wanted and tried the deletion, not from when the
//! host began to leave: a consumer, or an agent that did not run, may have delayed the deletion since. Pure; the time is an argument.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::{Action, Problem, Wanted, WantedMember, poll::Observation};

/// Time that a host waits from the beginning of the first poll that tried the deletion, at most.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
/// Time that a host waits since a pass first wanted the deletion, at most: a poll of 15 s that had begun before, its pause of nine times as long, and
/// `ATTEMPT_TIMEOUT`.
pub const WAIT_TIMEOUT: Duration = Duration::from_mins(3);

/// By the uid of the host.
#[derive(Debug, Default)]
pub(super) struct Deletions(BTreeMap<String, Deletion>);

#[derive(Debug)]
struct Deletion {
    wanted: Instant,
    tried: Option<Instant>,
}

impl Deletions {
    /// Records the members whose Nodes a pass wants deleted, and forgets the others.
    pub(super) fn set_wanted(&mut self, members: &[WantedMember], now: Instant) {
        let deleted = members.iter().filter(|member| member.action == Action::Delete);
        let deleted: BTreeSet<&str> = deleted.map(|member| member.host.uid()).collect();
        self.0.retain(|uid, _| deleted.contains(&**uid));
        for uid in deleted {
            self.0.entry(uid.to_owned()).or_insert(Deletion {
                wanted: now,
                tried: None,
            });
        }
    }

    /// Records the deletions that a poll has tried, which began at this time. Returns whether one of them was tried for the first time.
    pub(super) fn end(
        &mut self,
        wanted: &Wanted,
        began: Instant,
        found: &Result<Observation, Problem>,
    ) -> bool {
        let mut is_first = false;
        let members = wanted.members.iter();
        for member in members.filter(|member| member.action == Action::Delete) {
            let uid = member.host.uid();
            let came = found.as_ref().is_ok_and(|found| found.drains.contains_key(uid));
            if let Some(deletion) = self.0.get_mut(uid)
                && (came || found.is_err())
            {
                is_first |= deletion.tried.is_none();
                deletion.tried.get_or_insert(began);
            }
        }
        is_first
    }

    /// How long each host still waits.
    pub(super) fn remaining(&self, now: Instant) -> BTreeMap<String, Duration> {
        let left = |most: Duration, since| most.saturating_sub(now.saturating_duration_since(since));
        let each = self.0.iter().map(|(uid, Deletion { wanted, tried })| {
            let longest = left(WAIT_TIMEOUT, *wanted);
            let still = tried.map_or(longest, |tried| left(ATTEMPT_TIMEOUT, tried).min(longest));
            (uid.clone(), still)
        });
        each.collect()
    }
}
