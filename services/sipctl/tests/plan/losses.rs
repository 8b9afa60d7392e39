//! `sipctl lose`: which clusters lose their majority with a domain.

use serde_json::Value;

use crate::command::{directory, sipctl, text};
use crate::fixtures::{Edit as _, cluster, host};

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
        {"cluster": "lab/one", "role": "ControlPlane", "members": 1, "lost": 1, "losesMajority": true},
        {"cluster": "lab/two", "role": "Worker", "members": 3, "lost": 1, "losesMajority": false},
    ]});
    assert_eq!(json, expected);

    let r3 = lose("example.org/rack=r3", "table");
    assert_eq!(r3.status.code(), Some(0), "{r3:?}");
    assert!(text(&r3.stdout).contains("lab/two"), "{r3:?}");
    let r9 = lose("example.org/rack=r9", "table");
    assert_eq!(
        text(&r9.stdout),
        "No cluster has a member in example.org/rack=r9.\n"
    );
    let bad = lose("rack", "table");
    assert_eq!(bad.status.code(), Some(1));
    assert!(text(&bad.stderr).contains("KEY=VALUE"), "{bad:?}");
}
