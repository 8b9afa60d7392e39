use api::MemberState::{self, Bound, Claimed, Releasing};
use serde_json::{Value, json};

use super::*;
use crate::fixtures::{host, inventory, key, labelled, member, reference, used, with};

fn assessment(host: Option<Value>, state: MemberState, load_balancers_ready: bool) -> Assessment {
    let host = inventory(host).host(&key("h1"));
    let member = member("h1", state);
    assess(&reference(), None, &member, host.as_ref(), load_balancers_ready)
}

/// What is due.
fn due(host: Option<Value>, state: MemberState, load_balancers_ready: bool) -> Option<Verb> {
    assessment(host, state, load_balancers_ready)
        .action()
        .map(HostAction::verb)
}

fn is_blocked(host: Value, state: MemberState) -> bool {
    let assessment = assessment(Some(host), state, true);
    matches!(assessment, Assessment::Blocked(_) | Assessment::Gone)
}

fn marked(revision: &str) -> Value {
    with(
        host("h1"),
        "/metadata/annotations/sip.airshipit.org~1placement-revision",
        json!(revision),
    )
}

fn used_by_cluster(object: Value, cluster: &str) -> Value {
    with(
        used(object),
        "/metadata/labels/cluster.x-k8s.io~1cluster-name",
        json!(cluster),
    )
}

fn own(object: Value) -> Value {
    labelled(object, "one", "Worker")
}

#[test]
fn a_free_host_is_labelled_once_load_balancers_have_it() {
    let half = with(
        host("h1"),
        "/metadata/labels/sip.airshipit.org~1cluster-name",
        json!("one"),
    );
    assert_eq!(due(Some(host("h1")), Claimed, true), Some(Verb::Label));
    assert_eq!(due(Some(half), Claimed, true), Some(Verb::Label));
    assert!(matches!(
        assessment(Some(host("h1")), Claimed, false),
        Assessment::Waits(_)
    ));
    assert_eq!(
        assessment(Some(own(host("h1"))), Claimed, false),
        Assessment::Settled
    );
    assert!(is_blocked(labelled(host("h1"), "two", "Worker"), Claimed));
    assert!(is_blocked(labelled(host("h1"), "one", "ControlPlane"), Claimed));
    assert!(is_blocked(used(host("h1")), Claimed));
    assert_eq!(assessment(None, Claimed, true), Assessment::Gone);
}

#[test]
fn removed_labels_are_put_back_on_a_host_in_use() {
    assert_eq!(due(Some(used(host("h1"))), Bound, true), Some(Verb::Relabel));
}

#[test]
fn a_host_made_again_is_not_written() {
    let again = with(host("h1"), "/metadata/uid", json!("another"));
    assert!(is_blocked(again.clone(), Claimed));
    assert_eq!(
        assessment(Some(again.clone()), Releasing, false),
        Assessment::StillRouted,
        "its machine may be the other host's"
    );
    assert_eq!(due(Some(again), Releasing, true), Some(Verb::ConfirmGone));
}

#[test]
fn every_release_is_written_and_then_confirmed() {
    assert_eq!(due(Some(own(host("h1"))), Releasing, true), Some(Verb::Unlabel));
    assert_eq!(
        due(Some(host("h1")), Releasing, true),
        Some(Verb::Unlabel),
        "never labelled, and written all the same"
    );
    assert_eq!(
        due(Some(marked("4")), Releasing, true),
        Some(Verb::Unlabel),
        "the mark is of an older release"
    );
    assert_eq!(
        assessment(Some(host("h1")), Releasing, false),
        Assessment::StillRouted,
        "a load balancer routes to it"
    );
    assert_eq!(
        assessment(None, Releasing, false),
        Assessment::StillRouted,
        "a load balancer routes to what was its machine"
    );
    assert_eq!(due(Some(marked("5")), Releasing, true), Some(Verb::Confirm));
    assert_eq!(
        due(None, Releasing, true),
        Some(Verb::ConfirmGone),
        "the host is gone"
    );
}

#[test]
fn a_claim_older_than_the_hosts_release_labels_nothing() {
    for (state, verb) in [(Claimed, Verb::Label), (Bound, Verb::Relabel)] {
        assert_eq!(
            due(Some(marked("4")), state, true),
            Some(verb),
            "of an earlier claim"
        );
        assert!(is_blocked(marked("5"), state));
        assert!(is_blocked(marked("6"), state));
    }
}

#[test]
fn a_host_in_use_stays_with_its_consumer_who_is_named() {
    assert_eq!(
        assessment(Some(used(own(host("h1")))), Releasing, true),
        Assessment::InUse("it is still used by Metal3Machine tenant/m-0".to_owned())
    );
}

#[test]
fn a_releasing_host_with_foreign_labels_is_left_alone() {
    assert!(is_blocked(labelled(host("h1"), "two", "Worker"), Releasing));
}

