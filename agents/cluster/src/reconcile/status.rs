//! The part of a `SIPCluster`'s status that this agent owns, and when it changes.

use std::collections::BTreeSet;

use api::{
    Member, MemberState, Placement, SIPCluster, SIPClusterStatus, TenantNodes,
    conditions::{self, ConditionType},
};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kit::{
    conditions::Finding,
    placement::{self as placed, Position},
};
use serde::Serialize;
use serde_json::Value;

use super::{
    members::{is_succeeded, rank},
    summary::{self, Tally},
};

/// Condition types that this agent owns.
const OWNED_TYPES: [ConditionType; 6] = [
    conditions::SCHEDULED,
    conditions::HOSTS_LABELED,
    conditions::READY,
    conditions::CLUSTER_API_SYNCED,
    conditions::SERVICES_SKIPPED,
    conditions::STALLED,
];

/// What this agent writes to the status of a `SIPCluster`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OwnStatus {
    /// Conditions of the types that it owns, without `Stalled`, which follows from all conditions.
    pub(super) findings: Vec<Finding>,
    /// The placement; `None` leaves the one that is there.
    pub(super) placement: Option<Placement>,
    /// How many members there are; `None` leaves what is there.
    pub(super) tally: Option<Tally>,
    /// What is known of the Nodes of the tenant's cluster.
    pub(super) tenant_nodes: Option<TenantNodes>,
}

/// The status to apply, if it differs from the one that was observed.
pub(super) fn change(object: &SIPCluster, own: OwnStatus, now: Timestamp) -> Option<SIPClusterStatus> {
    let next = next_status(object, own, now);
    (owned(object) != next).then_some(next)
}

/// What is applied: the status to apply, and a placement that cannot be read as it is, since an apply removes what it leaves out.
#[derive(Debug, Serialize)]
pub(super) struct Applied<'a> {
    #[serde(flatten)]
    status: &'a SIPClusterStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    placement: Option<&'a Value>,
}

impl<'a> Applied<'a> {
    /// The status to apply to this object.
    pub(super) fn new(object: &'a SIPCluster, status: &'a SIPClusterStatus) -> Self {
        let as_written = object.spec.left_out.placement.as_ref();
        Self {
            status,
            placement: as_written.filter(|_| status.placement.is_none()),
        }
    }
}

/// Whether the status holds exactly this placement.
pub(super) fn has_placement(object: &SIPCluster, placement: &placed::Placement) -> bool {
    placement_in_status(object)
        .is_some_and(|held| Position::new(held.epoch, held.revision) == placement.position())
}

/// The placement in the status.
pub(super) fn placement_in_status(object: &SIPCluster) -> Option<&Placement> {
    object.status.as_ref()?.placement.as_ref()
}

/// Since when the status has asked the other agents to delete what they made for a cluster that is being deleted; `None` while it does not.
pub(super) fn released_since(object: &SIPCluster) -> Option<&Time> {
    let status = object.status.as_ref()?;
    let is_empty = status
        .placement
        .as_ref()
        .is_none_or(|held| held.members.is_empty());
    let is_current = status.observed_generation == object.metadata.generation;
    status.observed_since.as_ref().filter(|_| is_empty && is_current)
}

/// The conditions in the status.
pub(super) fn conditions(object: &SIPCluster) -> &[Condition] {
    let status = object.status.as_ref();
    status.map(|status| &*status.conditions).unwrap_or_default()
}

/// The part of the status there that is this agent's.
fn owned(object: &SIPCluster) -> SIPClusterStatus {
    let status = object.status.clone().unwrap_or_default();
    SIPClusterStatus {
        observed_generation: status.observed_generation,
        observed_since: status.observed_since,
        conditions: sorted(
            status
                .conditions
                .into_iter()
                .filter(|c| OWNED_TYPES.iter().any(|own| own.as_str() == c.type_))
                .collect(),
        ),
        placement: status.placement,
        tenant_nodes: status.tenant_nodes,
        counts: status.counts,
        roles: status.roles,
        state: status.state,
        ..SIPClusterStatus::default()
    }
}

fn next_status(object: &SIPCluster, own: OwnStatus, now: Timestamp) -> SIPClusterStatus {
    let OwnStatus {
        mut findings,
        placement,
        tally,
        tenant_nodes,
    } = own;
    let before = object.status.clone().unwrap_or_default();
    let generation = object.metadata.generation.unwrap_or_default();
    // Once a cluster that is being deleted holds no host, the other agents have to delete what they made.
    let has_members = |held: &Placement| !held.members.is_empty();
    let releases_last = object.metadata.deletion_timestamp.is_some()
        && before.placement.as_ref().is_some_and(has_members)
        && placement.as_ref().is_some_and(|next| !has_members(next));
    let observed_since = if before.observed_generation == Some(generation) && !releases_last {
        before.observed_since
    } else {
        Some(Time(now))
    };
    let stalled = summary::stalled(object, &findings);
    let state = summary::state(&findings, stalled.as_ref());
    findings.extend(stalled);
    let (counts, roles) = tally.map_or((before.counts, before.roles), |tally| {
        (Some(tally.counts), tally.roles)
    });
    let conditions: Vec<Condition> = findings
        .into_iter()
        .map(|finding| finding.condition(&before.conditions, generation, now))
        .collect();
    SIPClusterStatus {
        observed_generation: Some(generation),
        observed_since,
        conditions: sorted(conditions),
        placement: placement
            .map(|next| since(next, before.placement.as_ref(), now))
            .or(before.placement),
        tenant_nodes,
        counts,
        roles,
        state: Some(state),
        ..SIPClusterStatus::default()
    }
}

