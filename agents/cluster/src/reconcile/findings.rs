//! What this agent finds of a cluster, as conditions.

use std::time::Duration;

use api::{
    MemberState, SIPCluster,
    conditions::{self, ConditionType, Reason},
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kit::{
    conditions::{Finding, find},
    config::Section,
    placement::Placement,
};

use super::{
    hosts::{self, Step},
    machines::Machines,
    need::Need,
    services::{self, Standing},
};

/// Hosts that a message names.
const NAMED: usize = 5;

/// Every condition of this agent's.
pub(super) fn all(
    object: &SIPCluster,
    placement: &Placement,
    (steps, machines): (&[Step<'_>], &Machines),
    gating: &[Section],
    skipped: &[Section],
) -> Vec<Finding> {
    let labeled = labeled(object, steps, machines, placement.refusal().is_some());
    let standing = services::standing(object, gating, asked(object).as_ref(), Timestamp::now());
    let ready = ready(placement, &labeled, &standing, is_taken_over(object));
    let mut findings = vec![scheduled_finding(placement), labeled, ready];
    if !skipped.is_empty() {
        let names: Vec<String> = skipped.iter().map(ToString::to_string).collect();
        let message = format!("this site has no agent for: {}", names.join(", "));
        findings.push(Finding::yes(
            conditions::SERVICES_SKIPPED,
            Reason::NotInstalled,
            message,
        ));
    }
    findings
}

/// Conditions that stay as they are.
pub(super) fn kept(object: &SIPCluster, kinds: &[ConditionType]) -> Vec<Finding> {
    let said = object
        .status
        .as_ref()
        .map(|status| &*status.conditions)
        .unwrap_or_default();
    let known = |kind: &ConditionType| {
        let condition = find(said, *kind)?;
        let reason = kind.reason(&condition.reason)?;
        let status = match &*condition.status {
            "True" => Some(true),
            "False" => Some(false),
            _ => None,
        };
        Some(Finding {
            kind: *kind,
            status,
            reason,
            message: condition.message.clone(),
        })
    };
    kinds.iter().filter_map(known).collect()
}

/// Says in the conditions which hosts the API server has refused to write, in its words.
pub(super) fn refuse(findings: &mut [Finding], refused: &[(hosts::Key, String)]) {
    if refused.is_empty() {
        return;
    }
    let why = refused_in_words(refused);
    for finding in findings {
        if finding.kind == conditions::HOSTS_LABELED {
            *finding = Finding::no(conditions::HOSTS_LABELED, Reason::Refused, &why);
        }
        if finding.kind == conditions::READY && finding.reason != conditions::ready::UNSCHEDULABLE {
            *finding = Finding::no(conditions::READY, conditions::ready::UNABLE_TO_APPLY_LABELS, &why);
        }
    }
}

/// The first of the hosts that the API server has refused to write, and why.
pub(super) fn refused_in_words(refused: &[(hosts::Key, String)]) -> String {
    let said: Vec<String> = refused
        .iter()
        .map(|(hosts::Key { namespace, name }, words)| {
            format!("{namespace}/{name} cannot be written: {words}")
        })
        .collect();
    named(&said)
}

fn scheduled_finding(placement: &Placement) -> Finding {
    if let Some(refusal) = placement.refusal() {
        Finding::no(conditions::SCHEDULED, Reason::Unschedulable, refusal.message())
    } else {
        let reports: Vec<&str> = placement
            .reports()
            .iter()
            .take(NAMED)
            .map(String::as_str)
            .collect();
        Finding::yes(conditions::SCHEDULED, Reason::Placed, reports.join("; "))
    }
}

/// The message of the last `Scheduled` condition: empty when all was well.
pub(super) fn scheduled(object: &SIPCluster) -> Option<String> {
    let said = object
        .status
        .as_ref()
        .map(|status| &*status.conditions)
        .unwrap_or_default();
    find(said, conditions::SCHEDULED).map(|condition| {
        if condition.status == "True" {
            String::new()
        } else {
            condition.message.clone()
        }
    })
}

fn labeled(object: &SIPCluster, steps: &[Step<'_>], machines: &Machines, refused: bool) -> Finding {
    let (mut blocked, mut waiting) = (Vec::new(), Vec::new());
    for step in steps {
        let hosts::Key { namespace, name } = step.member.host().key().clone();
        let releasing = step.member.is_releasing();
        match &step.need {
            Need::Nothing if step.member.state() == MemberState::Claimed => {
                waiting.push(format!(
                    "{namespace}/{name}: its labels are to be seen by the scheduler"
                ));
            }
            Need::Nothing => {}
            Need::Label => waiting.push(format!("{namespace}/{name}: is being labelled")),
            Need::Unlabel | Need::Confirm | Need::ConfirmGone => {
                waiting.push(format!("{namespace}/{name}: is being released"));
            }
            Need::Waits(why) if releasing => {
                let asked = machines.on(step).map_or_else(String::new, |machine| {
                    format!("; its Machine {machine} is the first that Cluster API deletes when its owner is scaled down")
                });
                waiting.push(format!("{namespace}/{name}: to be released, {why}{asked}"));
            }
            Need::Waits(why) => waiting.push(format!("{namespace}/{name}: {why}")),
            Need::Drains => {
                let why = services::drains(object, step.member);
                waiting.push(format!("{namespace}/{name}: to be released, {why}"));
            }
            Need::Blocked(why) => blocked.push(format!("{namespace}/{name}: {why}")),
        }
    }
    if steps.is_empty() && refused {
        Finding::no(
            conditions::HOSTS_LABELED,
            Reason::Waiting,
            "the cluster holds no hosts yet",
        )
    } else if !blocked.is_empty() {
        Finding::no(conditions::HOSTS_LABELED, Reason::Blocked, named(&blocked))
    } else if !waiting.is_empty() {
        Finding::no(conditions::HOSTS_LABELED, Reason::Waiting, named(&waiting))
    } else {
        Finding::yes(conditions::HOSTS_LABELED, Reason::Labeled, "")
    }
}

/// The first few of a list, and how many more there are.
pub(super) fn named(all: &[String]) -> String {
    let shown = all
        .iter()
        .take(NAMED)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join("; ");
    match all.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}

/// What `Ready` says until the other agents have answered for a cluster that the Airship SIP operator left Ready.
const TAKING_OVER: &str = "as the Airship SIP operator left it: the services are being taken over";

/// Whether the cluster was Ready for this generation when this agent saw it first, and its services are taken over since.
fn is_taken_over(object: &SIPCluster) -> bool {
    let Some(status) = &object.status else {
        return false;
    };
    let generation = object.metadata.generation.unwrap_or_default();
    let ready = find(&status.conditions, conditions::READY)
        .filter(|ready| ready.status == "True" && ready.observed_generation == Some(generation));
    ready.is_some_and(|ready| status.placement.is_none() || ready.message == TAKING_OVER)
}

fn ready(placement: &Placement, labeled: &Finding, standing: &Standing, taken_over: bool) -> Finding {
    use conditions::{READY, ready};
    if let Some(refusal) = placement.refusal() {
        return Finding::no(READY, ready::UNSCHEDULABLE, refusal.message());
    }
    if labeled.reason == Reason::Blocked {
        return Finding::no(READY, ready::UNABLE_TO_APPLY_LABELS, &labeled.message);
    }
    match standing {
        Standing::Failing(why) => Finding::no(READY, ready::INFRA_SERVICE_FAILURE, why),
        Standing::Progressing(_) if taken_over && labeled.status == Some(true) => {
            Finding::yes(READY, ready::RECONCILIATION_SUCCEEDED, TAKING_OVER)
        }
        Standing::Progressing(why) => Finding::no(READY, ready::PROGRESSING, why),
        Standing::Ready if labeled.status != Some(true) => {
            Finding::no(READY, ready::PROGRESSING, &labeled.message)
        }
        Standing::Ready => Finding::yes(READY, ready::RECONCILIATION_SUCCEEDED, ""),
    }
}

/// Since when the other agents could have answered this generation: since this agent has acted on it, and since `Scheduled`
/// has its status. `None` while this agent has not acted on it.
fn asked(object: &SIPCluster) -> Option<Time> {
    let status = object.status.as_ref()?;
    let generation = object.metadata.generation.unwrap_or_default();
    if status.observed_generation != Some(generation) {
        return None;
    }
    let scheduled = find(&status.conditions, conditions::SCHEDULED)?;
    let scheduled = scheduled.last_transition_time.clone();
    let observed = status.observed_since.clone();
    Some(observed.map_or(scheduled.clone(), |observed| observed.max(scheduled)))
}

/// When to look again though nothing changes: an agent that does not answer is to be named.
pub(super) fn revisit(object: &SIPCluster, gating: &[Section]) -> Option<Duration> {
    let generation = object.metadata.generation.unwrap_or_default();
    let said = object
        .status
        .as_ref()
        .map(|status| &*status.conditions)
        .unwrap_or_default();
    let answered = |section: &Section| {
        find(said, services::condition_of(*section))
            .is_some_and(|c| c.observed_generation == Some(generation))
    };
    if gating.iter().all(answered) {
        return None;
    }
    let waited = asked(object).map_or(Duration::ZERO, |asked| services::waited(&asked, Timestamp::now()));
    // Past the limit it has been said; the agent's answer comes by the watch.
    services::ANSWER_WITHIN
        .checked_sub(waited)
        .map(|left| left + Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{cluster, host, inventory, labelled, member, reference};

    #[test]
    fn answers_are_awaited_since_the_generation_was_observed() {
        let asked = |generation: i64, since: Option<&str>| {
            let scheduled = serde_json::json!({
                "type": "Scheduled", "status": "True", "reason": "Placed", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            let mut status =
                serde_json::json!({ "observedGeneration": generation, "conditions": [scheduled] });
            if let Some(since) = since {
                status["observedSince"] = since.into();
            }
            super::asked(&cluster(&status)).map(|time| time.0.to_string())
        };
        let (before, scheduled, after) = (
            "2025-01-01T00:00:00Z",
            "2026-01-01T00:00:00Z",
            "2026-01-02T00:00:00Z",
        );
        assert_eq!(asked(2, Some(after)), None, "an earlier generation was observed");
        assert_eq!(asked(3, Some(after)).as_deref(), Some(after));
        assert_eq!(asked(3, Some(before)).as_deref(), Some(scheduled));
        assert_eq!(asked(3, None).as_deref(), Some(scheduled));
    }

    #[test]
    fn a_cluster_without_hosts_is_labelled_only_when_it_wants_none() {
        let none = Machines::default();
        let cluster = cluster(&serde_json::json!({}));
        assert_eq!(labeled(&cluster, &[], &none, false).status, Some(true));
        let refused = labeled(&cluster, &[], &none, true);
        assert_eq!((refused.status, refused.reason), (Some(false), Reason::Waiting));
        let bound = member("h1", MemberState::Bound);
        let inventory = inventory([labelled(host("h1"), "one", "Worker")]);
        let steps = [Step::of(&reference(), &bound, &inventory, true)];
        assert_eq!(
            labeled(&cluster, &steps, &none, true).status,
            Some(true),
            "what it holds is labelled, though it wants more"
        );
    }
}
