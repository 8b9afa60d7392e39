//! Inputs that are made to break a reader: they end as unreadable or invalid, quickly, and nothing of them reaches a
//! terminal as it is.

use placement::Policy;
use serde_json::{Value, json};
use sipctl::cli::Output;
use sipctl::command::print;
use sipctl::input::{Input, documents};
use sipctl::report::Outcome;

use crate::fixtures::{Edit as _, cluster, decided, host, namespace, planned, read};

fn long() -> String {
    "x".repeat(1 << 20)
}

#[test]
fn impossible_objects_are_refused_with_a_short_message() {
    let cases = [
        host("a", "r1").set("/metadata/name", "a\n\u{1b}[2J"),
        host("a", "r1").set("/metadata/name", long()),
        host("a", "r1").set("/metadata/name", Value::Null),
        host("a", "r1").set("/metadata/name", 7),
        host("a", "r1").without("/metadata"),
        host("a", "r1").set("/metadata", "text"),
        host("a", "r1").set("/metadata/namespace", "../etc"),
        host("a", "r1").set("/metadata/uid", "a\nb"),
        host("a", &long()),
        host("a", "r1\nr2"),
        host("a", "r1").label(&long(), "v"),
        host("a", "r1").label("key with space", "v"),
        host("a", "r1").set("/metadata/labels/rack", 6),
        host("a", "r1").set("/metadata/deletionTimestamp", "yesterday"),
        host("a", "r1").set("/status", "fine"),
        host("a", "r1").set("/spec/networkData", json!([1])),
        cluster("c", &[]).set("/metadata/name", "c\rd"),
        cluster("c", &[]).set("/metadata/creationTimestamp", long()),
    ];
    for object in cases {
        let message = format!("{:#}", anyhow::Error::from(read(&[object]).unwrap_err()));
        assert!(message.starts_with("objects, document 1, item 1: "), "{message}");
        assert!(
            !message.contains(char::is_control) && message.len() < 2_000,
            "{message}"
        );
    }
}

#[test]
fn hostile_specs_are_invalid_with_a_short_message() {
    let cases = [
        cluster("c", &[]).set(&format!("/spec/nodes/{}", long()), json!({})),
        cluster("c", &[]).set("/spec/nodes/a\nb", json!({})),
        cluster("c", &[("Worker", 1)]).set("/spec/nodes/Worker/topologyKey", long()),
        cluster("c", &[("Worker", 1)]).set("/spec/nodes/Worker/labelSelector/matchLabels/a", "b\u{1b}[2J"),
        cluster("c", &[("Worker", 1)]).set("/spec/nodes/Worker/count/active", i64::MAX),
        cluster("c", &[("Worker", 1)]).set("/spec/nodes/Worker/count/active", 1e300),
        cluster("c", &[]).set("/spec", long()),
        cluster("c", &[]).set(
            "/status/placement/members",
            json!([{"name": "a\nb", "role": "Worker"}]),
        ),
        cluster("c", &[]).claims("a", "Worker", "Sleeping"),
        cluster("c", &[])
            .claims("a", "Worker", "Bound")
            .claims("a", "Worker", "Bound"),
        cluster(&"c".repeat(64), &[]),
    ];
    for object in cases {
        let invalid = decided(&[object]);
        let message = invalid.refusal.unwrap().message;
        assert_eq!(invalid.outcome, Outcome::Invalid, "{message}");
        assert!(
            !message.contains(char::is_control) && message.len() < 10_000,
            "{message}"
        );
    }
}

#[test]
fn texts_of_hosts_reach_no_terminal_as_they_are() {
    let hostile = "\u{1b}[2J\nlab/other: placed";
    let objects = [
        host("a", "r1")
            .member_of("c", "Worker")
            .set("/spec/consumerRef", json!({"kind": hostile, "name": hostile}))
            .set("/status/provisioning/state", hostile)
            .set("/spec/bmc/address", hostile),
        host("b", "r2")
            .set("/status/operationalStatus", hostile)
            .set("/spec/consumerRef/name", hostile),
        cluster("c", &[("Worker", 3)]),
    ];
    let plan = planned(&objects);
    for output in [Output::Table, Output::Json, Output::Yaml] {
        let text = print(&plan, output).unwrap();
        assert!(
            !text.contains('\u{1b}') && !text.contains("\nlab/other"),
            "{text}"
        );
    }
}

#[test]
fn huge_wants_and_many_clusters_are_refused_quickly() {
    let clusters: Vec<Value> = (0..50)
        .map(|n| cluster(&format!("c{n}"), &[("Worker", 100_000)]))
        .collect();
    let hosts = (0..200).map(|n| host(&format!("h{n}"), &format!("r{n}")));
    let plan = planned(&clusters.into_iter().chain(hosts).collect::<Vec<_>>());
    assert!(
        plan.report()
            .clusters
            .iter()
            .all(|cluster| cluster.outcome == Outcome::Refused)
    );
}

#[test]
fn no_piece_of_a_sample_makes_a_reader_fail() {
    let text = include_str!("../data/site/hosts.yaml");
    let pieces = (0..text.len()).step_by(7).filter_map(|end| text.get(..end));
    let tails = (0..text.len()).step_by(41).filter_map(|start| text.get(start..));
    for piece in pieces.chain(tails) {
        let Ok(found) = documents("piece", piece) else {
            continue;
        };
        if let Ok(input) = Input::new(found, &namespace(), Policy::default()) {
            print(&sipctl::plan(&input), Output::Json).unwrap();
        }
    }
}
