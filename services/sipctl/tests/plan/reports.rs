//! What people should know: every kind of report.

use serde_json::{Value, json};

use crate::fixtures::{Edit as _, cluster, decided, host, kinds, read, report, secret};
use sipctl::report::Outcome;

fn worker(name: &str, rack: &str) -> Value {
    host(name, rack).member_of("c", "Worker")
}

#[test]
fn a_member_that_could_not_be_taken_today_stays_and_is_reported() {
    let cordons = "baremetalhost.metal3.io/detached";
    let cases = [
        (
            "in-error a",
            worker("a", "r1").set("/status/operationalStatus", "error"),
        ),
        (
            "paused a",
            worker("a", "r1").annotated("baremetalhost.metal3.io/paused"),
        ),
        ("detached a", worker("a", "r1").annotated(cordons)),
        (
            "detached a",
            worker("a", "r1").set("/status/operationalStatus", "detached"),
        ),
        (
            "deleting a",
            worker("a", "r1").set("/metadata/deletionTimestamp", "2026-01-02T03:04:05Z"),
        ),
        (
            "servicing a",
            worker("a", "r1").set("/status/operationalStatus", "servicing"),
        ),
        (
            "problem a, unknown-status a",
            worker("a", "r1").set("/status/operationalStatus", "sulking"),
        ),
        (
            "state a",
            worker("a", "r1").set("/status/provisioning/state", "deprovisioning"),
        ),
        (
            "cordoned a",
            worker("a", "r1").annotated("sip.airshipit.org/cordoned"),
        ),
        (
            "no-topology-label a",
            worker("a", "r1").without("/metadata/labels/example.org~1rack"),
        ),
        ("empty-topology-label a", worker("a", "")),
        (
            "problem a",
            worker("a", "r1").set("/spec/bmc/address", "redfish://user:secret@bmc/redfish"),
        ),
    ];
    for (expected, member) in cases {
        let cluster = decided(&[member, cluster("c", &[("Worker", 1)])]);
        assert_eq!(cluster.outcome, Outcome::Placed, "{expected}");
        assert_eq!(kinds(&cluster).join(", "), expected);
        assert!(
            cluster
                .reports
                .iter()
                .all(|report| !report.message.contains("secret")),
            "{expected}"
        );
    }
}

#[test]
fn a_member_outside_its_selector_stays_and_is_reported() {
    let edited =
        cluster("c", &[("Worker", 1)]).set("/spec/nodes/Worker/labelSelector/matchLabels", json!({"x": "y"}));
    assert_eq!(kinds(&decided(&[worker("a", "r1"), edited])), ["selector a"]);
}

#[test]
fn members_sharing_a_rack_are_reported() {
    let shared = decided(&[
        worker("a", "r1"),
        worker("b", "r1"),
        cluster("c", &[("Worker", 2)]),
    ]);
    assert_eq!(kinds(&shared), ["topology-shared a", "topology-shared b"]);

    let elsewhere = host("b", "r2").set("/metadata/namespace", "other");
    let spans = decided(&[worker("a", "r1"), elsewhere, cluster("c", &[("Worker", 2)])]);
    assert_eq!(kinds(&spans), ["spans-namespaces"]);
}

#[test]
fn a_member_whose_rack_changed_is_reported() {
    let member =
        json!([{"namespace": "lab", "name": "a", "role": "Worker", "domain": "r9", "state": "Bound"}]);
    let moved = cluster("c", &[("Worker", 1)]).set("/status/placement/members", member);
    assert_eq!(kinds(&decided(&[worker("a", "r1"), moved])), ["domain-changed a"]);
}

#[test]
fn failed_members_say_what_they_wait_for() {
    const FAILED: &str = "sip.airshipit.org/failed";
    let alone = decided(&[
        worker("a", "r1").annotated(FAILED),
        cluster("c", &[("Worker", 1)]),
    ]);
    assert_eq!(kinds(&alone), ["no-replacement a"]);

    let two = decided(&[
        worker("a", "r1").annotated(FAILED),
        worker("b", "r2").annotated(FAILED),
        host("d", "r3"),
        cluster("c", &[("Worker", 2)]),
    ]);
    assert_eq!(kinds(&two), ["replacement-waits b"]);

    let gone = decided(&[cluster("c", &[("Worker", 1)]).claims("a", "Worker", "Bound")]);
    assert_eq!(kinds(&gone), ["host-missing a", "no-replacement a"]);
}

#[test]
fn statuses_and_labels_that_do_not_agree_are_reported() {
    let claimed = cluster("c", &[("Worker", 1)]).claims("a", "Worker", "Claimed");
    assert_eq!(kinds(&decided(&[host("a", "r1"), claimed])), ["not-labelled a"]);

    let releasing = cluster("c", &[("Worker", 0)]).claims("a", "Worker", "Releasing");
    assert_eq!(
        kinds(&decided(&[worker("a", "r1"), releasing.clone()])),
        ["releasing a"]
    );
    assert_eq!(kinds(&decided(&[host("a", "r1"), releasing])), ["releasing a"]);

    let bound = cluster("c", &[("Worker", 0)]).claims("a", "Worker", "Bound");
    assert_eq!(kinds(&decided(&[host("a", "r1"), bound])), ["not-a-member a"]);
}

