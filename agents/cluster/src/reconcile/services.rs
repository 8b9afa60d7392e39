//! What the other agents report of a cluster's services, and what waits for it.

use std::{collections::BTreeSet, time::Duration};

use api::{
    Cluster, Drained, MemberState, SIPCluster,
    conditions::{self, ConditionType},
};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kit::placement::{Member, Placement};
use kit::{conditions::find, config::Section};

/// Time within which an agent has to answer a section; after it the section is reported as `NoAgent`.
pub(super) const AGENT_TIMEOUT: Duration = Duration::from_mins(1);

/// Whether the services are ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// All are ready.
    Ready,
    /// Some are being made ready; for messages.
    Progressing(String),
    /// Some cannot become ready without a change; for messages.
    Failing(String),
}

/// The sections that the spec has, in two groups: those whose conditions count for readiness, and those that no agent of the site serves.
#[must_use]
pub(super) fn sections(cluster: &Cluster, not_installed: &BTreeSet<Section>) -> (Vec<Section>, Vec<Section>) {
    let balancers =
        !cluster.load_balancers_control_plane().is_empty() || !cluster.load_balancers_worker().is_empty();
    let present = [
        (Section::LoadBalancer, balancers),
        (Section::JumpHost, !cluster.jump_hosts().is_empty()),
        (Section::Auth, !cluster.auth().is_empty()),
    ];
    let sections = present
        .into_iter()
        .filter(|(_, present)| *present)
        .map(|(section, _)| section);
    sections.partition(|section| !not_installed.contains(section))
}

/// The condition by which a section's agent answers.
#[must_use]
pub(super) fn condition_type(section: Section) -> ConditionType {
    match section {
        Section::LoadBalancer => conditions::LOAD_BALANCER_READY,
        Section::JumpHost => conditions::JUMP_HOST_READY,
        Section::Auth => conditions::AUTH_READY,
    }
}

/// Whether a member's host need not wait for load balancers. A host that joins waits until every load balancer in the spec has applied it; one
/// that leaves, until no pod of any existing load balancer routes to it.
#[must_use]
pub(super) fn served(
    cluster: &Cluster,
    not_installed: &BTreeSet<Section>,
    object: &SIPCluster,
    epoch: u64,
    member: &Member,
) -> bool {
    match member.state() {
        MemberState::Bound => true,
        MemberState::Releasing => drained(not_installed, object, epoch, member),
        MemberState::Claimed => joined(cluster, not_installed, object, epoch, member),
    }
}

/// Whether the agent of a section reports that it has no rights in the namespace of the cluster.
#[must_use]
pub(super) fn lacks_rights(object: &SIPCluster, section: Section) -> bool {
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    let kind = condition_type(section);
    let mut own = conditions.filter(|condition| condition.type_ == kind.as_str());
    own.any(|condition| condition.reason == conditions::NAMESPACE_NOT_GRANTED)
}

/// Whether no pod of any load balancer routes to a member that is released. The load-balancer agent reports that for all load balancers that
/// exist, also of clusters whose spec names none.
#[must_use]
pub(super) fn drained(
    not_installed: &BTreeSet<Section>,
    object: &SIPCluster,
    epoch: u64,
    member: &Member,
) -> bool {
    let drained = object.status.as_ref().and_then(|status| status.drained);
    not_installed.contains(&Section::LoadBalancer) || is_drained(drained, epoch, member.revision())
}

/// Whether what the load-balancer agent has reported covers a release of this revision.
#[must_use]
pub fn is_drained(reported: Option<Drained>, epoch: u64, released: u64) -> bool {
    reported.is_some_and(|drained| drained.covers(epoch, released))
}

