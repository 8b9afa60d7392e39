//! What a member's host needs, by what is seen of it.

use api::MemberState;
use api::labels;
use kit::placement::{ClusterId, Member};
use proto::inventory::v1 as wire;

/// What a member's host needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// It is as it should be.
    Nothing,
    /// The three labels must be put on it.
    Label,
    /// The labels must be taken off it, and the release be marked.
    Unlabel,
    /// Its release is on the API server: the scheduler must be told.
    Confirm,
    /// The watches do not show it: when the API server has no such host, the scheduler must be told.
    ConfirmGone,
    /// It cannot be written now; for people.
    Blocked(String),
    /// It waits for something that will come; for people.
    Waits(String),
    /// It is to be given back, and pods of load balancers may still route to it.
    Drains,
}

/// What the host of a member that joins or has joined needs. `served`: every load balancer has applied its revision.
#[must_use]
pub fn to_hold(cluster: &ClusterId, member: &Member, host: Option<&wire::Host>, served: bool) -> Need {
    let Some(host) = incarnation(member, host) else {
        return Need::Blocked("its BareMetalHost is gone".to_owned());
    };
    match carried(host, cluster, member.role()) {
        Carried::Ours => Need::Nothing,
        Carried::Others(labels) => Need::Blocked(format!("it carries labels of somebody else: {labels}")),
        // The claim is older than what the host shows: this process was paused, and another has given the host back.
        Carried::None | Carried::Part if host.release_mark >= member.revision() => Need::Blocked(format!(
            "it was given back at revision {}, after it was claimed at {}",
            host.release_mark,
            member.revision()
        )),
        // Labels that a person removed are put back while the host is in use; a new claim must find it unused.
        Carried::None | Carried::Part
            if member.state() == MemberState::Claimed && host.consumer.is_some() =>
        {
            Need::Blocked(format!("it is used by {} already", consumer(host)))
        }
        Carried::None | Carried::Part if !served => {
            Need::Waits("the load balancers have not taken it in yet".to_owned())
        }
        Carried::None | Carried::Part => Need::Label,
    }
}

/// What the host of a releasing member needs. `drained`: no pod of any load balancer routes to it.
#[must_use]
pub fn to_release(cluster: &ClusterId, member: &Member, host: Option<&wire::Host>, drained: bool) -> Need {
    let Some(host) = incarnation(member, host) else {
        return Need::ConfirmGone;
    };
    let marked = host.release_mark >= member.revision();
    match carried(host, cluster, member.role()) {
        Carried::None if marked => Need::Confirm,
        Carried::Ours | Carried::Part if host.consumer.is_some() => {
            Need::Waits(format!("it is still used by {}", consumer(host)))
        }
        Carried::None | Carried::Ours | Carried::Part if !drained => Need::Drains,
        Carried::None | Carried::Ours | Carried::Part => Need::Unlabel,
        Carried::Others(labels) => Need::Blocked(format!("it carries labels of somebody else: {labels}")),
    }
}

fn incarnation<'a>(member: &Member, host: Option<&'a wire::Host>) -> Option<&'a wire::Host> {
    let uid = member.host().uid();
    host.filter(|host| host.r#ref.as_ref().is_some_and(|known| known.uid == uid))
}

fn consumer(host: &wire::Host) -> String {
    let wire::Consumer {
        api_version: _,
        kind,
        namespace,
        name,
    } = host.consumer.clone().unwrap_or_default();
    format!("{kind} {namespace}/{name}")
}

enum Carried {
    None,
    Part,
    Ours,
    Others(String),
}

fn carried(host: &wire::Host, cluster: &ClusterId, role: &str) -> Carried {
    let wanted = [
        (labels::CLUSTER_NAMESPACE, cluster.namespace()),
        (labels::CLUSTER_NAME, cluster.name()),
        (labels::NODE_TYPE, role),
    ];
    let found: Vec<_> = wanted
        .iter()
        .filter_map(|(key, _)| host.labels.get_key_value(*key))
        .collect();
    let strange = found
        .iter()
        .any(|(key, value)| !wanted.iter().any(|(k, v)| k == key && v == value));
    match (found.len(), strange) {
        (0, _) => Carried::None,
        (_, true) => Carried::Others(
            found
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect::<Vec<_>>()
                .join(", "),
        ),
        (3, false) => Carried::Ours,
        (_, false) => Carried::Part,
    }
}

