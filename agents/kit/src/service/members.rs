//! The members that a cluster's instances connect to.

use std::collections::BTreeMap;

use api::{MemberState, Placement};

use super::{error::Error, observed::Observed};
use crate::{
    placement::{self, ClusterId, Member, Position},
    scheduler_client::Scheduler,
};

/// The members of a cluster by role: those that the status holds and that are not releasing. Nothing acts on a claim before
/// the status holds it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Members(BTreeMap<String, Vec<Member>>);

impl Members {
    pub(super) fn new(held: &Placement, placement: &placement::Placement) -> Self {
        let mut by_role: BTreeMap<String, Vec<Member>> = BTreeMap::new();
        for member in placement.members() {
            let known = held.members.iter().any(|held| held.uid == member.host().uid());
            if known && !member.is_releasing() {
                let role = member.role().to_owned();
                by_role.entry(role).or_default().push(member.clone());
            }
        }
        Self(by_role)
    }

    /// The members that a status holds and does not release.
    pub(super) fn still_held(&self, held: &Placement) -> Self {
        let is_held = |member: &&Member| {
            let mut held = held.members.iter();
            held.any(|held| held.uid == member.host().uid() && held.state != MemberState::Releasing)
        };
        let by_role = self.0.iter().map(|(role, members)| {
            let members = members.iter().filter(is_held).cloned();
            (role.clone(), members.collect())
        });
        Self(by_role.collect())
    }

    /// All of them: by role, and of each in the scheduler's order.
    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        self.0.values().flatten()
    }

    /// The members of a role, in the scheduler's order.
    #[must_use]
    pub fn of_role(&self, role: &str) -> &[Member] {
        self.0.get(role).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Asks the scheduler for the members that a cluster holds, not older than its status. `None`: the scheduler does not know the
/// cluster.
pub(super) async fn members(
    scheduler: &Scheduler,
    observed: &Observed<'_>,
    held: &Placement,
) -> Result<Option<Members>, Error> {
    let cluster = ClusterId::for_object(observed.object());
    let at_least = Position::new(held.epoch, held.revision);
    let placement = scheduler.placement(&cluster, Some(at_least)).await;
    let placement = placement.map_err(|status| Error::Scheduler(Box::new(status)))?;
    Ok(placement.map(|placement| Members::new(held, &placement)))
}

/// The revision that is applied once every member in the status is applied: that of the newest claim or release, including a release that
/// `members` does not show. It does not change when hosts are bound, so that agents do not react to each other's status without end.
#[must_use]
pub fn revision(held: &Placement) -> u64 {
    held.members
        .iter()
        .map(|member| member.revision)
        .chain(held.former_release)
        .max()
        .unwrap_or_default()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::placement::{HostId, ObjectKey};

    pub(in super::super) fn held(uid: &str, state: &str) -> api::Member {
        let member = serde_json::json!({
            "namespace": "metal", "name": uid, "uid": uid, "role": "Worker", "state": state, "revision": 1,
        });
        serde_json::from_value(member).unwrap()
    }

    fn key(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    fn placed(uid: &str, state: MemberState) -> Member {
        Member {
            host: HostId::new(key("metal", uid), uid),
            role: "Worker".to_owned(),
            ordinal: None,
            domain: None,
            state,
            revision: 1,
            addresses: BTreeMap::new(),
            failed_since: None,
            move_requested: false,
            release_reason: None,
            replaces: None,
        }
    }

    /// What the scheduler answers about a cluster with these hosts.
    pub(in super::super) fn answer(bound: &[&str]) -> placement::Placement {
        let bound = bound.iter().map(|uid| placed(uid, MemberState::Bound));
        placement(bound.collect())
    }

    pub(in super::super) fn uids(members: &Members) -> Vec<&str> {
        let workers = members.of_role("Worker").iter();
        workers.map(|member| member.host().uid()).collect()
    }

    fn placement(members: Vec<Member>) -> placement::Placement {
        placement::Placement {
            cluster: ClusterId::new(key("tenant", "shop"), "u"),
            generation: 1,
            position: Position::new(1, 1),
            members,
            refusal: None,
            reports: Vec::new(),
        }
    }

    #[test]
    fn members_are_held_by_the_status_and_not_releasing() {
        let held = Placement {
            members: ["a", "b", "c"].map(|uid| held(uid, "Bound")).into(),
            ..Placement::default()
        };
        let answer = placement(vec![
            placed("a", MemberState::Bound),
            placed("b", MemberState::Releasing),
            placed("c", MemberState::Claimed),
            placed("d", MemberState::Claimed),
        ]);
        let members = Members::new(&held, &answer);
        assert_eq!(uids(&members), ["a", "c"]);
        assert!(members.of_role("ControlPlane").is_empty());
    }
}
