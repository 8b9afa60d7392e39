//! Why not: every kind of refusal.

use placement::Policy;
use serde_json::json;
use sipctl::plan;
use sipctl::report::{Cluster, Outcome};

use crate::fixtures::{Edit as _, cluster, decided, host, planned, read_with};

fn with_policy(policy: serde_json::Value, objects: &[serde_json::Value]) -> Cluster {
    let policy: Policy = serde_json::from_value(policy).unwrap();
    plan(&read_with(objects, policy).unwrap())
        .report()
        .clusters
        .remove(0)
}

#[test]
fn a_refusal_counts_the_hosts_left_after_each_condition() {
    let refused = decided(&[
        host("a", "r1"),
        host("b", "r1"),
        host("d", "r2").annotated("baremetalhost.metal3.io/paused"),
        host("e", "r3").without("/metadata/labels"),
        cluster("c", &[("Worker", 2)]),
    ]);
    let refusal = refused.refusal.unwrap();
    let funnel = &refusal.roles["Worker"];
    assert_eq!((refused.outcome, &*refusal.kind), (Outcome::Refused, "no-fit"));
    assert_eq!(
        [
            funnel.matched,
            funnel.with_topology,
            funnel.eligible,
            funnel.free,
            funnel.domains,
            funnel.short
        ],
        [4, 3, 2, 2, 1, 1]
    );
    let tight = &refusal.tight;
    assert_eq!(
        (tight.roles.as_slice(), tight.demand, tight.deficit),
        (["Worker".to_owned()].as_slice(), 2, 1)
    );
    assert_eq!(tight.domains[0].domain, "r1");
    assert!(
        !refusal.helps.is_empty() && refusal.message.contains("Worker: 2 wanted, 1 can be placed"),
        "{refusal:#?}"
    );
}

#[test]
fn a_quota_of_the_policy_refuses() {
    let objects = [host("a", "r1"), host("b", "r2"), cluster("c", &[("Worker", 2)])];
    let refused = with_policy(json!({"quotas": {"lab": 1}}), &objects);
    assert_eq!(
        (refused.outcome, &*refused.refusal.unwrap().kind),
        (Outcome::Refused, "quota")
    );
    assert_eq!(
        with_policy(json!({"quotas": {"lab": 2}}), &objects).outcome,
        Outcome::Placed
    );
}

/// Of two clusters in one quota of five hosts: how the one called `b` comes out, which wants a third. `a` and its members are given.
fn beside(a: &[serde_json::Value], created: &str) -> Outcome {
    let b = [
        host("b1", "r4").member_of("b", "Worker"),
        host("b2", "r5").member_of("b", "Worker"),
        host("free", "r6"),
        cluster("b", &[("Worker", 3)]).set("/metadata/creationTimestamp", created),
    ];
    let policy: Policy = serde_json::from_value(json!({"quotas": {"lab": 5}})).unwrap();
    let report = plan(&read_with(&[a, &b].concat(), policy).unwrap()).report();
    let b = report
        .clusters
        .into_iter()
        .find(|cluster| cluster.cluster == "lab/b");
    b.unwrap().outcome
}

const MADE: &str = "2026-01-02T00:00:00Z";
const BEFORE: &str = "2026-01-01T00:00:00Z";
const AFTER: &str = "2026-01-03T00:00:00Z";

fn three_of_a(of_a: serde_json::Value) -> [serde_json::Value; 4] {
    let worker = |name: &str, rack: &str| host(name, rack).member_of("a", "Worker");
    [
        worker("a1", "r1"),
        worker("a2", "r2"),
        worker("a3", "r3"),
        of_a.set("/metadata/creationTimestamp", MADE),
    ]
}

#[test]
fn what_is_released_counts_for_no_quota() {
    let shrinks = three_of_a(cluster("a", &[("Worker", 2)]));
    assert_eq!(beside(&shrinks, AFTER), Outcome::Placed);
    assert_eq!(
        beside(&shrinks, BEFORE),
        Outcome::Placed,
        "shrinking waits for nobody"
    );
    let ends = three_of_a(cluster("a", &[("Worker", 3)])).map(|object| {
        if object["kind"] == "SIPCluster" {
            object.set("/metadata/deletionTimestamp", AFTER)
        } else {
            object
        }
    });
    assert_eq!(beside(&ends, AFTER), Outcome::Placed, "it is deleted");
    let stays = three_of_a(cluster("a", &[("Worker", 3)]));
    assert_eq!(beside(&stays, AFTER), Outcome::Refused);
}

