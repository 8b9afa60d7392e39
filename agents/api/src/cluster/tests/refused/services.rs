//! Entries of `spec.services`.

use serde_json::{Value, json};

use super::{VALUE, refused};
use crate::fixtures::{faults, parse, sample, sample_with};

#[test]
fn names_of_entries() {
    for section in [
        "loadBalancerControlPlane",
        "loadBalancerWorker",
        "jumpHost",
        "auth",
    ] {
        let path = format!("spec.services.{section}[0].name");
        let digits = "must not be empty or only digits: such names are for entries that have none";
        for name in ["", "1"] {
            let expected = format!("{path} is \"{name}\": {digits}");
            refused(&format!("/services/{section}/0/name"), json!(name), &expected);
        }
        let mut object = sample_with(&format!("/services/{section}/0/name"), json!("A b"));
        assert!(faults(object.clone()).iter().any(|fault| fault.contains(&path)));
        let mut entry = object["spec"]["services"][section][0].clone();
        entry["name"] = json!("web");
        object["spec"]["services"][section] = json!([entry, entry]);
        let twice = format!(
            "spec.services.{section}[1].name is \"web\": must be unique, and is the name of spec.services.{section}[0]"
        );
        assert!(faults(object).contains(&twice), "{section}");
    }
}

#[test]
fn fields_of_every_service() {
    for (index, section) in [
        "loadBalancerControlPlane",
        "loadBalancerWorker",
        "jumpHost",
        "auth",
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("spec.services.{section}[0]");
        for (field, value, rest) in [
            ("image", Value::Null, "absent: must be set".to_owned()),
            ("image", json!(""), "absent: must be set".to_owned()),
            (
                "image",
                json!("haproxy latest"),
                "\"haproxy latest\": must not contain white space or control characters".to_owned(),
            ),
            (
                "nodeInterfaceId",
                json!(""),
                "absent: must be set: the id of a network in the hosts' networkData".to_owned(),
            ),
            (
                "nodeInterfaceId",
                json!("a\u{7}"),
                "\"a\\u{7}\": must not contain control characters".to_owned(),
            ),
            (
                "clusterIP",
                json!("vip.example.org"),
                "\"vip.example.org\": must be an IPv4 or IPv6 address".to_owned(),
            ),
            ("replicas", json!(-1), "-1: must be 0 to 32".to_owned()),
            ("replicas", json!(33), "33: must be 0 to 32".to_owned()),
        ] {
            let pointer = format!("/services/{section}/0/{field}");
            refused(&pointer, value, &format!("{path}.{field} is {rest}"));
        }
        refused(
            &format!("/services/{section}/0/nodeLabels"),
            json!({ "os": "a b" }),
            &format!("{path}.nodeLabels[os] is \"a b\": {VALUE}"),
        );
        if index != 1 {
            for port in [-1, 0, 65_536] {
                let pointer = format!("/services/{section}/0/nodePort");
                let expected = format!("{path}.nodePort is {port}: must be a port, 1 to 65535");
                refused(&pointer, json!(port), &expected);
            }
        }
    }
}

#[test]
fn ways_to_balance() {
    for section in ["loadBalancerControlPlane", "loadBalancerWorker"] {
        for (value, said) in [
            ("least\nconn", "least\\nconn"),
            ("", ""),
            ("LeastConn", "LeastConn"),
        ] {
            let expected =
                format!("spec.services.{section}[0].balance is \"{said}\": must be roundrobin or leastconn");
            refused(&format!("/services/{section}/0/balance"), json!(value), &expected);
        }
    }
}

#[test]
fn port_ranges() {
    let at = "spec.services.loadBalancerWorker[0].nodePortRange";
    for (range, expected) in [
        (
            Value::Null,
            format!("{at} is absent: must be set: the ports that the load balancer serves"),
        ),
        (json!({ "start": 1 }), format!("{at}.end is absent: must be set")),
        (
            json!({ "start": 0, "end": 1 }),
            format!("{at}.start is 0: must be a port, 1 to 65535"),
        ),
        (
            json!({ "start": 2, "end": 70_000 }),
            format!("{at}.end is 70000: must be a port, 1 to 65535"),
        ),
        (
            json!({ "start": 30_003, "end": 30_002 }),
            format!("{at} is 30003-30002: start must not be greater than end"),
        ),
        (
            json!({ "start": 1, "end": 1_001 }),
            format!("{at} is 1-1001: must be at most 1000 ports"),
        ),
    ] {
        refused("/services/loadBalancerWorker/0/nodePortRange", range, &expected);
    }
    assert!(
        parse(sample_with(
            "/services/loadBalancerWorker/0/nodePortRange",
            json!({ "start": 1, "end": 1_000 })
        ))
        .is_ok()
    );
}

