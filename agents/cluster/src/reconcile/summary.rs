//! What the status of a `SIPCluster` states in short: members by role, whether it waits for a user, and its state in one word.

use std::collections::BTreeMap;

use api::{
    Counts, MemberState, RoleCount, SIPCluster, State,
    conditions::{self, ConditionType, Reason},
};
use kit::{
    conditions::{Finding, find},
    placement::{Member, Placement},
};

/// SIP's name of the control plane's role.
const CONTROL_PLANE: &str = "ControlPlane";

/// How many members there are.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tally {
    /// For `kubectl get`: the control plane, and all other roles together.
    pub(super) counts: Counts,
    /// For programs, in the order of the roles' names.
    pub(super) roles: Vec<RoleCount>,
}

impl Tally {
    /// The members of a placement, and how many of each role the spec sets.
    pub(super) fn new(placement: &Placement, wanted: impl IntoIterator<Item = (String, u32)>) -> Self {
        let roles = roles(placement.members(), wanted);
        Self {
            counts: Counts {
                control_plane: bound_of_wanted(&roles, |role| role == CONTROL_PLANE),
                workers: bound_of_wanted(&roles, |role| role != CONTROL_PLANE),
            },
            roles: roles.into_values().map(|(_, count)| count).collect(),
        }
    }
}

/// By role, whether the spec names it, and its members.
fn roles(
    members: &[Member],
    wanted: impl IntoIterator<Item = (String, u32)>,
) -> BTreeMap<String, (bool, RoleCount)> {
    let count = |role: &str, wanted| RoleCount {
        role: role.to_owned(),
        wanted,
        ..RoleCount::default()
    };
    let mut roles: BTreeMap<_, _> = wanted
        .into_iter()
        .map(|(role, wanted)| (role.clone(), (true, count(&role, wanted))))
        .collect();
    for member in members {
        let known = roles.entry(member.role().to_owned());
        let (_, known) = known.or_insert_with(|| (false, count(member.role(), 0)));
        let of_state = match member.state() {
            MemberState::Claimed => &mut known.claimed,
            MemberState::Bound => &mut known.bound,
            MemberState::Releasing => &mut known.releasing,
        };
        *of_state += 1;
    }
    roles
}

/// Such as `3/3`; `None` if the spec names none of the roles.
fn bound_of_wanted(
    roles: &BTreeMap<String, (bool, RoleCount)>,
    counts: impl Fn(&str) -> bool,
) -> Option<String> {
    let counted = || roles.values().filter(|(_, role)| counts(&role.role));
    if !counted().any(|(is_named, _)| *is_named) {
        return None;
    }
    let sum = |of: fn(&RoleCount) -> u32| counted().map(|(_, role)| u64::from(of(role))).sum::<u64>();
    Some(format!("{}/{}", sum(|role| role.bound), sum(|role| role.wanted)))
}

/// `Stalled`, if a condition of this generation waits for a person; those of this agent come first. A cluster that is being deleted is
/// not stalled: `Ready` states what it waits for.
pub(super) fn stalled(object: &SIPCluster, own: &[Finding]) -> Option<Finding> {
    if object.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let own = own
        .iter()
        .filter(|finding| finding.status == Some(false))
        .map(|finding| (finding.kind, finding.reason));
    let generation = object.metadata.generation.unwrap_or_default();
    let status = object.status.as_ref();
    let there = status.map(|status| &*status.conditions).unwrap_or_default();
    let others = ConditionType::ALL
        .into_iter()
        .filter(|kind| kind.owner() != conditions::STALLED.owner())
        .filter_map(|kind| {
            let condition = find(there, kind)?;
            let is_current = condition.observed_generation == Some(generation);
            let is_false = is_current && condition.status == "False";
            is_false
                .then(|| kind.reason(&condition.reason))
                .flatten()
                .map(|reason| (kind, reason))
        });
    let mut all = own.chain(others);
    let (kind, reason): (ConditionType, Reason) = all.find(|(kind, reason)| kind.stalls(*reason))?;
    let message = format!("{kind} is False until a person acts; its message states why");
    Some(Finding::yes(conditions::STALLED, reason, message))
}

