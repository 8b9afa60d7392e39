//! Which cluster comes first.

use serde_json::Value;
use sipctl::report::{Outcome, Report};

use crate::fixtures::{Edit as _, changes, cluster, host, report};

fn created(cluster: Value, time: &str) -> Value {
    cluster.set("/metadata/creationTimestamp", time)
}

fn outcome(report: &Report, cluster: &str) -> Outcome {
    let name = format!("lab/{cluster}");
    report
        .clusters
        .iter()
        .find(|found| found.cluster == name)
        .unwrap()
        .outcome
}

/// The clusters that get the only free host.
fn winner(mut objects: Vec<Value>) -> Vec<String> {
    objects.push(host("only", "r9"));
    let report = report(&objects);
    let has = |cluster: &&sipctl::report::Cluster| changes(cluster).iter().any(|line| line.contains("only"));
    report
        .clusters
        .iter()
        .filter(has)
        .map(|cluster| cluster.cluster.clone())
        .collect()
}

#[test]
fn clusters_are_ordered_by_age_then_name() {
    let one = |name: &str| cluster(name, &[("Worker", 1)]);
    let old = "2026-01-01T00:00:00Z";
    let new = "2026-01-02T00:00:00Z";
    assert_eq!(winner(vec![one("b"), one("a")]), ["lab/a"]);
    assert_eq!(
        winner(vec![created(one("a"), new), created(one("b"), old)]),
        ["lab/b"]
    );
    assert_eq!(winner(vec![one("a"), created(one("b"), new)]), ["lab/b"]);
    assert_eq!(
        winner(vec![created(one("b"), old), created(one("a"), old)]),
        ["lab/a"]
    );
    let elsewhere = one("z").set("/metadata/namespace", "kab");
    assert_eq!(winner(vec![one("a"), elsewhere]), ["kab/z"]);
}

#[test]
fn replacement_before_growth_before_new_clusters() {
    let old = "2026-01-01T00:00:00Z";
    let new = created(cluster("a-new", &[("Worker", 1)]), old);
    let growing = cluster("b-growing", &[("Worker", 2)]);
    let member = host("g", "r1").member_of("b-growing", "Worker");
    let failing = cluster("c-failing", &[("Worker", 1)]);
    let failed = host("f", "r2")
        .member_of("c-failing", "Worker")
        .annotated("sip.airshipit.org/failed");
    let objects = vec![new, growing, member, failing, failed];
    assert_eq!(winner(objects.clone()), ["lab/c-failing"]);
    assert_eq!(winner(objects[..3].to_vec()), ["lab/b-growing"]);
    assert_eq!(winner(objects[..1].to_vec()), ["lab/a-new"]);
}

#[test]
fn a_later_cluster_may_pass_one_that_does_not_fit() {
    let report = report(&[
        host("x", "r1"),
        cluster("a", &[("Worker", 2)]),
        cluster("b", &[("Worker", 1)]),
    ]);
    assert_eq!(
        (outcome(&report, "a"), outcome(&report, "b")),
        (Outcome::Refused, Outcome::Placed)
    );
}

#[test]
fn hosts_released_in_a_decision_are_not_free_in_it() {
    let report = report(&[
        host("x", "r1").member_of("a", "Worker"),
        cluster("a", &[("Worker", 0)]),
        cluster("b", &[("Worker", 1)]),
    ]);
    assert_eq!(
        (outcome(&report, "a"), outcome(&report, "b")),
        (Outcome::Placed, Outcome::Refused)
    );
}
