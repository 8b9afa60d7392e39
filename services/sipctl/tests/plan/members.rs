//! Members that failed, are gone, or are on their way in or out.

use serde_json::json;
use sipctl::report::Outcome;

use crate::fixtures::{Edit as _, changes, cluster, decided, host};
use crate::outcomes::{Case, FAILED, check, worker};

const UNHEALTHY: &str = "capm3.metal3.io/unhealthy";

#[test]
fn failed_members_are_replaced_within_the_limit() {
    check(vec![
        Case {
            name: "marked",
            objects: vec![
                worker("a", "r1").annotated(FAILED),
                host("b", "r1"),
                cluster("c", &[("Worker", 1)]),
            ],
            outcome: Outcome::Placed,
            changes: vec!["+Worker b@r1", "-Worker a failed"],
        },
        Case {
            name: "marked by Cluster API",
            objects: vec![
                worker("a", "r1").annotated(UNHEALTHY),
                host("b", "r2"),
                cluster("c", &[("Worker", 1)]),
            ],
            outcome: Outcome::Placed,
            changes: vec!["+Worker b@r2", "-Worker a failed"],
        },
        Case {
            name: "one at a time: the rest stays",
            objects: vec![
                worker("a", "r1").annotated(FAILED),
                worker("b", "r2").annotated(FAILED),
                host("d", "r3"),
                host("e", "r4"),
                cluster("c", &[("Worker", 2)]),
            ],
            outcome: Outcome::Partial,
            changes: vec!["=Worker b@r2", "+Worker d@r3", "-Worker a failed"],
        },
        Case {
            name: "no host can replace it",
            objects: vec![
                worker("a", "r1").annotated(FAILED),
                cluster("c", &[("Worker", 1)]),
            ],
            outcome: Outcome::Refused,
            changes: vec!["=Worker a@r1"],
        },
        Case {
            name: "the replacement is decided, the growth not",
            objects: vec![
                worker("a", "r1").annotated(FAILED),
                host("b", "r2"),
                cluster("c", &[("Worker", 2)]),
            ],
            outcome: Outcome::Partial,
            changes: vec!["+Worker b@r2", "-Worker a failed"],
        },
        Case {
            name: "in error is not failed",
            objects: vec![
                worker("a", "r1").set("/status/operationalStatus", "error"),
                host("b", "r2"),
                cluster("c", &[("Worker", 1)]),
            ],
            outcome: Outcome::Placed,
            changes: vec!["=Worker a@r1"],
        },
    ]);
}

#[test]
fn a_member_whose_host_does_not_exist_is_gone() {
    check(vec![
        Case {
            name: "replaced",
            objects: vec![
                host("b", "r1"),
                cluster("c", &[("Worker", 1)]).claims("a", "Worker", "Bound"),
            ],
            outcome: Outcome::Placed,
            changes: vec!["+Worker b@r1", "-Worker a gone"],
        },
        Case {
            name: "no host can replace it",
            objects: vec![cluster("c", &[("Worker", 1)]).claims("a", "Worker", "Bound")],
            outcome: Outcome::Refused,
            changes: vec!["=Worker a"],
        },
        Case {
            name: "it was releasing",
            objects: vec![cluster("c", &[("Worker", 0)]).claims("a", "Worker", "Releasing")],
            outcome: Outcome::Placed,
            changes: vec![],
        },
        Case {
            name: "a host of its name that was made anew is another one, and free",
            objects: vec![
                host("a", "r1"),
                host("b", "r2"),
                cluster("c", &[("Worker", 1)]).set(
                    "/status/placement/members",
                    json!([{"namespace": "lab", "name": "a", "uid": "an-earlier-one", "role": "Worker"}]),
                ),
            ],
            outcome: Outcome::Placed,
            changes: vec!["+Worker a@r1", "-Worker a gone"],
        },
        Case {
            name: "a host of its name whose uid the input does not say is the same one",
            objects: vec![
                host("a", "r1").without("/metadata/uid").member_of("c", "Worker"),
                host("b", "r2"),
                cluster("c", &[("Worker", 1)]).set(
                    "/status/placement/members",
                    json!([{"namespace": "lab", "name": "a", "uid": "uid-a", "role": "Worker"}]),
                ),
            ],
            outcome: Outcome::Placed,
            changes: vec!["=Worker a@r1"],
        },
    ]);
}