/// The state in one word.
pub(super) fn state(own: &[Finding], stalled: Option<&Finding>) -> State {
    let is_ready = |finding: &Finding| finding.kind == conditions::READY && finding.status == Some(true);
    if own.iter().any(is_ready) {
        State::Ready
    } else if stalled.is_some() {
        State::Stalled
    } else {
        State::Progressing
    }
}

#[cfg(test)]
mod tests {
    use MemberState::{Bound, Claimed, Releasing};

    use super::*;
    use crate::fixtures::{self, answer, cluster};

    #[test]
    fn members_are_counted_by_role_and_state() {
        let mut control_plane = answer("h0", Bound);
        control_plane.role = "ControlPlane".to_owned();
        let mut former = answer("h9", Releasing);
        former.role = "Former".to_owned();
        let members = vec![
            answer("h1", Bound),
            control_plane,
            answer("h2", Claimed),
            former,
            answer("h3", Bound),
        ];
        let placement = fixtures::placement(members);
        let wanted = [
            ("Worker".to_owned(), 4),
            ("Storage".to_owned(), 2),
            ("ControlPlane".to_owned(), 1),
        ];
        let tally = Tally::new(&placement, wanted);
        let count = |role: &str, wanted, claimed, bound, releasing| RoleCount {
            role: role.to_owned(),
            wanted,
            claimed,
            bound,
            releasing,
        };
        assert_eq!(
            tally.roles,
            [
                count("ControlPlane", 1, 0, 1, 0),
                count("Former", 0, 0, 0, 1),
                count("Storage", 2, 0, 0, 0),
                count("Worker", 4, 1, 2, 0),
            ]
        );
        let counts = (
            tally.counts.control_plane.as_deref(),
            tally.counts.workers.as_deref(),
        );
        assert_eq!(counts, (Some("1/1"), Some("2/6")));
        let none = Tally::new(&fixtures::placement(vec![answer("h1", Bound)]), []);
        assert_eq!(none.counts, Counts::default(), "the spec names no role");
    }

    #[test]
    fn only_what_needs_a_person_stalls() {
        let condition = |kind: &str, status: &str, reason: &str, generation: i64| {
            serde_json::json!({
                "type": kind, "status": status, "reason": reason, "message": "m", "observedGeneration": generation,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        let with = |one: serde_json::Value| cluster(&serde_json::json!({ "conditions": [one] }));
        let ready = |yes| {
            let reason = [Reason::Progressing, Reason::ReconciliationSucceeded][usize::from(yes)];
            let finding = if yes { Finding::yes } else { Finding::no };
            finding(conditions::READY, reason, String::new())
        };
        let own = |kind, reason| vec![Finding::no(kind, reason, "m"), ready(false)];
        let nothing = with(condition("Other", "True", "Fine", 3));
        for (object, own, reason, state_) in [
            (&nothing, vec![ready(true)], None, State::Ready),
            (&nothing, vec![ready(false)], None, State::Progressing),
            (
                &nothing,
                own(conditions::SCHEDULED, Reason::InvalidSpec),
                Some(Reason::InvalidSpec),
                State::Stalled,
            ),
            (
                &nothing,
                own(conditions::SCHEDULED, Reason::Unschedulable),
                None,
                State::Progressing,
            ),
            (
                &with(condition("LoadBalancerReady", "False", "PortConflict", 3)),
                vec![ready(false)],
                Some(Reason::PortConflict),
                State::Stalled,
            ),
            (
                &with(condition("LoadBalancerReady", "False", "PortConflict", 2)),
                vec![ready(false)],
                None,
                State::Progressing,
            ),
            (
                &with(condition("AuthReady", "False", "DirectoryUnreachable", 3)),
                vec![ready(false)],
                None,
                State::Progressing,
            ),
        ] {
            let found = stalled(object, &own);
            assert_eq!(found.as_ref().map(|found| found.reason), reason, "{object:?}");
            assert_eq!(state(&own, found.as_ref()), state_);
        }
    }

    #[test]
    fn a_cluster_that_is_being_deleted_is_not_stalled() {
        let mut object = cluster(&serde_json::json!({}));
        let own = [Finding::no(conditions::HOSTS_LABELED, Reason::Blocked, "m")];
        assert!(stalled(&object, &own).is_some());
        object.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            k8s_openapi::jiff::Timestamp::UNIX_EPOCH,
        ));
        assert_eq!(stalled(&object, &own), None);
    }
}