#[test]
fn duplicate_ports() {
    let taken =
        |owner: &str| format!("must be unique on a node, and is already set in spec.services.{owner}");
    refused(
        "/services/auth/0/nodePort",
        json!(30_000),
        &format!(
            "spec.services.auth[0].nodePort is 30000: {}",
            taken("jumpHost[0].nodePort")
        ),
    );
    refused(
        "/services/jumpHost/0/nodePort",
        json!(30_005),
        &format!(
            "spec.services.jumpHost[0].nodePort is 30005: {}",
            taken("loadBalancerWorker[0].nodePortRange")
        ),
    );
    let second = json!({ "image": "haproxy", "nodeInterfaceId": "oam", "nodePortRange": { "start": 30_009, "end": 30_018 } });
    refused(
        "/services/loadBalancerWorker/1",
        second,
        &format!(
            "spec.services.loadBalancerWorker[1].nodePortRange is 30009-30011: {}",
            taken("loadBalancerWorker[0].nodePortRange")
        ),
    );
}

#[test]
fn ports_outside_the_node_range_are_not_reserved() {
    let without =
        json!({"service": {"spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false}}});
    let second = json!({
        "image": "haproxy", "nodeInterfaceId": "oam", "nodePortRange": {"start": 30_000, "end": 30_018},
        "override": without,
    });
    assert!(parse(sample_with("/services/loadBalancerWorker/1", second)).is_ok());
}

#[test]
fn changes_that_would_break_a_service_or_are_not_known() {
    let at = "spec.services.loadBalancerWorker[0].override";
    let load_balancer = "may only be set with type LoadBalancer";
    for (changes, expected) in [
        (json!([]), format!("{at} is \"[]\": must be an object")),
        (
            json!({"service": {"spec": {"selector": {"app": "mine"}}}}),
            format!(
                "{at}.service.spec.selector is \"{{\\\"app\\\":\\\"mine\\\"}}\": is an unknown field; supported: type, loadBalancerClass, allocateLoadBalancerNodePorts, externalTrafficPolicy"
            ),
        ),
        (
            json!({"service": {"metadata": {"ownerReferences": []}}}),
            format!(
                "{at}.service.metadata.ownerReferences is \"[]\": is an unknown field; supported: labels, annotations"
            ),
        ),
        (
            json!({"service": {"status": 1}}),
            format!("{at}.service.status is \"1\": is an unknown field; supported: metadata, spec"),
        ),
        (
            json!({"deployment\n": {}}),
            format!("{at}.deployment\\n is \"{{}}\": is an unknown field; supported: service"),
        ),
        (
            json!({"service": {"spec": {"type": "ExternalName"}}}),
            format!("{at}.service.spec.type is \"\\\"ExternalName\\\"\": must be NodePort or LoadBalancer"),
        ),
        (
            json!({"service": {"spec": {"externalTrafficPolicy": "local"}}}),
            format!("{at}.service.spec.externalTrafficPolicy is \"\\\"local\\\"\": must be Cluster or Local"),
        ),
        (
            json!({"service": {"spec": {"loadBalancerClass": "a/b"}}}),
            format!("{at}.service.spec.loadBalancerClass is \"\\\"a/b\\\"\": {load_balancer}"),
        ),
        (
            json!({"service": {"spec": {"type": "NodePort", "allocateLoadBalancerNodePorts": false}}}),
            format!("{at}.service.spec.allocateLoadBalancerNodePorts is \"false\": {load_balancer}"),
        ),
        (
            json!({"service": {"spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": "no"}}}),
            format!(
                "{at}.service.spec.allocateLoadBalancerNodePorts is \"\\\"no\\\"\": must be true or false"
            ),
        ),
        (
            json!({"service": {"metadata": {"labels": {"app.kubernetes.io/part-of": "mine"}}}}),
            format!(
                "{at}.service.metadata.labels[app.kubernetes.io/part-of] is \"\\\"mine\\\"\": is set by the agent"
            ),
        ),
        (
            json!({"service": {"metadata": {"annotations": {"a": 1}}}}),
            format!("{at}.service.metadata.annotations[a] is \"1\": must be a text"),
        ),
    ] {
        refused("/services/loadBalancerWorker/0/override", changes, &expected);
    }
}

#[test]
fn networks_and_resources() {
    let at = "spec.services.loadBalancerWorker[0]";
    let rule = "must be the name of a NetworkAttachmentDefinition in the same namespace: at most 253 lowercase letters, digits, '-' and '.'";
    let entry = "/services/loadBalancerWorker/0";
    for (field, value, expected) in [
        (
            "networkAttachments",
            json!(["other/net"]),
            format!("{at}.networkAttachments[0] is \"other/net\": {rule}"),
        ),
        (
            "networkAttachments",
            json!(["a", "a\"},{"]),
            format!("{at}.networkAttachments[1] is \"a\\\"}},{{\": {rule}"),
        ),
        (
            "networkAttachments",
            json!(["a", "b", "a"]),
            format!("{at}.networkAttachments[2] is \"a\": is named twice"),
        ),
        (
            "resources",
            json!({"limits": {"memory": "lots"}}),
            format!(
                "{at}.resources.limits[memory] is \"lots\": must be an amount that is not negative, such as 500m, 2 or 256Mi"
            ),
        ),
        (
            "resources",
            json!({"requests": {"cpu": -1}}),
            format!(
                "{at}.resources.requests[cpu] is \"-1\": must be an amount that is not negative, such as 500m, 2 or 256Mi"
            ),
        ),
    ] {
        refused(&format!("{entry}/{field}"), value, &expected);
    }
}

#[test]
fn secrets_of_a_jump_host() {
    refused(
        "/services/jumpHost/0/kubeconfigSecret",
        json!("Admin"),
        "spec.services.jumpHost[0].kubeconfigSecret is \"Admin\": must be the name of a Secret: at most 253 lowercase letters, digits, '-' and '.'",
    );
    refused(
        "/services/jumpHost/0/nodeSSHPrivateKeys",
        json!("../other"),
        "spec.services.jumpHost[0].nodeSSHPrivateKeys is \"../other\": must be the name of a Secret: at most 253 lowercase letters, digits, '-' and '.'",
    );
}

#[test]
fn names_that_no_service_can_have() {
    let mut object = sample();
    object["metadata"]["name"] = "a.b".into();
    let faults = faults(object.clone());
    assert_eq!(faults.len(), 4, "one per service: {faults:#?}");
    object["spec"]["services"] = json!({});
    assert!(parse(object.clone()).is_ok(), "only services need DNS labels");
    object["metadata"]["name"] = "n".repeat(64).into();
    let invalid = parse(object).unwrap_err();
    assert!(
        invalid.faults()[0]
            .rule()
            .starts_with("must be at most 63 characters, since hosts carry it"),
        "{invalid}"
    );
}

#[test]
fn too_much_of_anything_is_one_fault_and_the_rest_is_not_parsed() {
    let sections = [
        "loadBalancerControlPlane",
        "loadBalancerWorker",
        "jumpHost",
        "auth",
    ];
    for section in sections {
        // None of them is valid.
        let entries = json!(vec![json!({"image": "\n"}); 1_000]);
        refused(
            &format!("/services/{section}"),
            entries,
            &format!("spec.services.{section} is 1000 entries: must be at most 16"),
        );
    }
    let entry = |start: i64| json!({"image": "a", "nodePortRange": {"start": start, "end": start + 999}});
    refused(
        "/services/loadBalancerWorker",
        json!([entry(10_000), entry(20_000), entry(30_000)]),
        "spec.services.loadBalancerWorker is 3000: must be at most 2000 ports in all entries together",
    );
    let role = sample_with("/nodes/other", Value::Null)["spec"]["nodes"]["Worker"].clone();
    let roles: serde_json::Map<String, Value> = (0..33).map(|n| (format!("r{n}"), role.clone())).collect();
    refused(
        "/nodes",
        json!(roles),
        "spec.nodes is 33 roles: must be at most 32",
    );
    let labels: serde_json::Map<String, Value> = (0..65).map(|n| (format!("l{n}"), json!("a"))).collect();
    refused(
        "/nodes/Worker/labelSelector",
        json!({"matchLabels": labels}),
        "spec.nodes[Worker].labelSelector is 65 labels and expressions: must be at most 64",
    );
    refused(
        "/nodes/Worker/labelSelector",
        json!({"matchExpressions": [{"key": "a", "operator": "In", "values": vec!["b"; 257]}]}),
        "spec.nodes[Worker].labelSelector.matchExpressions[0].values is 257 values: must be at most 256",
    );
}

#[test]
fn an_entry_that_holds_too_much_is_refused() {
    let many = |count: usize| -> serde_json::Map<String, Value> {
        (0..count).map(|n| (format!("k{n}"), json!("1"))).collect()
    };
    let names = |count: usize| -> Vec<String> { (0..count).map(|n| format!("n{n}")).collect() };
    let at = "spec.services.jumpHost[0]";
    for (field, value, expected) in [
        (
            "networkAttachments",
            json!(names(33)),
            "networkAttachments is 33 networks: must be at most 32",
        ),
        (
            "sshAuthorizedKeys",
            json!(names(1_001)),
            "sshAuthorizedKeys is 1001 keys: must be at most 1000",
        ),
        (
            "sshUserCA",
            json!(names(65)),
            "sshUserCA is 65 keys: must be at most 64",
        ),
        (
            "nodeLabels",
            json!(many(65)),
            "nodeLabels is 65 labels: must be at most 64",
        ),
        (
            "resources",
            json!({"limits": many(33)}),
            "resources.limits is 33 resources: must be at most 32",
        ),
        (
            "resources",
            json!({"requests": many(33)}),
            "resources.requests is 33 resources: must be at most 32",
        ),
        (
            "override",
            json!({"service": {"metadata": {"annotations": many(65)}}}),
            "override.service.metadata.annotations is 65 items: must be at most 64",
        ),
        (
            "override",
            json!({"x": names(65)}),
            "override.x is 65 items: must be at most 64",
        ),
    ] {
        refused(
            &format!("/services/jumpHost/0/{field}"),
            value,
            &format!("{at}.{expected}"),
        );
    }
    let image = json!("x".repeat(1_025));
    let faults = parse(sample_with("/services/auth/0/image", image)).unwrap_err();
    assert_eq!(faults.faults().len(), 1);
    assert_eq!(faults.faults()[0].rule(), "must be at most 1024 bytes");
}