fn sorted(mut conditions: Vec<Condition>) -> Vec<Condition> {
    conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    conditions
}

/// Keeps the time at which each member entered its state, and that of the newest release that no member shows. Waits count from it, so a
/// time that is still to come, which another clock wrote, is not kept.
fn since(mut next: Placement, before: Option<&Placement>, now: Timestamp) -> Placement {
    let same =
        before.filter(|before| (before.epoch, before.former_release) == (next.epoch, next.former_release));
    let known = same.and_then(|before| before.former_since.clone());
    next.former_since = next.former_release.map(|_| known.unwrap_or(Time(now)));
    for member in &mut next.members {
        let known = before.and_then(|before| before.members.iter().find(|known| known.uid == member.uid));
        let same = known.filter(|known| known.state == member.state);
        member.since = same.map_or_else(
            || Some(Time(now)),
            |known| known.since.clone().min(Some(Time(now))),
        );
    }
    next
}

/// The scheduler's placement as the status holds it.
#[must_use]
pub(super) fn placement(placed: &placed::Placement) -> Placement {
    let position = placed.position();
    Placement {
        epoch: position.epoch(),
        revision: position.revision(),
        generation: placed.generation(),
        members: newest_of_each_name(placed.members())
            .into_iter()
            .map(|one| member(one, placed.members()))
            .collect(),
        former_release: former_release(placed.members()),
        former_since: None,
    }
}

/// The newest release among members that [`newest_of_each_name`] leaves out and that no load balancer may route to.
fn former_release(members: &[placed::Member]) -> Option<u64> {
    let written: Vec<_> = newest_of_each_name(members);
    let written: BTreeSet<_> = written.iter().map(|member| member.host()).collect();
    let former = members.iter().filter(|member| {
        member.is_releasing() && !written.contains(member.host()) && !is_succeeded(member, members)
    });
    former.map(placed::Member::revision).max()
}

/// The API server knows members by namespace and name. Where a host was made again, and the one that is gone is not given
/// back yet, the placement has both: the newest claim is in the status, and of the others [`former_release`].
fn newest_of_each_name(members: &[placed::Member]) -> Vec<&placed::Member> {
    let mut newest: Vec<&placed::Member> = members.iter().collect();
    newest.sort_by(|a, b| a.host().key().cmp(b.host().key()).then(rank(b).cmp(&rank(a))));
    newest.dedup_by_key(|member| member.host().key().clone());
    newest
}

fn member(placed: &placed::Member, among: &[placed::Member]) -> Member {
    let host = placed.host();
    Member {
        namespace: host.key().namespace.clone(),
        name: host.key().name.clone(),
        uid: host.uid().to_owned(),
        role: placed.role().to_owned(),
        ordinal: placed.ordinal(),
        domain: placed.domain().map(str::to_owned),
        state: placed.state(),
        revision: placed.revision(),
        since: None,
        failed_since: placed.failed_since().map(Time),
        replaces: replaced(placed, among),
        release_reason: placed.release_reason().map(str::to_owned),
        machine: None,
    }
}

/// Whose place a member takes: named until it has it.
fn replaced(member: &placed::Member, among: &[placed::Member]) -> Option<String> {
    let old = member.replaces()?;
    let there = among.iter().any(|other| other.host() == old);
    let takes = there || member.state() == MemberState::Claimed;
    takes.then(|| old.to_string())
}

#[cfg(test)]
mod tests {
    use api::MemberState::{Bound, Claimed, Releasing};

    use super::*;
    use crate::fixtures::{self, answer as member};
    use proto::{inventory::v1 as wire, placement::v1 as placed};

    #[test]
    fn a_placement_that_cannot_be_read_is_applied_as_it_is() {
        let mut object = fixtures::cluster(&serde_json::json!({}));
        let change = change(&object, OwnStatus::default(), Timestamp::UNIX_EPOCH).unwrap();
        let applied = |object: &SIPCluster| serde_json::to_value(Applied::new(object, &change)).unwrap();
        assert_eq!(applied(&object), serde_json::to_value(&change).unwrap());
        let as_written = serde_json::json!({ "epoch": 1, "members": "Unheard of" });
        object.spec.left_out.placement = Some(as_written.clone());
        assert_eq!(applied(&object)["placement"], as_written);
        assert_eq!(applied(&object)["observedGeneration"], 3);
    }

