//! For how long hosts wait for the deletion of their Nodes. It counts from when this process wanted and tried it, not from when the host began
//! to leave: that may be long ago, because a consumer was on it or the agent was away. Pure; the time is an argument.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::{Action, Problem, Wanted, WantedMember, poll::Found};

/// For how long from when the first poll began that tried it.
const TRIED: Duration = Duration::from_secs(30);
/// For how long from when it was first wanted, at most: a poll of 15 s that began before, its rest of nine times as long, and these 30 s.
pub const LONGEST: Duration = Duration::from_mins(3);

/// By the uid of the host.
#[derive(Debug, Default)]
pub(super) struct Deletions(BTreeMap<String, Deletion>);

#[derive(Debug)]
struct Deletion {
    wanted: Instant,
    tried: Option<Instant>,
}

impl Deletions {
    /// This is wanted of the members from now on.
    pub(super) fn want(&mut self, members: &[WantedMember], now: Instant) {
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

    /// A poll has ended that began then with this. Returns whether it was the first to try one.
    pub(super) fn end(&mut self, wanted: &Wanted, began: Instant, found: &Result<Found, Problem>) -> bool {
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

    /// For how long each host still waits.
    pub(super) fn left(&self, now: Instant) -> BTreeMap<String, Duration> {
        let left = |most: Duration, since| most.saturating_sub(now.saturating_duration_since(since));
        let each = self.0.iter().map(|(uid, Deletion { wanted, tried })| {
            let longest = left(LONGEST, *wanted);
            let still = tried.map_or(longest, |tried| left(TRIED, tried).min(longest));
            (uid.clone(), still)
        });
        each.collect()
    }
}
