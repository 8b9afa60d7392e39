//! What is read, skipped and refused.

use serde_json::{Value, json};

use crate::fixtures::{Edit as _, cluster, decided, host, read, secret};
use sipctl::report::Outcome;

#[test]
fn a_duplicate_object_is_refused_with_both_places() {
    let cases = [
        (vec![host("a", "r1"), host("a", "r2")], "BareMetalHost lab/a"),
        (vec![cluster("c", &[]), cluster("c", &[])], "SIPCluster lab/c"),
        (
            vec![
                host("a", "r1"),
                secret("a", "192.0.2.1"),
                secret("a", "192.0.2.1"),
            ],
            "Secret lab/a-net",
        ),
        (
            vec![host("a", "r1"), host("a", "r1").without("/metadata/namespace")],
            "BareMetalHost lab/a",
        ),
    ];
    for (objects, name) in cases {
        let last = objects.len();
        let error = read(&objects).unwrap_err().to_string();
        let expected = format!(
            "{name} is defined twice: in objects, document 1, item {} and in objects, document 1, item {last}",
            last - 1
        );
        assert_eq!(error, expected);
    }
}

#[test]
fn namespace_and_kind_distinguish_objects() {
    let objects = [
        host("a", "r1"),
        host("a", "r2").set("/metadata/namespace", "other"),
        cluster("a", &[("Worker", 2)]),
    ];
    assert_eq!(decided(&objects).outcome, Outcome::Placed);
}

#[test]
fn what_is_not_read_is_noted_once_per_kind() {
    let unnamed = secret("nobody", "192.0.2.1");
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let other_version = host("a", "r1").set("/apiVersion", "metal3.io/v9");
    let input = read(&[
        unnamed,
        map("d"),
        map("b"),
        map("c"),
        map("a"),
        other_version,
        json!({"apiVersion": "v1"}),
        json!({"kind": "Secret"}),
        json!({"kind": "Bad\u{1b}", "apiVersion": 7}),
    ])
    .unwrap();
    assert_eq!(
        input.notes(),
        [
            "skipped 1 Bad\\u{1b} without apiVersion: objects, document 1, item 9",
            "skipped 1 BareMetalHost (metal3.io/v9): a in objects, document 1, item 6",
            "skipped 4 ConfigMap (v1): a in objects, document 1, item 5; b in objects, document 1, item 3; \
             c in objects, document 1, item 4 and 1 more",
            "skipped 1 Secret (v1) that no networkData names: nobody-net in objects, document 1, item 1",
            "skipped 1 Secret without apiVersion: objects, document 1, item 8",
            "skipped 1 documents without a kind: objects, document 1, item 7",
        ]
    );
    assert!(input.has_no_cluster());
}

#[test]
fn objects_without_a_namespace_are_in_the_default_one() {
    let strip = |object: Value| object.without("/metadata/namespace");
    let objects = [
        strip(host("a", "r1")),
        strip(secret("a", "192.0.2.1")),
        strip(cluster("c", &[("Worker", 1)])),
        host("b", "r2")
            .set("/metadata/namespace", "")
            .member_of("c", "Old"),
    ];
    let decided = decided(&objects);
    assert_eq!(
        (&*decided.cluster, &*decided.roles["Worker"].hosts[0].host),
        ("lab/c", "lab/a")
    );
    assert_eq!(decided.release[0].host, "lab/b");
    assert!(decided.reports.is_empty(), "{:?}", decided.reports);
}

#[test]
fn network_data_of_another_namespace_is_found() {
    let elsewhere = host("a", "r1").set("/spec/networkData/namespace", "secrets");
    let data = secret("a", "192.0.2.1").set("/metadata/namespace", "secrets");
    assert!(
        decided(&[elsewhere, data, cluster("c", &[("Worker", 1)])])
            .reports
            .is_empty()
    );
}
