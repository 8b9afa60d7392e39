//! `sipctl lose`: which clusters lose their majority with a domain.

use serde_json::{Value, json};

use crate::command::{directory, sipctl, text};
use crate::fixtures::{Edit as _, cluster, host};
use crate::outcomes::FAILED;

#[test]
fn a_rack_outage_names_clusters_that_lose_quorum() {
    let objects = [
        host("a", "r1").member_of("one", "ControlPlane"),
        host("b", "r2").member_of("two", "ControlPlane"),
        host("c", "r1").member_of("two", "Worker"),
        host("d", "r2").member_of("two", "Worker"),
        host("e", "r3").member_of("two", "Worker"),
        cluster("one", &[("ControlPlane", 1)]),
        cluster("two", &[("ControlPlane", 1), ("Worker", 3)]),
    ];
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let files = directory(&[("all.json", &list)]);
    let path = files.path().to_str().unwrap();
    let lose = |domain: &str, output: &str| sipctl(&["lose", domain, "-f", path, "-n", "lab", "-o", output]);

    let r1 = lose("example.org/rack=r1", "json");
    assert_eq!(r1.status.code(), Some(2), "{r1:?}");
    let json: Value = serde_json::from_slice(&r1.stdout).unwrap();
    let expected = serde_json::json!({"domain": "example.org/rack=r1", "losses": [
        {"cluster": "lab/one", "role": "ControlPlane", "members": 1, "failed": 0, "lost": 1, "losesMajority": true},
        {"cluster": "lab/two", "role": "Worker", "members": 3, "failed": 0, "lost": 1, "losesMajority": false},
    ]});
    assert_eq!(json, expected);

    let r3 = lose("example.org/rack=r3", "table");
    assert_eq!(r3.status.code(), Some(0), "{r3:?}");
    assert!(text(&r3.stdout).contains("lab/two"), "{r3:?}");
    let r9 = lose("example.org/rack=r9", "table");
    assert_eq!(
        text(&r9.stdout),
        "No cluster has a running member in example.org/rack=r9.\n"
    );
    let bad = lose("rack", "table");
    assert_eq!(bad.status.code(), Some(1));
    assert!(text(&bad.stderr).contains("KEY=VALUE"), "{bad:?}");
}

#[test]
fn a_plan_can_be_asked_what_a_rack_would_cost() {
    let objects = [
        host("a", "r1").member_of("has", "ControlPlane"),
        host("b", "r2"),
        host("c", "r3"),
        host("d", "r3").member_of("goes", "ControlPlane"),
        cluster("has", &[("ControlPlane", 3)]),
        cluster("goes", &[("ControlPlane", 1)]).set("/metadata/deletionTimestamp", "2026-01-01T00:00:00Z"),
        cluster("refused", &[("ControlPlane", 3)]),
    ];
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let files = directory(&[("all.json", &list)]);
    let path = files.path().to_str().unwrap();
    let lose = |domain: &str, more: &[&str]| {
        let arguments = ["lose", domain, "-f", path, "-n", "lab", "-o", "json"];
        let told = sipctl(&[&arguments, more].concat());
        let mut json: Value = serde_json::from_slice(&told.stdout).unwrap();
        (told.status.code(), json["losses"].take())
    };
    let loses = |cluster: &str, members: u32, majority: bool| json!([{"cluster": cluster, "role": "ControlPlane", "members": members, "failed": 0, "lost": 1, "losesMajority": majority}]);

    assert_eq!(
        lose("example.org/rack=r1", &[]),
        (Some(2), loses("lab/has", 1, true))
    );
    // It has three hosts then.
    let planned = ["--planned"];
    for rack in ["r1", "r2", "r3"] {
        let domain = format!("example.org/rack={rack}");
        assert_eq!(
            lose(&domain, &planned),
            (Some(0), loses("lab/has", 3, false)),
            "{rack}"
        );
    }
}