#[test]
fn hosts_in_a_status_are_members_before_their_labels() {
    check(vec![
        Case {
            name: "claimed: b, though a would be the first by name",
            objects: vec![
                host("a", "r1"),
                host("b", "r2"),
                cluster("c", &[("Worker", 1)]).claims("b", "Worker", "Claimed"),
            ],
            outcome: Outcome::Placed,
            changes: vec!["=Worker b@r2"],
        },
        Case {
            name: "claimed, and used before it had its labels",
            objects: vec![
                host("a", "r1"),
                host("b", "r2").set(
                    "/spec/consumerRef",
                    json!({"kind": "Metal3Machine", "namespace": "lab", "name": "m"}),
                ),
                cluster("c", &[("Worker", 1)]).claims("b", "Worker", "Claimed"),
            ],
            outcome: Outcome::Placed,
            changes: vec!["+Worker a@r1", "-Worker b failed"],
        },
        Case {
            name: "releasing, and its rack is used until it is free",
            objects: vec![
                worker("a", "r1"),
                host("b", "r1"),
                host("d", "r2"),
                cluster("c", &[("Worker", 1)]).claims("a", "Worker", "Releasing"),
            ],
            outcome: Outcome::Placed,
            changes: vec!["+Worker d@r2"],
        },
        Case {
            name: "bound, and without labels: not a member",
            objects: vec![
                host("a", "r1"),
                host("b", "r2"),
                cluster("c", &[("Worker", 1)]).claims("b", "Worker", "Bound"),
            ],
            outcome: Outcome::Placed,
            changes: vec!["+Worker a@r1"],
        },
    ]);
}

#[test]
fn both_of_a_move_stay_until_the_new_one_is_labelled() {
    let moving = |second: serde_json::Value| {
        vec![
            worker("a", "r1").annotated("sip.airshipit.org/replace"),
            second,
            cluster("c", &[("Worker", 1)]).set(
                "/status/placement/members",
                json!([
                    {"namespace": "lab", "name": "a", "role": "Worker", "state": "Bound"},
                    {"namespace": "lab", "name": "b", "role": "Worker", "state": "Claimed", "replaces": "lab/a"},
                ]),
            ),
        ]
    };
    // Together they fill the one place that the role wants.
    let claimed = decided(&moving(host("b", "r2")));
    assert_eq!(
        changes(&claimed),
        ["=Worker a@r1", "=Worker b@r2"],
        "{claimed:#?}"
    );
    assert_eq!(claimed.outcome, Outcome::Placed);
    check(vec![Case {
        name: "labelled",
        objects: moving(worker("b", "r2")),
        outcome: Outcome::Placed,
        changes: vec!["=Worker b@r2", "-Worker a failed"],
    }]);
}

#[test]
fn a_replacement_is_not_beside_a_member_claimed_after_it() {
    // a failed, b was claimed in its place, and a was claimed again after that. Now it is to be moved.
    let objects = vec![
        worker("a", "r1").annotated("sip.airshipit.org/replace"),
        host("b", "r2"),
        host("d", "r3"),
        cluster("c", &[("Worker", 2)]).set(
            "/status/placement/members",
            json!([
                {"namespace": "lab", "name": "a", "role": "Worker", "state": "Bound", "revision": 9},
                {"namespace": "lab", "name": "b", "role": "Worker", "state": "Claimed", "revision": 5,
                 "replaces": "lab/a"},
            ]),
        ),
    ];
    let both = decided(&objects);
    assert_eq!(changes(&both), ["=Worker a@r1", "=Worker b@r2"], "{both:#?}");
}

#[test]
fn a_used_surplus_member_stays_when_the_role_grows_again() {
    let consumer = json!({"kind": "Metal3Machine", "namespace": "lab", "name": "m"});
    let shrunk = |reason: Option<&str>, b: serde_json::Value, want: u32| {
        let mut releasing = json!({"namespace": "lab", "name": "b", "role": "Worker", "state": "Releasing"});
        if let Some(reason) = reason {
            releasing["releaseReason"] = reason.into();
        }
        vec![
            worker("a", "r1").set("/spec/consumerRef", consumer.clone()),
            b,
            host("d", "r3"),
            cluster("c", &[("Worker", want)]).set(
                "/status/placement/members",
                json!([{"namespace": "lab", "name": "a", "role": "Worker", "state": "Bound"}, releasing]),
            ),
        ]
    };
    let used = || worker("b", "r2").set("/spec/consumerRef", consumer.clone());
    let unlabelled = || host("b", "r2").set("/spec/consumerRef", consumer.clone());
    let kept = vec!["=Worker a@r1", "=Worker b@r2"];
    let replaced = vec!["=Worker a@r1", "+Worker d@r3"];
    for (name, reason, b, changes) in [
        ("surplus and used", Some("surplus"), used(), &kept),
        (
            "surplus, and nobody uses it",
            Some("surplus"),
            worker("b", "r2"),
            &replaced,
        ),
        (
            "surplus, and its labels are off",
            Some("surplus"),
            unlabelled(),
            &replaced,
        ),
        ("it failed", Some("failed"), used(), &replaced),
        ("no reason is given", None, used(), &replaced),
    ] {
        check(vec![Case {
            name,
            objects: shrunk(reason, b, 2),
            outcome: Outcome::Placed,
            changes: changes.clone(),
        }]);
    }
    check(vec![Case {
        name: "the role does not want it",
        objects: shrunk(Some("surplus"), used(), 1),
        outcome: Outcome::Placed,
        changes: vec!["=Worker a@r1", "-Worker b surplus"],
    }]);
}