#[test]
fn a_requested_member_that_stays_counts_for_the_quota() {
    let used = json!({"kind": "Metal3Machine", "namespace": "lab", "name": "m"});
    let surplus = json!([
        {"namespace": "lab", "name": "a3", "role": "Worker", "state": "Releasing", "releaseReason": "surplus"},
    ]);
    let mut wanted_again =
        three_of_a(cluster("a", &[("Worker", 3)]).set("/status/placement/members", surplus));
    wanted_again[2] = wanted_again[2].take().set("/spec/consumerRef", used);
    assert_eq!(beside(&wanted_again, AFTER), Outcome::Refused);
}

#[test]
fn a_cordoned_domain_refuses_claims_and_is_reported() {
    let cordon = json!({"cordoned": [{"key": "example.org/rack", "value": "r1"}]});
    let refused = with_policy(cordon.clone(), &[host("a", "r1"), cluster("c", &[("Worker", 1)])]);
    assert_eq!(refused.refusal.unwrap().roles["Worker"].eligible, 0);
    let member = host("a", "r1").member_of("c", "Worker");
    let kept = with_policy(cordon, &[member, cluster("c", &[("Worker", 1)])]);
    assert!(
        kept.reports.iter().any(|report| report.kind == "cordoned-domain"),
        "{kept:#?}"
    );
}

#[test]
fn the_hierarchy_of_the_policy_spreads_hosts() {
    let in_room = |name: &str, room: &str| host(name, name).label("example.org/room", room);
    let objects = [
        in_room("a", "x"),
        in_room("b", "x"),
        in_room("d", "y"),
        cluster("c", &[("Worker", 2)]),
    ];
    let names = |cluster: Cluster| -> Vec<String> {
        cluster.roles["Worker"]
            .hosts
            .iter()
            .map(|host| host.host.clone())
            .collect()
    };
    assert_eq!(names(with_policy(json!({}), &objects)), ["lab/a", "lab/b"]);
    assert_eq!(
        names(with_policy(json!({"hierarchy": ["example.org/room"]}), &objects)),
        ["lab/a", "lab/d"]
    );
}

#[test]
fn replacements_under_way_make_the_others_wait() {
    const FAILED: &str = "sip.airshipit.org/failed";
    let worker = |name: &str, rack: &str| host(name, rack).member_of("c", "Worker").annotated(FAILED);
    let partial = decided(&[
        worker("a", "r1"),
        worker("b", "r2"),
        host("d", "r3"),
        host("e", "r4"),
        cluster("c", &[("Worker", 2)]),
    ]);
    assert_eq!(
        (partial.outcome, &*partial.refusal.unwrap().kind),
        (Outcome::Partial, "replacement-limit")
    );
}

#[test]
fn a_short_role_lists_every_reason_of_every_host() {
    let plan = planned(&[
        host("a", "r1").member_of("c", "Worker"),
        host("b", "r1"),
        host("d", "r2")
            .annotated("baremetalhost.metal3.io/paused")
            .set("/status/operationalStatus", "error"),
        host("e", "r3").member_of("d", "Worker"),
        cluster("c", &[("Worker", 2)]),
        cluster("d", &[("Worker", 1)]),
    ]);
    let why_not = &plan.clusters()[0].grid.why_not;
    let reasons: Vec<String> = why_not[0]
        .reasons
        .iter()
        .map(|(why, hosts)| {
            format!(
                "{}: {why}",
                hosts.iter().map(ToString::to_string).collect::<String>()
            )
        })
        .collect();
    assert_eq!(
        reasons,
        [
            "lab/b: Worker has a host in example.org/rack=r1 already",
            "lab/e: cluster lab/d holds it as Worker",
            "lab/d: it is paused; it is in error",
        ]
    );
    assert!(plan.clusters()[1].grid.why_not.is_empty());
}