#[test]
fn hosts_with_partial_labels_are_reported_and_not_free() {
    let half = |name: &str| host(name, "r1").label("sip.airshipit.org/cluster-name", "c");
    let bad = host("a", "r1").member_of("c", "");
    for partial in [half("a"), bad] {
        let cluster = decided(&[partial, cluster("c", &[("Worker", 1)])]);
        assert_eq!(
            (cluster.outcome, kinds(&cluster)),
            (Outcome::Refused, vec!["labels-partial a".to_owned()])
        );
        assert_eq!(cluster.refusal.unwrap().roles["Worker"].free, 0);
    }
    let orphan = host("a", "r1").member_of("elsewhere", "Worker");
    let refused = decided(&[orphan.clone(), cluster("c", &[("Worker", 1)])]);
    assert_eq!(
        (refused.outcome, kinds(&refused)),
        (Outcome::Refused, vec!["orphaned a".to_owned()])
    );
    assert_eq!(refused.reports[1].role.as_deref(), Some("Worker"));

    // No cluster could take it, and still somebody is told.
    let other =
        cluster("c", &[("Worker", 0)]).set("/spec/nodes/Worker/labelSelector/matchLabels", json!({"x": "y"}));
    assert_eq!(kinds(&decided(&[orphan.clone(), other.clone()])), ["orphaned a"]);
    // Somebody else could: that cluster is told.
    let told = report(&[orphan, other, cluster("d", &[("Worker", 0)])]);
    let kinds: Vec<_> = told.clusters.iter().map(kinds).collect();
    assert_eq!(kinds, [vec![], vec!["orphaned a".to_owned()]]);
}

#[test]
fn a_host_without_a_known_state_is_eligible_and_reported() {
    for unknown in [
        host("a", "r1").without("/status"),
        host("a", "r1").without("/status/provisioning"),
    ] {
        let cluster = decided(&[unknown, cluster("c", &[("Worker", 1)])]);
        assert_eq!(
            (cluster.outcome, kinds(&cluster)),
            (Outcome::Placed, vec!["state-unknown a".to_owned()])
        );
    }
    for known in [
        host("a", "r1").set("/status/provisioning", json!({})),
        host("a", "r1").set("/status/provisioning/state", ""),
    ] {
        assert_eq!(
            decided(&[known, cluster("c", &[("Worker", 1)])]).outcome,
            Outcome::Refused
        );
    }
}

#[test]
fn addresses_are_checked_once_one_secret_exists() {
    let balanced = |network: &str| {
        let entry = json!([{"image": "haproxy", "nodeInterfaceId": network, "nodePort": 30000}]);
        cluster("c", &[("Worker", 1)]).set("/spec/services/loadBalancerControlPlane", entry)
    };
    let unchecked = decided(&[host("a", "r1"), balanced("oam")]);
    assert_eq!(unchecked.outcome, Outcome::Placed);
    assert_eq!(
        (&*unchecked.reports[0].kind, &unchecked.reports[0].host),
        ("addresses-unchecked", &None)
    );

    let other = secret("nobody", "192.0.2.9");
    assert_eq!(
        decided(&[host("a", "r1"), other, balanced("oam")]).reports[0].kind,
        "addresses-unchecked"
    );

    let checked = decided(&[host("a", "r1"), secret("a", "192.0.2.1"), balanced("oam")]);
    assert_eq!(
        (checked.outcome, checked.reports.len()),
        (Outcome::Placed, 0),
        "{checked:#?}"
    );

    // a is the first by name, but has no address there; b has one.
    let two = [
        host("a", "r1"),
        host("b", "r2"),
        secret("b", "192.0.2.2"),
        balanced("oam"),
    ];
    assert_eq!(decided(&two).roles["Worker"].hosts[0].host, "lab/b");
    let refused = decided(&[host("a", "r1"), secret("a", "192.0.2.1"), balanced("storage")]);
    assert_eq!(refused.outcome, Outcome::Refused);

    let member = decided(&[
        worker("a", "r1"),
        host("b", "r2"),
        secret("b", "192.0.2.2"),
        balanced("oam"),
    ]);
    assert_eq!(kinds(&member), ["no-address a", "problem a"]);
}

#[test]
fn string_data_wins_over_data_in_network_data() {
    let balanced = cluster("c", &[("Worker", 1)]).set(
        "/spec/services/jumpHost",
        json!([{"image": "jump", "nodeInterfaceId": "oam", "sshAuthorizedKeys": [], "nodeSSHPrivateKeys": "keys"}]),
    );
    // base64 of `networks: [{id: oam, ip_address: 192.0.2.1}]`
    let data = "bmV0d29ya3M6IFt7aWQ6IG9hbSwgaXBfYWRkcmVzczogMTkyLjAuMi4xfV0=";
    let encoded = secret("a", "")
        .without("/stringData")
        .set("/data/networkData", data);
    let outcome = |secret: Value| decided(&[host("a", "r1"), secret, balanced.clone()]).outcome;
    assert_eq!(outcome(encoded.clone()), Outcome::Placed);
    assert_eq!(
        outcome(encoded.clone().set("/stringData/networkData", "networks: []")),
        Outcome::Refused
    );
    assert_eq!(outcome(encoded.clone().without("/data")), Outcome::Refused);

    let error = read(&[host("a", "r1"), encoded.set("/data/networkData", "hunter2!")])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("Secret lab/a-net data") && !error.contains("hunter2"),
        "{error}"
    );
}
