//! Events about changes of a placement that a person may want to know. The agent publishes them once the status holds the placement, before it
//! acts on the hosts.

use api::{MemberState, SIPCluster, conditions};
use kit::{
    conditions::find,
    events::EventReason,
    placement::{Member, Placement},
};

use super::{
    advice::{advice, of_gone_host},
    event::Event,
    findings::first_few,
    label_or_release::GONE,
    observation::{Holding, MachineLookup},
    status,
};
use crate::inventory::ObservedHost;

/// What is new to the status.
pub(super) fn planned(object: &SIPCluster, holding: &Holding) -> Vec<Event> {
    let scheduled = scheduled(object);
    about_all(&holding.placement, scheduled)
        .into_iter()
        .chain(about_members(object, holding))
        .collect()
}

/// The message of the last `Scheduled` condition: empty when all was well.
fn scheduled(object: &SIPCluster) -> Option<&str> {
    find(status::conditions(object), conditions::SCHEDULED).map(|condition| {
        if condition.status == "True" {
            ""
        } else {
            &*condition.message
        }
    })
}

fn about_all(placement: &Placement, scheduled: Option<&str>) -> Option<Event> {
    match placement.refusal() {
        Some(refusal) if scheduled != Some(refusal.message()) => {
            Some(Event::new(EventReason::Unschedulable, refusal.message()))
        }
        None if scheduled.is_none_or(|before| !before.is_empty()) => Some(Event::new(
            EventReason::Scheduled,
            format!(
                "all wanted hosts are assigned; held: {}",
                placement.members().len()
            ),
        )),
        Some(_) | None => None,
    }
}

