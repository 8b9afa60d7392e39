//! What the other agents say of a cluster's services, and what that gates.

use std::{collections::BTreeSet, time::Duration};

use api::{Cluster, SIPCluster, conditions};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kit::{conditions::find, config::Section};
use proto::{inventory::v1 as wire, placement::v1::Member};

/// How long an agent may take to answer a section before `NoAgent` is said.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_mins(1);

/// How the services stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// All are ready.
    Ready,
    /// Some are being made ready; for people.
    Progressing(String),
    /// Some cannot be made ready as things are; for people.
    Failing(String),
}

/// The sections that the spec has, in two groups: those that gate, and those that no agent of the site serves.
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
pub(super) fn condition_of(section: Section) -> &'static str {
    match section {
        Section::LoadBalancer => conditions::LOAD_BALANCER_READY,
        Section::JumpHost => conditions::JUMP_HOST_READY,
        Section::Auth => conditions::AUTH_READY,
    }
}

/// Whether every load balancer that the spec asks for has taken in a claim, or has let go of a member that is given back.
#[must_use]
pub(super) fn served(
    cluster: &Cluster,
    gating: &[Section],
    object: &SIPCluster,
    epoch: u64,
    member: &Member,
) -> bool {
    if !gating.contains(&Section::LoadBalancer) || member.state() == wire::MemberState::Bound {
        return true;
    }
    let applied = object
        .status
        .as_ref()
        .map(|status| &*status.applied)
        .unwrap_or_default();
    let names = cluster
        .load_balancers_control_plane()
        .iter()
        .map(|balancer| balancer.service().object_name())
        .chain(
            cluster
                .load_balancers_worker()
                .iter()
                .map(|balancer| balancer.service().object_name()),
        );
    let releasing = member.state() == wire::MemberState::Releasing;
    names.into_iter().all(|name| {
        let said = applied
            .iter()
            .find(|applied| applied.service == name.as_str() && applied.epoch == epoch);
        let revision = said.and_then(|said| if releasing { said.left } else { Some(said.revision) });
        revision >= Some(member.revision)
    })
}

/// How the services stand for this generation. `asked`: when the agents could have begun; an agent that has not
/// answered for long is named.
#[must_use]
pub(super) fn standing(
    object: &SIPCluster,
    gating: &[Section],
    asked: Option<&Time>,
    now: Timestamp,
) -> Standing {
    let generation = object.metadata.generation.unwrap_or_default();
    let said: &[Condition] = object
        .status
        .as_ref()
        .map(|status| &*status.conditions)
        .unwrap_or_default();
    let (mut progressing, mut failing) = (Vec::new(), Vec::new());
    for section in gating {
        let condition =
            find(said, condition_of(*section)).filter(|c| c.observed_generation == Some(generation));
        match condition {
            Some(condition) if condition.status == "True" => {}
            Some(condition) if condition.reason == conditions::ready::PROGRESSING => {
                progressing.push(format!("{section}: {}", condition.message));
            }
            Some(condition) => {
                failing.push(format!("{section}: {}: {}", condition.reason, condition.message));
            }
            None if overdue(asked, now) => {
                let limit = ANSWER_WITHIN.as_secs();
                failing.push(format!(
                    "{section}: NoAgent: no agent has answered this section for {limit} s"
                ));
            }
            None => progressing.push(format!("{section}: its agent has not answered yet")),
        }
    }
    if !failing.is_empty() {
        Standing::Failing(failing.join("; "))
    } else if !progressing.is_empty() {
        Standing::Progressing(progressing.join("; "))
    } else {
        Standing::Ready
    }
}

fn overdue(asked: Option<&Time>, now: Timestamp) -> bool {
    asked.is_some_and(|asked| waited(asked, now) >= ANSWER_WITHIN)
}

/// For how long something is waited for. The time that it began at may be another machine's, and clocks are set: what is
/// still to come has not been waited for.
pub(super) fn waited(since: &Time, now: Timestamp) -> Duration {
    now.duration_since(since.0).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{cluster, member};

    fn installed() -> BTreeSet<Section> {
        BTreeSet::from([Section::JumpHost])
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
    fn a_claim_is_served_when_every_load_balancer_has_applied_its_revision_in_its_epoch() {
        let claimed = member("h1", wire::MemberState::Claimed);
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
                served(&parsed, &[Section::LoadBalancer], &object, 1, &claimed),
                expected,
                "{status}"
            );
            assert!(
                served(&parsed, &[], &object, 1, &claimed),
                "nothing gates: {status}"
            );
        }
    }

    #[test]
    fn a_host_that_goes_is_let_go_when_nothing_that_runs_leads_to_it_any_more() {
        let releasing = member("h1", wire::MemberState::Releasing);
        for (epoch, left, expected) in [
            (1, json!(null), false),
            (1, json!(4), false),
            (1, json!(5), true),
            (2, json!(9), false),
        ] {
            let mut status = applied(epoch, 9);
            status["applied"][0]["left"] = left;
            let object = cluster(&status);
            let parsed = Cluster::parse(&object).unwrap();
            assert_eq!(
                served(&parsed, &[Section::LoadBalancer], &object, 1, &releasing),
                expected,
                "{status}"
            );
        }
    }

    #[test]
    fn services_stand_as_their_agents_say_for_this_generation() {
        let said = |status: &str, reason: &str, generation: i64| {
            json!({ "conditions": [{
                "type": "LoadBalancerReady", "status": status, "reason": reason, "message": "words",
                "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]})
        };
        let now = Timestamp::from_second(1_000).unwrap();
        let (just_now, long_ago) = (Time(now), Time(Timestamp::from_second(900).unwrap()));
        let stands = |status, asked| standing(&cluster(&status), &[Section::LoadBalancer], Some(asked), now);
        assert_eq!(stands(said("True", "Available", 3), &long_ago), Standing::Ready);
        assert!(matches!(
            stands(said("True", "Available", 2), &just_now),
            Standing::Progressing(_)
        ));
        assert!(matches!(
            stands(said("False", "Progressing", 3), &long_ago),
            Standing::Progressing(_)
        ));
        assert_eq!(
            stands(said("False", "PortConflict", 3), &just_now),
            Standing::Failing("loadBalancer: PortConflict: words".to_owned())
        );
        // The clock of this machine, or of the API server's, was set back: nobody has waited for that long.
        let ahead = Time(Timestamp::from_second(10_000).unwrap());
        assert!(matches!(stands(json!({}), &ahead), Standing::Progressing(_)));
        let Standing::Failing(why) = stands(json!({}), &long_ago) else {
            panic!("an agent that is silent is named")
        };
        assert!(why.contains("NoAgent"), "{why}");
    }
}