    #[test]
    fn each_generation_has_its_time() {
        let time = |second| Timestamp::from_second(second).unwrap();
        let observed = |status: &serde_json::Value| {
            let next = next_status(&crate::fixtures::cluster(status), OwnStatus::default(), time(900));
            next.observed_since.map(|since| since.0)
        };
        let since = |generation: i64| serde_json::json!({ "observedGeneration": generation, "observedSince": "1970-01-01T00:01:40Z" });
        assert_eq!(observed(&serde_json::json!({})), Some(time(900)));
        assert_eq!(observed(&since(2)), Some(time(900)));
        assert_eq!(observed(&since(3)), Some(time(100)));
        // Written by an agent that knew no times of generations: nothing is written for it alone.
        assert_eq!(observed(&serde_json::json!({ "observedGeneration": 3 })), None);
    }

    #[test]
    fn a_time_that_is_still_to_come_is_written_anew() {
        let time = |second| Timestamp::from_second(second).unwrap();
        let of = |state, since: Option<i64>| {
            let mut placement = placement(&fixtures::placement(vec![member("h1", state)]));
            placement.members[0].since = since.map(|second| Time(time(second)));
            placement
        };
        for (before, expected) in [
            (of(Releasing, Some(100)), Some(100)),
            (of(Releasing, Some(900)), Some(900)),
            // A clock that was a day ahead wrote it.
            (of(Releasing, Some(87_300)), Some(900)),
            (of(Releasing, None), None),
            (of(Bound, Some(100)), Some(900)),
        ] {
            let mut written = since(of(Releasing, None), Some(&before), time(900)).members;
            let written = written.remove(0).since.map(|since| since.0);
            assert_eq!(written, expected.map(time), "{before:?}");
        }
    }

    #[test]
    fn a_release_that_no_member_shows_is_written() {
        let at = |address: &str, member: placed::Member| placed::Member {
            addresses: [("oam".to_owned(), address.to_owned())].into(),
            ..member
        };
        let again = |state| placed::Member {
            host: Some(wire::HostRef {
                uid: "uid-again".to_owned(),
                ..member("h1", state).host.unwrap()
            }),
            ..member("h1", state)
        };
        let released = placed::Member {
            revision: 9,
            ..member("h1", Releasing)
        };
        let old = at("192.0.2.1", released);
        for (others, expected) in [
            (vec![], None),
            (vec![at("192.0.2.2", again(Claimed))], Some(9)),
            (vec![at("192.0.2.1", again(Claimed))], None),
        ] {
            let members = others.into_iter().chain([old.clone()]).collect();
            let written = placement(&fixtures::placement(members));
            assert_eq!(written.former_release, expected, "{:?}", written.members);
        }
    }

    #[test]
    fn a_release_that_no_member_shows_has_a_time() {
        let time = |second| Timestamp::from_second(second).unwrap();
        let held = |epoch, former_release, since: Option<i64>| Placement {
            epoch,
            former_release,
            former_since: since.map(|second| Time(time(second))),
            ..Placement::default()
        };
        for (before, next, expected) in [
            (None, held(1, None, None), None),
            (None, held(1, Some(9), None), Some(900)),
            (Some(held(1, None, None)), held(1, Some(9), None), Some(900)),
            (
                Some(held(1, Some(9), Some(100))),
                held(1, Some(9), None),
                Some(100),
            ),
            (
                Some(held(1, Some(9), Some(100))),
                held(1, Some(11), None),
                Some(900),
            ),
            (
                Some(held(1, Some(9), Some(100))),
                held(2, Some(9), None),
                Some(900),
            ),
            (Some(held(1, Some(9), Some(100))), held(1, None, None), None),
            // Written by an agent that knew no such time.
            (Some(held(1, Some(9), None)), held(1, Some(9), None), Some(900)),
        ] {
            let written = since(next, before.as_ref(), time(900));
            let written = written.former_since.map(|since| since.0);
            assert_eq!(written, expected.map(time), "{before:?}");
        }
    }

    #[test]
    fn of_hosts_of_one_name_the_newest_claim_is_written() {
        let again = |state, revision| placed::Member {
            host: Some(wire::HostRef {
                uid: format!("uid-again-{revision}"),
                ..member("h1", state).host.unwrap()
            }),
            revision,
            ..member("h1", state)
        };
        let written = |members: Vec<placed::Member>| -> Vec<(String, u64)> {
            let members = placement(&fixtures::placement(members)).members.into_iter();
            members.map(|member| (member.name, member.revision)).collect()
        };
        let (h1, h2) = (("h1".to_owned(), 7), ("h2".to_owned(), 5));
        assert_eq!(
            written(vec![
                member("h2", Bound),
                member("h1", Releasing),
                again(Claimed, 7)
            ]),
            [h1.clone(), h2]
        );
        // A claim is written though a release is newer: it is what the tenant has.
        assert_eq!(written(vec![again(Claimed, 7), again(Releasing, 9)]), [h1]);
        assert_eq!(
            written(vec![again(Releasing, 7), again(Releasing, 9)]),
            [("h1".to_owned(), 9)]
        );
    }
}