#[cfg(test)]
mod tests {
    use api::MemberState::{Bound, Claimed, Releasing};
    use serde_json::{Value, json};

    use super::{super::hosts::Step, *};
    use crate::fixtures::{host, inventory, labelled, member, reference, used, with};

    fn need(host: Option<Value>, state: MemberState, served: bool) -> Need {
        let inventory = inventory(host);
        Step::of(&reference(), &member("h1", state), &inventory, served).need
    }

    fn blocked(need: &Need) -> bool {
        matches!(need, Need::Blocked(_))
    }

    #[test]
    fn labels_come_only_when_the_load_balancers_have_the_host_and_nobody_else_has_it() {
        let h1 = || host("h1");
        let half = with(
            h1(),
            "/metadata/labels/sip.airshipit.org~1cluster-name",
            json!("one"),
        );
        assert_eq!(need(Some(h1()), Claimed, true), Need::Label);
        assert_eq!(need(Some(half), Claimed, true), Need::Label);
        assert!(matches!(need(Some(h1()), Claimed, false), Need::Waits(_)));
        assert_eq!(
            need(Some(labelled(h1(), "one", "Worker")), Claimed, false),
            Need::Nothing
        );
        assert!(blocked(&need(
            Some(labelled(h1(), "two", "Worker")),
            Claimed,
            true
        )));
        assert!(blocked(&need(
            Some(labelled(h1(), "one", "ControlPlane")),
            Claimed,
            true
        )));
        assert!(blocked(&need(Some(used(h1())), Claimed, true)));
        assert!(blocked(&need(None, Claimed, true)), "the host is gone");
    }

    #[test]
    fn labels_that_a_person_removed_are_put_back_though_the_host_is_in_use() {
        assert_eq!(need(Some(used(host("h1"))), Bound, true), Need::Label);
    }

    #[test]
    fn a_host_that_was_made_again_under_the_same_name_is_not_written() {
        let again = with(host("h1"), "/metadata/uid", json!("another"));
        assert!(blocked(&need(Some(again.clone()), Claimed, true)));
        assert_eq!(need(Some(again), Releasing, true), Need::ConfirmGone);
    }

    #[test]
    fn a_release_is_written_on_every_host_and_confirmed_when_it_is_there() {
        let h1 = || host("h1");
        let marked = |revision: &str| {
            with(
                h1(),
                "/metadata/annotations/sip.airshipit.org~1placement-revision",
                json!(revision),
            )
        };
        assert_eq!(
            need(Some(labelled(h1(), "one", "Worker")), Releasing, true),
            Need::Unlabel
        );
        assert_eq!(
            need(Some(h1()), Releasing, true),
            Need::Unlabel,
            "never labelled, and written all the same"
        );
        assert_eq!(
            need(Some(marked("4")), Releasing, true),
            Need::Unlabel,
            "the mark is of an older release"
        );
        assert!(
            need(Some(h1()), Releasing, false) == Need::Drains,
            "a load balancer routes to it"
        );
        assert_eq!(need(Some(marked("5")), Releasing, true), Need::Confirm);
        assert_eq!(need(None, Releasing, true), Need::ConfirmGone, "the host is gone");
    }

    #[test]
    fn a_claim_that_is_older_than_the_hosts_release_labels_nothing() {
        let marked = |revision: &str| {
            with(
                host("h1"),
                "/metadata/annotations/sip.airshipit.org~1placement-revision",
                json!(revision),
            )
        };
        for state in [Claimed, Bound] {
            assert_eq!(
                need(Some(marked("4")), state, true),
                Need::Label,
                "of an earlier claim"
            );
            assert!(blocked(&need(Some(marked("5")), state, true)));
            assert!(blocked(&need(Some(marked("6")), state, true)));
        }
    }

    #[test]
    fn a_host_that_is_in_use_is_not_taken_from_its_consumer_who_is_named() {
        let need = need(Some(used(labelled(host("h1"), "one", "Worker"))), Releasing, true);
        assert_eq!(
            need,
            Need::Waits("it is still used by Metal3Machine tenant/m-0".to_owned())
        );
    }

    #[test]
    fn a_releasing_host_with_labels_of_somebody_else_is_left_alone() {
        assert!(blocked(&need(
            Some(labelled(host("h1"), "two", "Worker")),
            Releasing,
            true
        )));
    }
}