/// Which report the release of a member waits for, and since when, for messages. `is_former`: whether the status does not show the member.
pub(super) fn describe_drain(object: &SIPCluster, member: &Member, is_former: bool) -> String {
    let status = object.status.as_ref();
    let held = status.and_then(|status| status.placement.as_ref());
    let since = held.and_then(|held| {
        if is_former {
            return held.former_since.as_ref();
        }
        let mut known = held.members.iter();
        let known = known.find(|known| known.uid == member.host().uid())?;
        known
            .since
            .as_ref()
            .filter(|_| known.state == api::MemberState::Releasing)
    });
    let since = since.map_or_else(String::new, |since| format!(" since {}", since.0));
    let condition = status.and_then(|status| find(&status.conditions, conditions::LOAD_BALANCER_READY));
    let condition = condition
        .filter(|condition| condition.status != "True")
        .map_or_else(String::new, |condition| {
            format!(
                " ({}: {}: {})",
                condition.type_, condition.reason, condition.message
            )
        });
    format!("waits{since} for the load-balancer agent to confirm that no pod routes to it{condition}")
}

/// Whether every load balancer of the spec has applied a claim.
fn joined(
    cluster: &Cluster,
    not_installed: &BTreeSet<Section>,
    object: &SIPCluster,
    epoch: u64,
    member: &Member,
) -> bool {
    if not_installed.contains(&Section::LoadBalancer) {
        return true;
    }
    let applied = object
        .status
        .as_ref()
        .map(|status| &*status.applied)
        .unwrap_or_default();
    // The load-balancer agent chooses the names of entries by what exists, so only their number can be compared. For one generation it reports no
    // other load balancers than those in the spec.
    let have = |kind: &str| {
        let of_kind = applied.iter().filter(|applied| applied.service.starts_with(kind));
        let current = |applied: &&api::Applied| {
            applied.generation == cluster.generation()
                && applied.epoch == epoch
                && applied.revision >= member.revision()
        };
        of_kind.filter(current).count()
    };
    have("loadbalancer-controlplane-") >= cluster.load_balancers_control_plane().len()
        && have("loadbalancer-worker-") >= cluster.load_balancers_worker().len()
}

/// Whether every jump host has the newest member. No host waits for that before it is labelled, unlike for load balancers, so the condition of the
/// jump hosts may still be that of before the claim. Their agent reports what it has applied together with a condition that is True.
fn jump_hosts_have_members(object: &SIPCluster, placement: &Placement) -> bool {
    let staying = placement.members().iter().filter(|member| !member.is_releasing());
    let Some(newest) = staying.map(Member::revision).max() else {
        return true;
    };
    let applied = object.status.iter().flat_map(|status| &status.applied);
    let mut jump_hosts = applied.filter(|applied| applied.service.starts_with("jumphost-"));
    let epoch = placement.position().epoch();
    jump_hosts.all(|applied| applied.epoch == epoch && applied.revision >= newest)
}

/// Whether the services are ready for this generation and placement. `since`: when the agents could have begun; the result names an agent that has
/// not answered within [`AGENT_TIMEOUT`].
#[must_use]
pub(super) fn readiness(
    object: &SIPCluster,
    placement: &Placement,
    gating: &[Section],
    since: Option<&Time>,
    now: Timestamp,
) -> Readiness {
    let generation = object.metadata.generation.unwrap_or_default();
    let conditions: &[Condition] = object
        .status
        .as_ref()
        .map(|status| &*status.conditions)
        .unwrap_or_default();
    let (mut progressing, mut failing) = (Vec::new(), Vec::new());
    for section in gating {
        let condition =
            find(conditions, condition_type(*section)).filter(|c| c.observed_generation == Some(generation));
        match condition {
            Some(condition) if condition.status == "True" => {
                if *section == Section::JumpHost && !jump_hosts_have_members(object, placement) {
                    progressing.push(format!(
                        "{section}: its agent has not reported yet that the jump hosts have the newest members"
                    ));
                }
            }
            Some(condition) if condition.reason == conditions::ready::PROGRESSING => {
                progressing.push(format!("{section}: {}", condition.message));
            }
            Some(condition) => {
                failing.push(format!("{section}: {}: {}", condition.reason, condition.message));
            }
            None if overdue(since, now) => {
                let limit = AGENT_TIMEOUT.as_secs();
                failing.push(format!(
                    "{section}: NoAgent: no agent has set its condition within {limit} s"
                ));
            }
            None => progressing.push(format!("{section}: its agent has not set its condition yet")),
        }
    }
    if !failing.is_empty() {
        Readiness::Failing(failing.join("; "))
    } else if !progressing.is_empty() {
        Readiness::Progressing(progressing.join("; "))
    } else {
        Readiness::Ready
    }
}

