//! How decisions end, and what changes.

use serde_json::{Value, json};
use sipctl::report::Outcome;

use crate::fixtures::{Edit as _, FLAVOR, RACK, changes, cluster, decided, host, report};

pub(crate) const FAILED: &str = "sip.airshipit.org/failed";

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) objects: Vec<Value>,
    pub(crate) outcome: Outcome,
    pub(crate) changes: Vec<&'static str>,
}

pub(crate) fn check(cases: Vec<Case>) {
    for Case {
        name,
        objects,
        outcome,
        changes: expected,
    } in cases
    {
        let cluster = decided(&objects);
        assert_eq!(changes(&cluster), expected, "{name}: {cluster:#?}");
        assert_eq!(cluster.outcome, outcome, "{name}");
        assert_eq!(cluster.refusal.is_none(), outcome == Outcome::Placed, "{name}");
        if outcome == Outcome::Placed {
            assert!(
                cluster
                    .roles
                    .values()
                    .all(|role| role.hosts.len() == role.want as usize),
                "{name}"
            );
        }
    }
}

pub(crate) fn worker(name: &str, rack: &str) -> Value {
    host(name, rack).member_of("c", "Worker")
}

#[test]
fn a_new_cluster_gets_all_its_hosts_or_none() {
    check(vec![
        Case {
            name: "fits",
            objects: vec![
                host("a", "r1").label(FLAVOR, "cp"),
                host("b", "r2"),
                cluster("c", &[("ControlPlane", 1), ("Worker", 1)]).set(
                    "/spec/nodes/ControlPlane/labelSelector/matchLabels",
                    json!({FLAVOR: "cp"}),
                ),
            ],
            outcome: Outcome::Placed,
            changes: vec!["+ControlPlane a@r1", "+Worker b@r2"],
        },
        Case {
            name: "one host short: the role that would fit gets nothing either",
            objects: vec![
                host("a", "r1"),
                cluster("c", &[("ControlPlane", 1), ("Worker", 1)]),
            ],
            outcome: Outcome::Refused,
            changes: vec![],
        },
        Case {
            name: "nothing is wanted",
            objects: vec![host("a", "r1"), cluster("c", &[("Worker", 0)])],
            outcome: Outcome::Placed,
            changes: vec![],
        },
        Case {
            name: "without a key there is no domain",
            objects: vec![
                host("a", "r1"),
                cluster("c", &[("Worker", 1)]).without("/spec/nodes/Worker/topologyKey"),
            ],
            outcome: Outcome::Placed,
            changes: vec!["+Worker a"],
        },
    ]);
}

#[test]
fn growth_takes_all_missing_hosts_or_none_and_members_stay() {
    check(vec![
        Case {
            name: "fits",
            objects: vec![worker("a", "r1"), host("b", "r2"), cluster("c", &[("Worker", 2)])],
            outcome: Outcome::Placed,
            changes: vec!["=Worker a@r1", "+Worker b@r2"],
        },
        Case {
            name: "the rack of a member is used up",
            objects: vec![worker("a", "r1"), host("b", "r1"), cluster("c", &[("Worker", 2)])],
            outcome: Outcome::Refused,
            changes: vec!["=Worker a@r1"],
        },
        Case {
            name: "two members in one rack, as SIP placed them, stay",
            objects: vec![
                worker("a", "r1"),
                worker("b", "r1"),
                cluster("c", &[("Worker", 2)]),
            ],
            outcome: Outcome::Placed,
            changes: vec!["=Worker a@r1", "=Worker b@r1"],
        },
    ]);
}

#[test]
fn a_shrink_releases_the_surplus_in_the_documented_order() {
    let consumer = json!({"kind": "Metal3Machine", "namespace": "lab", "name": "m"});
    check(vec![
        Case {
            name: "by name, the highest first",
            objects: vec![
                worker("a", "r1"),
                worker("b", "r2"),
                worker("d", "r3"),
                cluster("c", &[("Worker", 1)]),
            ],
            outcome: Outcome::Placed,
            changes: vec!["=Worker a@r1", "-Worker b surplus", "-Worker d surplus"],
        },
        Case {
            name: "one without a consumer goes before one with",
            objects: vec![
                worker("a", "r1"),
                worker("b", "r2").set("/spec/consumerRef", consumer.clone()),
                cluster("c", &[("Worker", 1)]),
            ],
            outcome: Outcome::Placed,
            changes: vec!["=Worker b@r2", "-Worker a surplus"],
        },
        Case {
            name: "a failed one goes first, whoever uses it",
            objects: vec![
                worker("a", "r1")
                    .annotated(FAILED)
                    .set("/spec/consumerRef", consumer),
                worker("b", "r2"),
                cluster("c", &[("Worker", 1)]),
            ],
            outcome: Outcome::Placed,
            changes: vec!["=Worker b@r2", "-Worker a surplus"],
        },
        Case {
            name: "a role that is gone from the spec is wanted 0 times",
            objects: vec![
                host("a", "r1").member_of("c", "Old"),
                worker("b", "r2"),
                cluster("c", &[("Worker", 1)]),
            ],
            outcome: Outcome::Placed,
            changes: vec!["=Worker b@r2", "-Old a surplus"],
        },
        Case {
            name: "what is released frees neither host nor domain for the other role",
            objects: vec![
                worker("a", "r1"),
                worker("b", "r2"),
                cluster("c", &[("ControlPlane", 1), ("Worker", 1)]),
            ],
            outcome: Outcome::Partial,
            changes: vec!["=Worker a@r1", "-Worker b surplus"],
        },
    ]);
    let gone = decided(&[host("a", "r1").member_of("c", "Old"), cluster("c", &[])]);
    assert_eq!((gone.roles["Old"].want, gone.roles["Old"].hosts.len()), (0, 0));
}