/// What `sipctl lose` says of the rack r2, and its exit code.
fn lost(objects: &[Value]) -> (Option<i32>, Value) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let files = directory(&[("all.json", &list)]);
    let path = files.path().to_str().unwrap();
    let told = sipctl(&[
        "lose",
        "example.org/rack=r2",
        "-f",
        path,
        "-n",
        "lab",
        "-o",
        "json",
    ]);
    let mut json: Value = serde_json::from_slice(&told.stdout).unwrap();
    (told.status.code(), json["losses"].take())
}

/// A control plane in its status, as `(host, state, what else it says)`.
fn in_status(members: &[(&str, &str, Value)]) -> Value {
    let members = members.iter().map(|(name, state, more)| {
        let mut member = json!({"namespace": "lab", "name": name, "role": "ControlPlane", "state": state});
        let fields = member.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        member
    });
    let members: Vec<Value> = members.collect();
    cluster("c", &[("ControlPlane", 3)]).set("/status/placement/members", members)
}

fn controller(name: &str, rack: &str) -> Value {
    host(name, rack).member_of("c", "ControlPlane")
}

/// The loss of the only role, and the exit code: members, failed, lost, and whether the majority goes.
fn outcome(members: u32, failed: u32, lost: u32, loses_majority: bool) -> (Option<i32>, Value) {
    let loss = json!({
        "cluster": "lab/c", "role": "ControlPlane", "members": members, "failed": failed, "lost": lost,
        "losesMajority": loses_majority,
    });
    (Some(if loses_majority { 2 } else { 0 }), json!([loss]))
}

#[test]
fn members_that_have_failed_survive_no_outage() {
    let rest = || [controller("b", "r2"), controller("c", "r3")];
    let marked = [
        controller("a", "r1").annotated(FAILED),
        cluster("c", &[("ControlPlane", 3)]),
    ];
    assert_eq!(
        lost(&[rest().as_slice(), &marked].concat()),
        outcome(3, 1, 1, true)
    );

    let bound = ["a", "b", "c"].map(|name| (name, "Bound", json!({})));
    let gone = [in_status(&bound)];
    assert_eq!(lost(&[rest().as_slice(), &gone].concat()), outcome(3, 1, 1, true));
}

#[test]
fn claims_that_are_not_bound_survive_no_outage() {
    let claimed = |rack: &str| {
        let members = [("b", "Bound"), ("c", "Bound"), ("d", "Claimed")];
        [
            controller("b", "r2"),
            controller("c", "r3"),
            host("d", rack),
            in_status(&members.map(|(name, state)| (name, state, json!({})))),
        ]
    };
    assert_eq!(lost(&claimed("r4")), outcome(2, 0, 1, true));
    assert_eq!(lost(&claimed("r2")), outcome(2, 0, 1, true));
}

#[test]
fn of_a_pair_only_the_one_that_serves_is_counted() {
    let moving = |new: Value| {
        let replaces = json!({"replaces": "lab/a", "revision": 9});
        let members = [
            ("a", "Bound", json!({})),
            ("b", "Bound", json!({})),
            ("c", "Bound", json!({})),
            ("n", "Claimed", replaces),
        ];
        [
            controller("a", "r2").annotated("sip.airshipit.org/replace"),
            controller("b", "r1"),
            controller("c", "r3"),
            new,
            in_status(&members),
        ]
    };
    let unbound = lost(&moving(host("n", "r2")));
    assert_eq!(unbound, outcome(3, 0, 1, false), "a serves until n is bound");
    let bound = lost(&moving(controller("n", "r4")));
    assert_eq!(bound, (Some(0), json!([])), "n has the place of a");
}

#[test]
fn a_member_whose_release_is_requested_still_runs() {
    let surplus = json!({"releaseReason": "surplus"});
    let members = [
        ("a", "Bound", json!({})),
        ("b", "Bound", json!({})),
        ("c", "Releasing", surplus),
    ];
    let used = json!({"kind": "Metal3Machine", "namespace": "lab", "name": "m"});
    let objects = [
        controller("a", "r2"),
        controller("b", "r3"),
        controller("c", "r1").set("/spec/consumerRef", used),
        in_status(&members),
    ];
    assert_eq!(lost(&objects), outcome(3, 0, 1, false));
}