fn overdue(since: Option<&Time>, now: Timestamp) -> bool {
    since.is_some_and(|since| waited(since, now) >= AGENT_TIMEOUT)
}

/// Time since this time; zero for a time in the future, which the clock of another machine, or of this one before it was set back, has written.
pub(super) fn waited(since: &Time, now: Timestamp) -> Duration {
    now.duration_since(since.0).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{answer, cluster, member, placement};

    fn installed() -> BTreeSet<Section> {
        BTreeSet::from([Section::JumpHost])
    }

    fn no_load_balancers() -> BTreeSet<Section> {
        BTreeSet::from([Section::LoadBalancer])
    }

    fn applied(epoch: u64, revision: u64) -> Value {
        json!({ "applied": [{ "service": "loadbalancer-worker-one", "epoch": epoch, "revision": revision, "generation": 3 }] })
    }

    #[test]
    fn sections_without_an_agent_gate_nothing_and_are_named() {
        let parsed = Cluster::parse(&cluster(&json!({}))).unwrap();
        assert_eq!(
            sections(&parsed, &installed()),
            (vec![Section::LoadBalancer], vec![Section::JumpHost])
        );
    }

    #[test]
    fn a_claim_is_served_once_every_load_balancer_applied_it() {
        let claimed = member("h1", MemberState::Claimed);
        for (status, expected) in [
            (json!({}), false),
            (applied(1, 4), false),
            (applied(1, 5), true),
            (applied(1, 6), true),
            (applied(2, 9), false),
        ] {
            let object = cluster(&status);
            let parsed = Cluster::parse(&object).unwrap();
            assert_eq!(
                served(&parsed, &installed(), &object, 1, &claimed),
                expected,
                "{status}"
            );
            assert!(
                served(&parsed, &no_load_balancers(), &object, 1, &claimed),
                "nothing gates: {status}"
            );
        }
    }

    #[test]
    fn what_an_earlier_spec_applied_serves_no_claim() {
        let claimed = member("h1", MemberState::Claimed);
        let mut status = applied(1, 5);
        status["applied"][0]["generation"] = json!(2);
        let object = cluster(&status);
        let parsed = Cluster::parse(&object).unwrap();
        assert!(!served(&parsed, &installed(), &object, 1, &claimed));
    }

    #[test]
    fn a_releasing_host_waits_for_pods_whatever_the_spec_names() {
        let releasing = member("h1", MemberState::Releasing);
        let no_services = json!({ "nodes": { "Worker": { "labelSelector": {}, "count": { "active": 2 } } } });
        for (drained, expected) in [
            (json!(null), false),
            (json!({ "epoch": 1, "revision": 4 }), false),
            (json!({ "epoch": 1, "revision": 5 }), true),
            (json!({ "epoch": 2, "revision": 9 }), false),
        ] {
            let mut status = applied(1, 9);
            status["drained"] = drained;
            let balanced = cluster(&status);
            let mut bare = balanced.clone();
            bare.spec = serde_json::from_value(no_services.clone()).unwrap();
            for object in [balanced, bare] {
                let parsed = Cluster::parse(&object).unwrap();
                let served = |sections| served(&parsed, &sections, &object, 1, &releasing);
                assert_eq!(served(installed()), expected, "{status}");
                assert!(served(no_load_balancers()), "this site has no load balancers");
            }
        }
    }

    #[test]
    fn a_releasing_host_names_what_it_waits_for_and_since_when() {
        let releasing = member("h1", MemberState::Releasing);
        let waits = "waits since 2026-01-01T00:00:00Z for the load-balancer agent to confirm that no pod routes to it";
        let member = json!({
            "namespace": "metal", "name": "h1", "uid": "uid-h1", "role": "Worker", "state": "Releasing",
            "revision": 5, "since": "2026-01-01T00:00:00Z",
        });
        let condition = json!({
            "type": "LoadBalancerReady", "status": "False", "reason": "Progressing", "message": "pod x still runs",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let placement = json!({ "epoch": 1, "revision": 5, "generation": 3, "members": [member] });
        let mut status = json!({ "placement": placement });
        assert_eq!(describe_drain(&cluster(&status), &releasing, false), waits);
        status["conditions"] = json!([condition]);
        assert_eq!(
            describe_drain(&cluster(&status), &releasing, false),
            format!("{waits} (LoadBalancerReady: Progressing: pod x still runs)")
        );
    }

    #[test]
    fn an_agent_without_rights_is_known_by_its_reason() {
        for (kind, reason, expected) in [
            ("LoadBalancerReady", "NamespaceNotGranted", true),
            ("LoadBalancerReady", "Refused", false),
            ("JumpHostReady", "NamespaceNotGranted", false),
        ] {
            let object = cluster(&json!({ "conditions": [{
                "type": kind, "status": "False", "reason": reason, "message": "words",
                "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]}));
            assert_eq!(
                lacks_rights(&object, Section::LoadBalancer),
                expected,
                "{kind} {reason}"
            );
        }
        assert!(!lacks_rights(&cluster(&json!({})), Section::LoadBalancer));
    }

    #[test]
    fn jump_hosts_are_ready_once_they_have_every_member() {
        let mut released = answer("h2", MemberState::Releasing);
        released.revision = 9;
        let placed = placement(vec![answer("h1", MemberState::Bound), released]);
        let condition = json!({
            "type": "JumpHostReady", "status": "True", "reason": "Available", "message": "",
            "observedGeneration": 3, "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let now = Timestamp::from_second(1_000).unwrap();
        for (epoch, revision, expected) in [(1, 4, false), (1, 5, true), (1, 6, true), (2, 9, false)] {
            let applied = json!([
                { "service": "loadbalancer-worker-one", "epoch": 1, "revision": 1, "generation": 3 },
                { "service": "jumphost-one", "epoch": epoch, "revision": revision, "generation": 3 },
            ]);
            let object = cluster(&json!({ "conditions": [condition], "applied": applied }));
            let ready = readiness(&object, &placed, &[Section::JumpHost], None, now);
            assert_eq!(ready == Readiness::Ready, expected, "{ready:?}");
            assert!(!matches!(ready, Readiness::Failing(_)));
        }
    }

    #[test]
    fn services_are_as_their_agents_report_for_this_generation() {
        let answer = |status: &str, reason: &str, generation: i64| {
            json!({ "conditions": [{
                "type": "LoadBalancerReady", "status": status, "reason": reason, "message": "words",
                "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]})
        };
        let now = Timestamp::from_second(1_000).unwrap();
        let (just_now, long_ago) = (Time(now), Time(Timestamp::from_second(900).unwrap()));
        let placed = placement(Vec::new());
        let gating = [Section::LoadBalancer];
        let ready = |status, since| readiness(&cluster(&status), &placed, &gating, Some(since), now);
        assert_eq!(ready(answer("True", "Available", 3), &long_ago), Readiness::Ready);
        assert!(matches!(
            ready(answer("True", "Available", 2), &just_now),
            Readiness::Progressing(_)
        ));
        assert!(matches!(
            ready(answer("False", "Progressing", 3), &long_ago),
            Readiness::Progressing(_)
        ));
        assert_eq!(
            ready(answer("False", "PortConflict", 3), &just_now),
            Readiness::Failing("loadBalancer: PortConflict: words".to_owned())
        );
        // The clock of this machine, or of the API server's, was set back: nobody has waited for that long.
        let ahead = Time(Timestamp::from_second(10_000).unwrap());
        assert!(matches!(ready(json!({}), &ahead), Readiness::Progressing(_)));
        let Readiness::Failing(why) = ready(json!({}), &long_ago) else {
            panic!("an agent that is silent is named")
        };
        assert!(why.contains("NoAgent"), "{why}");
    }
}