#[test]
fn a_cluster_that_is_being_deleted_releases_all() {
    let deleting = |cluster: Value| cluster.set("/metadata/deletionTimestamp", "2026-01-02T03:04:05Z");
    check(vec![
        Case {
            name: "with members",
            objects: vec![
                worker("a", "r1"),
                host("b", "r2"),
                deleting(cluster("c", &[("Worker", 2)])),
            ],
            outcome: Outcome::Placed,
            changes: vec!["-Worker a deleted"],
        },
        Case {
            name: "though its spec breaks a rule",
            objects: vec![
                worker("a", "r1"),
                deleting(cluster("c", &[("Worker", 2)]).set("/spec/nodes/Worker/count/active", -1)),
            ],
            outcome: Outcome::Placed,
            changes: vec!["-Worker a deleted"],
        },
        Case {
            name: "without members",
            objects: vec![deleting(cluster("c", &[("Worker", 2)]))],
            outcome: Outcome::Placed,
            changes: vec![],
        },
    ]);
}

#[test]
fn a_cluster_that_breaks_a_rule_is_invalid_and_keeps_its_hosts() {
    let broken = [
        (
            "/spec/nodes/Worker/count/active",
            json!(-1),
            "spec.nodes[Worker].count.active is -1",
        ),
        (
            "/spec/nodes/Worker/count/active",
            json!("three"),
            "spec.nodes.Worker.count.active: invalid type",
        ),
        (
            "/spec/nodes/Worker/count/active",
            json!(100_001),
            "at most 100000",
        ),
        (
            "/spec/nodes/Worker/topologyKey",
            json!("-"),
            "spec.nodes[Worker].topologyKey",
        ),
        (
            "/spec/nodes/Worker/labelSelector",
            Value::Null,
            "labelSelector is absent",
        ),
        (
            "/spec/nodes/Worker/labelSelector/matchExpressions",
            json!([{"key": "a", "operator": "Near"}]),
            "must be In, NotIn, Exists or DoesNotExist",
        ),
        ("/spec/nodes/Bad~1role", json!({}), "the name of a role"),
        ("/spec/nodes", json!([1]), "spec.nodes: invalid type"),
        (
            "/status/placement/members",
            json!([{"name": "x", "role": ""}]),
            "status.placement.members[0]",
        ),
        (
            "/status/placement/members",
            json!([{"name": "x"}]),
            "missing field `role`",
        ),
    ];
    for (pointer, value, message) in broken {
        let objects = [
            worker("a", "r1"),
            cluster("c", &[("Worker", 1)]).set(pointer, value),
            cluster("d", &[("Worker", 1)]),
        ];
        let report = report(&objects);
        let [invalid, other] = &report.clusters[..] else {
            panic!("two clusters")
        };
        let refusal = invalid.refusal.as_ref().unwrap();
        assert_eq!(
            (invalid.outcome, &*refusal.kind),
            (Outcome::Invalid, "invalid"),
            "{pointer}"
        );
        assert!(
            refusal.message.contains("SIPCluster lab/c") && refusal.message.contains(message),
            "{}",
            refusal.message
        );
        assert!(
            invalid.roles.is_empty() && invalid.release.is_empty(),
            "{pointer}"
        );
        assert_eq!(other.outcome, Outcome::Refused, "{pointer}: a is not free");
    }
    let many: serde_json::Map<_, _> = (0..33)
        .map(|n| (format!("r{n}"), json!({"labelSelector": {}, "count": {}})))
        .collect();
    let refusal = decided(&[cluster("c", &[]).set("/spec/nodes", many)])
        .refusal
        .unwrap();
    assert!(
        refusal
            .message
            .contains("spec.nodes is 33 roles: must be at most 32"),
        "{}",
        refusal.message
    );
}

#[test]
fn hosts_without_their_topology_label_are_not_taken() {
    for rack in [host("a", "r1").without("/metadata/labels"), host("a", "")] {
        let refused = decided(&[rack, cluster("c", &[("Worker", 1)])]);
        let funnel = refused.refusal.unwrap().roles["Worker"].clone();
        assert_eq!(
            (funnel.matched, funnel.with_topology, funnel.short),
            (1, 0, 1),
            "{RACK}"
        );
    }
}
