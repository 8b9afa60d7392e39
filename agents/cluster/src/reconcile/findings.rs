//! The conditions of a cluster that this agent owns.

use std::time::Duration;

use api::{
    MemberState, SIPCluster,
    conditions::{self, ConditionType, Reason},
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kit::{
    conditions::{Finding, find},
    config::Section,
    placement::{Member, ObjectKey, Placement},
};

use super::{
    advice::{advice, foreign_consumer, of_gone_host},
    host_actions::Verb,
    label_or_release::{Assessment, GONE, UNWRITABLE},
    members::Assessed,
    observation::Holding,
    services::{self, Readiness},
    status,
};

/// Hosts that a message names at most.
const MAX_NAMED_HOSTS: usize = 5;

/// Every condition of this agent's.
pub(super) fn evaluate(
    object: &SIPCluster,
    (holding, members): (&Holding, &[Assessed<'_>]),
    gating: &[Section],
    skipped: &[Section],
    now: Timestamp,
) -> Vec<Finding> {
    let placement = &holding.placement;
    let labeled = labeled(object, holding, members);
    let since = awaited_since(object, placement);
    let services = services::readiness(object, placement, gating, since.as_ref(), now);
    let gone = gone(holding, members);
    let ready = ready(placement, &labeled, &services, &gone, is_being_adopted(object));
    let mut findings = vec![scheduled(placement), labeled, ready];
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
pub(super) fn unchanged(object: &SIPCluster, kinds: &[ConditionType]) -> Vec<Finding> {
    let known = |kind: &ConditionType| {
        let condition = find(status::conditions(object), *kind)?;
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

/// States in the conditions which hosts cannot be written or confirmed as gone, and why.
pub(super) fn refuse(findings: &mut [Finding], refused: &[(ObjectKey, String)]) {
    if refused.is_empty() {
        return;
    }
    let why = refused_in_words(refused);
    for finding in findings {
        if finding.kind == conditions::HOSTS_LABELED {
            *finding = Finding::no(conditions::HOSTS_LABELED, Reason::Refused, &why);
        }
        if finding.kind == conditions::READY {
            *finding = Finding::no(conditions::READY, conditions::ready::UNABLE_TO_APPLY_LABELS, &why);
        }
    }
}

/// States in the condition which objects' replicas could not be set.
pub(super) fn unscaled(findings: &mut [Finding], unscaled: &[(Reason, String)]) {
    let refused = unscaled.iter().find(|(reason, _)| *reason == Reason::Refused);
    let Some((reason, _)) = refused.or(unscaled.first()) else {
        return;
    };
    let messages: Vec<String> = unscaled.iter().map(|(_, why)| why.clone()).collect();
    let of_kind = |finding: &&mut Finding| finding.kind == conditions::CLUSTER_API_SYNCED;
    if let Some(finding) = findings.iter_mut().find(of_kind) {
        let before = Some(&*finding.message).filter(|message| !message.is_empty());
        let message = messages
            .iter()
            .map(String::as_str)
            .chain(before)
            .collect::<Vec<_>>();
        *finding = Finding::no(conditions::CLUSTER_API_SYNCED, *reason, message.join("; "));
    }
}

/// The first of the hosts that cannot be written or confirmed as gone, and why.
pub(super) fn refused_in_words(refused: &[(ObjectKey, String)]) -> String {
    let refused = refused.iter().map(|(host, why)| format!("{host} {why}"));
    first_few(&refused.collect::<Vec<_>>())
}

fn scheduled(placement: &Placement) -> Finding {
    let reports = first_few(placement.reports());
    match placement.refusal() {
        // Of a replacement, the refusal states what is missing, and the reports which members wait.
        Some(refusal) if !reports.is_empty() => {
            let message = format!("{}; {reports}", refusal.message());
            Finding::no(conditions::SCHEDULED, Reason::Unschedulable, message)
        }
        Some(refusal) => Finding::no(conditions::SCHEDULED, Reason::Unschedulable, refusal.message()),
        None => Finding::yes(conditions::SCHEDULED, Reason::Placed, reports),
    }
}

fn labeled(object: &SIPCluster, holding: &Holding, members: &[Assessed<'_>]) -> Finding {
    let (mut blocked, mut waiting, mut reported) = (Vec::new(), Vec::new(), Vec::new());
    for Assessed {
        member,
        assessment,
        is_former,
    } in members
    {
        let host = member.host();
        // The host itself stays.
        let of_what = if *is_former { "its former address is " } else { "" };
        match assessment {
            Assessment::Settled if member.state() == MemberState::Claimed => {
                waiting.push(format!("{host}: the scheduler has not observed its labels yet"));
            }
            Assessment::Settled => {}
            Assessment::Due(action) => waiting.push(match action.verb() {
                Verb::Label | Verb::Relabel | Verb::RelabelClaimed | Verb::Adopt => {
                    format!("{host}: is being labelled")
                }
                Verb::Unlabel | Verb::Confirm | Verb::ConfirmGone if *is_former => {
                    format!("{host}: {of_what}being released")
                }
                Verb::Unlabel | Verb::Confirm | Verb::ConfirmGone => format!("{host}: is being released"),
            }),
            Assessment::InUse(why) => {
                let advice = advice(holding, member);
                waiting.push(format!("{host}: to be released, {why}{advice}"));
            }
            Assessment::NodeDrains(why) => waiting.push(format!("{host}: to be released, {why}")),
            Assessment::Waits(why) => waiting.push(format!("{host}: {why}")),
            Assessment::Unwritable => reported.push(format!("{host}: {UNWRITABLE}")),
            Assessment::StillRouted => {
                let why = services::describe_drain(object, member, *is_former);
                waiting.push(format!("{host}: {of_what}to be released, {why}"));
            }
            // The scheduler replaces it.
            Assessment::Gone => waiting.push(describe_gone(holding, member)),
            Assessment::Blocked(why) => blocked.push(format!("{host}: {why}")),
            Assessment::ForeignConsumer(why) => blocked.push(format!("{host}: {why}{}", foreign_consumer())),
        }
    }
    if members.is_empty() && holding.placement.refusal().is_some() {
        Finding::no(
            conditions::HOSTS_LABELED,
            Reason::Waiting,
            "the cluster holds no hosts yet",
        )
    } else if !blocked.is_empty() {
        Finding::no(conditions::HOSTS_LABELED, Reason::Blocked, first_few(&blocked))
    } else if !waiting.is_empty() {
        Finding::no(conditions::HOSTS_LABELED, Reason::Waiting, first_few(&waiting))
    } else {
        // Another host has its place.
        Finding::yes(conditions::HOSTS_LABELED, Reason::Labeled, first_few(&reported))
    }
}

fn describe_gone(holding: &Holding, member: &Member) -> String {
    let host = member.host();
    let advice = of_gone_host(holding.machines.get(host.uid()));
    format!("{host}: {GONE}{advice}")
}

/// The members whose hosts are gone. After a lost ledger their addresses are not known, so load balancers report those as missing.
fn gone(holding: &Holding, members: &[Assessed<'_>]) -> Vec<String> {
    let gone = members.iter().filter(|of| of.assessment == Assessment::Gone);
    gone.map(|of| describe_gone(holding, of.member)).collect()
}

/// The first few of a list, and how many more there are.
pub(super) fn first_few(all: &[String]) -> String {
    let first = all
        .iter()
        .take(MAX_NAMED_HOSTS)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join("; ");
    match all.len().saturating_sub(MAX_NAMED_HOSTS) {
        0 => first,
        more => format!("{first}; and {more} more"),
    }
}

/// The message of `Ready` until the other agents have answered for a cluster that the Airship SIP operator left Ready.
const ADOPTING: &str = "as the Airship SIP operator left it: the agents are adopting the services";

/// Whether the cluster was Ready for this generation when this agent first observed it, and its services are being adopted since.
fn is_being_adopted(object: &SIPCluster) -> bool {
    let Some(status) = &object.status else {
        return false;
    };
    let generation = object.metadata.generation.unwrap_or_default();
    let ready = find(&status.conditions, conditions::READY)
        .filter(|ready| ready.status == "True" && ready.observed_generation == Some(generation));
    ready.is_some_and(|ready| status.placement.is_none() || ready.message == ADOPTING)
}

fn ready(
    placement: &Placement,
    labeled: &Finding,
    services: &Readiness,
    gone: &[String],
    taken_over: bool,
) -> Finding {
    use conditions::{READY, ready};
    if let Some(refusal) = placement.refusal() {
        return Finding::no(READY, ready::UNSCHEDULABLE, refusal.message());
    }
    if labeled.reason == Reason::Blocked {
        return Finding::no(READY, ready::UNABLE_TO_APPLY_LABELS, &labeled.message);
    }
    match services {
        Readiness::Failing(why) if gone.is_empty() => Finding::no(READY, ready::INFRA_SERVICE_FAILURE, why),
        Readiness::Failing(why) => {
            let message = format!("{}; {why}", first_few(gone));
            Finding::no(READY, ready::INFRA_SERVICE_FAILURE, message)
        }
        Readiness::Progressing(_) if taken_over && labeled.status == Some(true) => {
            Finding::yes(READY, ready::RECONCILIATION_SUCCEEDED, ADOPTING)
        }
        Readiness::Progressing(why) => Finding::no(READY, ready::PROGRESSING, why),
        Readiness::Ready if labeled.status != Some(true) => {
            Finding::no(READY, ready::PROGRESSING, &labeled.message)
        }
        Readiness::Ready => Finding::yes(READY, ready::RECONCILIATION_SUCCEEDED, ""),
    }
}

/// Since when the other agents could have answered this generation: since this agent has acted on it, and since `Scheduled`
/// has its status. `None` while this agent has not acted on it, and in the pass that changes `Scheduled`, whose time is still that of before.
fn awaited_since(object: &SIPCluster, placement: &Placement) -> Option<Time> {
    let status = object.status.as_ref()?;
    let generation = object.metadata.generation.unwrap_or_default();
    if status.observed_generation != Some(generation) {
        return None;
    }
    let scheduled = find(&status.conditions, conditions::SCHEDULED)?;
    if (scheduled.status == "True") != placement.refusal().is_none() {
        return None;
    }
    let scheduled = scheduled.last_transition_time.clone();
    let observed = status.observed_since.clone();
    Some(observed.map_or(scheduled.clone(), |observed| observed.max(scheduled)))
}

/// When the cluster is reconciled again though nothing changes: an agent that does not answer is to be named.
pub(super) fn answers_due(
    object: &SIPCluster,
    placement: &Placement,
    gating: &[Section],
    now: Timestamp,
) -> Option<Duration> {
    let generation = object.metadata.generation.unwrap_or_default();
    let answered = |section: &Section| {
        find(status::conditions(object), services::condition_type(*section))
            .is_some_and(|c| c.observed_generation == Some(generation))
    };
    if gating.iter().all(answered) {
        return None;
    }
    let waited =
        awaited_since(object, placement).map_or(Duration::ZERO, |since| services::waited(&since, now));
    // Past the limit it is named; the watch delivers the agent's answer.
    services::AGENT_TIMEOUT
        .checked_sub(waited)
        .map(|left| left + Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fixtures::{answer, cluster, host, key, labelled},
        reconcile::{fixtures::holding, members::assess_all},
    };

    #[test]
    fn answers_are_awaited_since_the_generation_was_observed() {
        let since_of = |generation: i64, since: Option<&str>| {
            let scheduled = serde_json::json!({
                "type": "Scheduled", "status": "True", "reason": "Placed", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            let mut status =
                serde_json::json!({ "observedGeneration": generation, "conditions": [scheduled] });
            if let Some(since) = since {
                status["observedSince"] = since.into();
            }
            let placed = crate::fixtures::placement(Vec::new());
            super::awaited_since(&cluster(&status), &placed).map(|time| time.0.to_string())
        };
        let (before, scheduled, after) = (
            "2025-01-01T00:00:00Z",
            "2026-01-01T00:00:00Z",
            "2026-01-02T00:00:00Z",
        );
        assert_eq!(
            since_of(2, Some(after)),
            None,
            "an earlier generation was observed"
        );
        assert_eq!(since_of(3, Some(after)).as_deref(), Some(after));
        assert_eq!(since_of(3, Some(before)).as_deref(), Some(scheduled));
        assert_eq!(since_of(3, None).as_deref(), Some(scheduled));
    }

    #[test]
    fn a_gone_host_is_named_before_the_services_that_lack_it() {
        let holding = holding(vec![answer("h1", MemberState::Bound)], false, Vec::new());
        let members = assess_all(&holding, |_| true);
        let labeled = labeled(&cluster(&serde_json::json!({})), &holding, &members);
        let failing = Readiness::Failing("loadBalancer: NoAddress: words".to_owned());
        let found = ready(
            &holding.placement,
            &labeled,
            &failing,
            &gone(&holding, &members),
            false,
        );
        assert_eq!(
            found.message,
            "metal/h1: its BareMetalHost is gone; loadBalancer: NoAddress: words"
        );
    }

    #[test]
    fn a_former_address_is_named_apart_from_its_host() {
        let mut former = answer("h1", MemberState::Releasing);
        former.host.as_mut().unwrap().uid.push_str("+1");
        former.addresses = [("oam".to_owned(), "192.0.2.1".to_owned())].into();
        let mut bound = answer("h1", MemberState::Bound);
        bound.addresses = [("oam".to_owned(), "192.0.2.2".to_owned())].into();
        let held = serde_json::json!({
            "namespace": "metal", "name": "h1", "uid": "uid-h1", "role": "Worker", "state": "Bound", "revision": 5,
            "since": "2025-01-01T00:00:00Z",
        });
        let placement = serde_json::json!({
            "epoch": 1, "revision": 7, "generation": 3, "members": [held], "formerRelease": 7,
            "formerSince": "2026-01-01T00:00:00Z",
        });
        let cluster = cluster(&serde_json::json!({ "placement": placement }));
        let holding = holding(
            vec![bound, former],
            false,
            vec![labelled(host("h1"), "one", "Worker")],
        );
        let found = |drained| {
            let members = assess_all(&holding, |_| drained);
            labeled(&cluster, &holding, &members).message
        };
        assert_eq!(
            found(false),
            "metal/h1: its former address is to be released, waits since 2026-01-01T00:00:00Z for the load-balancer agent to \
             confirm that no pod routes to it"
        );
        assert_eq!(found(true), "metal/h1: its former address is being released");
    }

    #[test]
    fn a_host_that_may_not_be_read_is_not_called_unwritable() {
        let refused = [(key("h1"), "cannot be confirmed as gone: forbidden".to_owned())];
        let mut found = [Finding::no(conditions::HOSTS_LABELED, Reason::Waiting, "")];
        refuse(&mut found, &refused);
        let expected = "metal/h1 cannot be confirmed as gone: forbidden";
        assert_eq!((found[0].reason, &*found[0].message), (Reason::Refused, expected));
    }

    #[test]
    fn replicas_that_could_not_be_set_are_told_of() {
        use Reason::{Refused, Synced, Waiting};
        let changed = ("changed".to_owned(), Waiting);
        let refused = ("refused".to_owned(), Refused);
        let planned = Finding::no(conditions::CLUSTER_API_SYNCED, Waiting, "planned");
        let synced = Finding::yes(conditions::CLUSTER_API_SYNCED, Synced, "");
        for (before, failed, reason, message) in [
            (&synced, vec![], Synced, ""),
            (&synced, vec![&changed], Waiting, "changed"),
            (&planned, vec![&changed], Waiting, "changed; planned"),
            (
                &planned,
                vec![&changed, &refused],
                Refused,
                "changed; refused; planned",
            ),
        ] {
            let ready = Finding::no(conditions::READY, Reason::Progressing, "p");
            let mut found = [ready.clone(), before.clone()];
            let failed: Vec<_> = failed
                .iter()
                .map(|(why, reason)| (*reason, why.clone()))
                .collect();
            unscaled(&mut found, &failed);
            assert_eq!((found[1].reason, &*found[1].message), (reason, message));
            assert_eq!(found[1].status, Some(reason == Synced));
            assert_eq!(found[0], ready);
        }
    }

    #[test]
    fn a_cluster_without_hosts_is_labelled_only_when_it_wants_none() {
        let cluster = cluster(&serde_json::json!({}));
        let refused = |members: Vec<_>, hosts: Vec<serde_json::Value>, refused: bool| {
            let holding = holding(members, refused, hosts);
            let members = assess_all(&holding, |_| true);
            let finding = labeled(&cluster, &holding, &members);
            (finding.status, finding.reason)
        };
        assert_eq!(refused(vec![], vec![], false), (Some(true), Reason::Labeled));
        assert_eq!(refused(vec![], vec![], true), (Some(false), Reason::Waiting));
        assert_eq!(
            refused(
                vec![answer("h1", MemberState::Bound)],
                vec![labelled(host("h1"), "one", "Worker")],
                true
            ),
            (Some(true), Reason::Labeled),
            "what it holds is labelled, though it wants more"
        );
    }
}