/// Members that have failed, are to be moved, replace others, or leave: one Event for each of these kinds.
fn about_members(object: &SIPCluster, holding: &Holding) -> Vec<Event> {
    let before = status::placement_in_status(object);
    let (mut failed, mut moves) = (Vec::new(), Vec::new());
    let (mut replacing, mut leaving) = (Vec::new(), Vec::new());
    for member in holding.placement.members() {
        let (host, role) = (member.host(), member.role());
        let known = before.and_then(|before| before.members.iter().find(|known| known.uid == host.uid()));
        let since = known.and_then(|known| known.failed_since.as_ref());
        // A member that fails after a move was requested gets another time.
        if let Some(at) = member.failed_since()
            && since.is_none_or(|since| since.0 != at)
        {
            let machine = holding.machines.get(host.uid());
            let (list, why) = match cause(member, holding.hosts.get(host.key()), machine) {
                Cause::Failure(why) => (&mut failed, why),
                Cause::Request => (&mut moves, "its replacement was requested".to_owned()),
            };
            list.push(format!("{host} ({role}): {why}"));
        }
        if let Some(old) = member.replaces().filter(|_| known.is_none()) {
            replacing.push(format!("{host} ({role}) replaces {old}"));
        }
        if member.is_releasing() && known.is_none_or(|known| known.state != MemberState::Releasing) {
            let reason = member.release_reason().unwrap_or_default();
            let advice = advice(holding, member);
            leaving.push(format!("{host} ({role}): {reason}{advice}"));
        }
    }
    let event = |reason, what: &str, list: Vec<String>| {
        (!list.is_empty()).then(|| Event::new(reason, format!("{what}: {}", first_few(&list))))
    };
    [
        event(EventReason::HostFailed, "to be replaced", failed),
        event(EventReason::MoveRequested, "to be moved", moves),
        event(EventReason::Replacing, "replacements were claimed", replacing),
        event(EventReason::Releasing, "hosts to be released", leaving),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Why a member is to be replaced.
#[derive(Debug)]
enum Cause {
    /// Its host has failed: how, for messages.
    Failure(String),
    /// A user requested it, and its host has no fault.
    Request,
}

/// Why a member is to be replaced, as the scheduler has decided, and how its host has failed, as far as the site shows it. An error is no cause by
/// itself: it lasts for a while before it is one.
fn cause(member: &Member, host: Option<&ObservedHost>, machine: Option<&MachineLookup>) -> Cause {
    if member.is_move_requested() {
        return Cause::Request;
    }
    let host = host.filter(|host| host.id().uid() == member.host().uid());
    let is_claimed = member.state() == MemberState::Claimed;
    Cause::Failure(match host {
        None => format!("{GONE}{}", of_gone_host(machine)),
        Some(host) if host.is_marked_failed() => "it is marked as failed".to_owned(),
        Some(host) if is_claimed && host.consumer().is_some() => {
            "it got a consumer before it had its labels".to_owned()
        }
        Some(host) if is_claimed && host.is_write_refused() => {
            "the API server refuses every write of it".to_owned()
        }
        Some(host) => match host.error() {
            Some(error) => format!("it has been in error for too long: {error}"),
            // A scheduler of an earlier version does not state that a replacement was requested.
            None if host.is_to_be_replaced() => return Cause::Request,
            None => "it has recovered since".to_owned(),
        },
    })
}

#[cfg(test)]
mod tests {
    use api::MemberState::{Bound, Claimed, Releasing};
    use k8s_openapi::jiff::Timestamp;
    use kit::conditions::Finding;
    use proto::placement::v1 as placed;
    use serde_json::{Value, json};

    use super::{
        super::{findings, machine::Machine, members::assess_all},
        *,
    };
    use crate::{
        fixtures::{answer as member, cluster, host, placement, used, with},
        reconcile::fixtures::holding,
    };

    fn events(
        status: &Value,
        members: Vec<placed::Member>,
        hosts: Vec<Value>,
    ) -> Vec<(&'static str, String)> {
        let events = about_members(&cluster(status), &holding(members, false, hosts));
        events
            .into_iter()
            .map(|event| (event.reason.as_str(), event.note))
            .collect()
    }

    fn failed(member: placed::Member) -> placed::Member {
        failed_at(member, 1_800_000_000)
    }

    fn failed_at(member: placed::Member, seconds: i64) -> placed::Member {
        placed::Member {
            failed_since: Some(prost_types::Timestamp { seconds, nanos: 0 }),
            ..member
        }
    }

    /// The status that the agent wrote for these members.
    fn status_of(members: &[placed::Member]) -> Value {
        json!({ "placement": super::super::status::placement(&placement(members.to_vec())) })
    }

    #[test]
    fn a_member_that_fails_leaves_or_replaces_has_one_event() {
        let bound = vec![member("h1", Bound), member("h2", Bound)];
        let marked = with(
            host("h1"),
            "/metadata/annotations/sip.airshipit.org~1failed",
            json!(""),
        );
        let next = vec![
            placed::Member {
                release_reason: "failed".to_owned(),
                ..failed(member("h1", Releasing))
            },
            member("h2", Bound),
            placed::Member {
                replaces: member("h1", Bound).host,
                ..member("h3", Claimed)
            },
        ];
        let hosts = || vec![marked.clone(), host("h2"), host("h3")];
        assert_eq!(
            events(&status_of(&bound), next.clone(), hosts()),
            [
                (
                    "HostFailed",
                    "to be replaced: metal/h1 (Worker): it is marked as failed".to_owned()
                ),
                (
                    "Replacing",
                    "replacements were claimed: metal/h3 (Worker) replaces metal/h1".to_owned()
                ),
                (
                    "Releasing",
                    "hosts to be released: metal/h1 (Worker): failed".to_owned()
                ),
            ]
        );
        assert_eq!(events(&status_of(&next), next, hosts()), []);
    }

    #[test]
    fn a_member_to_be_moved_has_an_event_that_is_no_failure() {
        let asked = |object| {
            with(
                object,
                "/metadata/annotations/sip.airshipit.org~1replace",
                json!(""),
            )
        };
        let in_error = || with(host("h1"), "/status/operationalStatus", json!("error"));
        let requested = (
            "MoveRequested",
            "to be moved: metal/h1 (Worker): its replacement was requested",
        );
        let failure = (
            "HostFailed",
            "to be replaced: metal/h1 (Worker): it got a consumer before it had its labels",
        );
        let error = (
            "HostFailed",
            "to be replaced: metal/h1 (Worker): it has been in error for too long: ",
        );
        for (object, state, is_request, (reason, note)) in [
            (host("h1"), Bound, true, requested),
            (in_error(), Bound, true, requested),
            (in_error(), Bound, false, error),
            (used(host("h1")), Releasing, true, requested),
            (used(host("h1")), Claimed, false, failure),
        ] {
            let next = placed::Member {
                move_requested: is_request,
                ..failed(member("h1", state))
            };
            let events = events(
                &status_of(&[member("h1", state)]),
                vec![next],
                vec![asked(object)],
            );
            assert_eq!(events, [(reason, note.to_owned())]);
        }
    }

    #[test]
    fn a_member_to_be_moved_that_fails_has_its_event() {
        let requested = vec![placed::Member {
            move_requested: true,
            ..failed(member("h1", Bound))
        }];
        let later = failed_at(member("h1", Bound), 1_800_000_060);
        let asked = |host| {
            let annotation = "/metadata/annotations/sip.airshipit.org~1replace";
            with(host, annotation, json!(""))
        };
        let marked = "/metadata/annotations/sip.airshipit.org~1failed";
        let in_error = with(host("h1"), "/status/operationalStatus", json!("error"));
        for (hosts, why) in [
            (
                vec![asked(with(host("h1"), marked, json!("")))],
                "it is marked as failed",
            ),
            (vec![asked(in_error)], "it has been in error for too long: "),
            (Vec::new(), "its BareMetalHost is gone"),
        ] {
            let failed = vec![later.clone()];
            assert_eq!(
                events(&status_of(&requested), failed.clone(), hosts.clone()),
                [("HostFailed", format!("to be replaced: metal/h1 (Worker): {why}"))]
            );
            assert_eq!(events(&status_of(&failed), failed, hosts), []);
        }
        let hosts = vec![asked(host("h1"))];
        assert_eq!(events(&status_of(&requested), requested, hosts), []);
    }

    #[test]
    fn a_host_used_before_handover_fails_for_that_reason() {
        let taken = vec![failed(member("h1", Claimed))];
        let events = events(
            &status_of(&[member("h1", Claimed)]),
            taken,
            vec![used(host("h1"))],
        );
        assert_eq!(
            events[0].1,
            "to be replaced: metal/h1 (Worker): it got a consumer before it had its labels"
        );
    }

    #[test]
    fn a_member_without_host_fails_for_that_reason() {
        let machine = Machine::parse("metal/m-0").unwrap().owned_by("MachineSet ms");
        let collected = MachineLookup::Collected("Metal3Machine metal/m3m-0".to_owned());
        for (left, suffix) in [
            (None, ""),
            (
                Some(MachineLookup::Found(machine)),
                "; its Machine no longer has a host: delete Machine metal/m-0 of this host, and do not scale MachineSet ms down: MachineSet ms \
                 then creates a Machine, which gets the replacement host",
            ),
            (
                Some(collected),
                "; the garbage collector of Kubernetes deleted the host, because the owner of the host, Metal3Machine metal/m3m-0, was gone",
            ),
        ] {
            let mut holding = holding(vec![failed(member("h1", Bound))], false, Vec::new());
            holding
                .machines
                .extend(left.map(|left| ("uid-h1".to_owned(), left)));
            let object = cluster(&status_of(&[member("h1", Bound)]));
            let events = about_members(&object, &holding);
            let expected = format!("to be replaced: metal/h1 (Worker): its BareMetalHost is gone{suffix}");
            assert_eq!(events[0].note, expected);
            let waiting = Finding::no(
                conditions::HOSTS_LABELED,
                conditions::Reason::Waiting,
                format!("metal/h1: its BareMetalHost is gone{suffix}"),
            );
            let members = assess_all(&holding, |_| true);
            let found = findings::evaluate(&object, (&holding, &members), &[], &[], Timestamp::now());
            assert!(found.contains(&waiting), "{found:?}");
        }
    }
}