#[test]
fn labels_of_another_namespace_are_not_quoted() {
    let near = labelled(host("h1"), "two", "Worker");
    let namespace = "/metadata/labels/sip.airshipit.org~1cluster-namespace";
    let far = with(near.clone(), namespace, json!("bank"));
    for (object, expected) in [
        (
            near,
            "sip.airshipit.org/cluster-namespace=tenant, sip.airshipit.org/cluster-name=two, sip.airshipit.org/node-type=Worker",
        ),
        (far, "sip.airshipit.org/cluster-namespace names another namespace"),
    ] {
        let expected =
            format!("it has labels of another cluster or role: {expected}; correct or remove them");
        assert_eq!(
            assessment(Some(object), Claimed, true),
            Assessment::Blocked(expected)
        );
    }
}

#[test]
fn a_foreign_consumer_blocks_a_member_and_its_release() {
    let labelled = || used_by_cluster(own(host("h1")), "two");
    let unlabelled = used_by_cluster(host("h1"), "two");
    for (object, state) in [
        (labelled(), Bound),
        (labelled(), Claimed),
        (unlabelled, Bound),
        (labelled(), Releasing),
    ] {
        let Assessment::ForeignConsumer(why) = assessment(Some(object), state, true) else {
            panic!("{state:?} is not blocked")
        };
        assert!(
            why.contains("Metal3Machine tenant/m-0 of the Cluster API cluster two"),
            "{why}"
        );
    }
    let own = used_by_cluster(own(host("h1")), "one");
    assert_eq!(assessment(Some(own), Bound, true), Assessment::Settled);
}

#[test]
fn a_claim_in_flight_gets_its_labels_back() {
    for (object, verb) in [
        (used_by_cluster(marked("5"), "one"), Verb::RelabelClaimed),
        (used_by_cluster(marked("5"), "two"), Verb::Confirm),
        // Nothing on the host names the Cluster of its consumer.
        (used(marked("5")), Verb::Confirm),
        (marked("5"), Verb::Confirm),
    ] {
        assert_eq!(due(Some(object), Releasing, true), Some(verb));
    }
}

#[test]
fn a_leaving_host_in_use_gets_removed_labels_back() {
    for object in [host("h1"), marked("4")] {
        for is_drained in [false, true] {
            let used = used_by_cluster(object.clone(), "one");
            assert_eq!(
                due(Some(used), Releasing, is_drained),
                Some(Verb::RelabelClaimed),
                "its cluster's Machine runs on it"
            );
        }
        for other in [used_by_cluster(object.clone(), "two"), used(object)] {
            assert_eq!(due(Some(other), Releasing, true), Some(Verb::Unlabel));
        }
    }
}

#[test]
fn the_annotation_follows_the_sip_cluster() {
    let old = with(
        own(host("h1")),
        "/metadata/annotations/sip.airshipit.org~1cluster-api-cluster",
        json!("old"),
    );
    let Assessment::Due(action) = assessment(Some(old), Bound, true) else {
        panic!("nothing is due")
    };
    assert_eq!(action.verb(), Verb::Adopt);
    let patch = action.patch().unwrap();
    assert_eq!(
        patch.change["annotations"]["sip.airshipit.org/cluster-api-cluster"],
        json!(null)
    );
}

#[test]
fn a_write_is_conditioned_on_the_host_as_it_was_observed() {
    for (object, state) in [(host("h1"), Claimed), (own(host("h1")), Releasing)] {
        let Assessment::Due(action) = assessment(Some(object), state, true) else {
            panic!("nothing is due")
        };
        let patch = action.patch().unwrap();
        assert_eq!((patch.host.uid(), patch.resource_version), ("uid-h1", "7"));
    }
    let Assessment::Due(action) = assessment(Some(marked("5")), Releasing, true) else {
        panic!("nothing is due")
    };
    assert_eq!(action.patch(), None, "a confirmation writes nothing");
}

#[test]
fn the_label_remembers_the_secret_of_the_site() {
    let inventory = inventory([host("h1")]);
    let secret = api::SecretName {
        namespace: "metal".to_owned(),
        name: "h1-network-data".to_owned(),
    };
    inventory.put_network_data(&secret, Some(&api::NetworkData::parse(&secret, b"networks: []")));
    let observed = inventory.host(&key("h1"));
    let Assessment::Due(action) = assess(
        &reference(),
        None,
        &member("h1", Claimed),
        observed.as_ref(),
        true,
    ) else {
        panic!("nothing is due")
    };
    assert_eq!(
        action.patch().unwrap().change["annotations"],
        json!({ "sip.airshipit.org/network-data": "h1-network-data" })
    );
}

#[test]
fn a_first_claim_ends_the_reuse_by_former_machines() {
    let reuse = |state| {
        let Assessment::Due(action) = assessment(Some(host("h1")), state, true) else {
            panic!("nothing is due")
        };
        let patch = action.patch().unwrap();
        let labels = patch.change["labels"].as_object().unwrap();
        labels.contains_key(api::labels::NODE_REUSE)
    };
    assert!(reuse(Claimed) && reuse(Releasing));
    assert!(!reuse(Bound), "its own Machines come back to it");
}
