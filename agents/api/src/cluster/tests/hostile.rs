use proptest::prelude::*;
use serde_json::json;

use crate::fixtures::{parse, sample_with};

const HOSTILE: [&str; 6] = [
    "a\nReady=True",
    "\u{1b}[2J",
    "${HOME}",
    "\u{202e}evil",
    "'; rm -rf / #",
    "\u{0}",
];

#[test]
fn no_fault_carries_a_control_character_or_grows_without_bound() {
    let long = "x".repeat(100_000);
    for text in HOSTILE.into_iter().chain([long.as_str()]) {
        let set = json!({
            "labelSelector": { "matchLabels": { text: text }, "matchExpressions": [{ "key": text, "operator": text }] },
            "topologyKey": text, "replaceAfterError": text, "count": {},
        });
        let escaped = text.replace('~', "~0").replace('/', "~1");
        for object in [
            sample_with(&format!("/nodes/{}", escaped.replace("~1", "_")), set),
            sample_with("/services/jumpHost/0/image", json!(format!("{text} "))),
            sample_with("/services/auth/0/caSecret", json!(text)),
        ] {
            let message = parse(object).unwrap_err().to_string();
            assert!(!message.contains(char::is_control), "{message:?}");
            assert!(message.len() < 8_000, "{} bytes", message.len());
        }
    }
}

#[test]
fn many_faults_make_a_message_of_bounded_size() {
    let attachments = json!(vec!["a\nb"; 32]);
    let invalid = parse(sample_with(
        "/services/jumpHost/0/networkAttachments",
        attachments,
    ))
    .unwrap_err();
    assert_eq!(invalid.faults().len(), 32);
    let message = invalid.to_string();
    assert!(message.ends_with("; and 12 more"), "{message}");
    assert!(message.len() < 8_000);
}

/// Mostly something good, so that both outcomes are met.
fn text(good: &'static str) -> impl Strategy<Value = String> {
    prop_oneof![20 => good, 1 => "[a-z0-9./-]{0,20}", 1 => any::<String>()]
}

proptest! {
    #[test]
    fn any_strings_and_numbers_are_refused_or_valid(
        role in text("[A-Z][a-z]{1,8}"), key in text("example.org/[a-z]{1,8}"), value in text("[a-z0-9]{0,8}"),
        image in text("[a-z]{1,8}:[0-9]"), id in text("[a-z]{1,8}"), ip in text("192\\.0\\.2\\.[1-9]"),
        active in 0_i64..9, standby in -1_i64..9,
        port in -1_000_i64..70_000, start in -1_000_i64..66_000, length in -50_i64..1_050,
    ) {
        let object = json!({
            "apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster",
            "metadata": { "name": "a", "namespace": "b", "uid": "c" },
            "spec": {
                "nodes": { role: {
                    "labelSelector": { "matchLabels": { key.clone(): value } },
                    "topologyKey": key, "count": { "active": active, "standby": standby },
                }},
                "services": {
                    "loadBalancerControlPlane": [{ "image": image.clone(), "nodeInterfaceId": id.clone(), "clusterIP": ip, "nodePort": port }],
                    "loadBalancerWorker": [{ "image": image, "nodeInterfaceId": id, "nodePortRange": { "start": start, "end": start + length } }],
                },
            },
        });
        match parse(object) {
            Err(invalid) => {
                prop_assert!(!invalid.faults().is_empty());
                prop_assert!(!invalid.to_string().contains(char::is_control));
            }
            Ok(cluster) => {
                prop_assert_eq!(i64::from(cluster.roles()[0].wanted()), active + standby);
                for service in cluster.services() {
                    prop_assert!(!service.image().as_str().is_empty());
                    prop_assert!(!service.image().as_str().contains(|c: char| c.is_whitespace() || c.is_control()));
                    prop_assert!(!service.network_id().as_str().contains(char::is_control));
                }
                let range = cluster.load_balancers_worker()[0].ports();
                let ports: Vec<_> = range.ports().map(|port| i64::from(port.get())).collect();
                prop_assert_eq!(&ports, &(start..=start + length).collect::<Vec<_>>());
                let node_port = cluster.load_balancers_control_plane()[0].node_port();
                prop_assert!(!ports.contains(&i64::from(node_port.unwrap().get())), "no port twice");
            }
        }
    }
}
