use serde_json::{Value, json};

use crate::fixtures::{faults, of_kind, parse, sample, sample_with, samples};
use crate::{Balance, Cluster, Image, LabelValue, NetworkId, SIPCluster};

#[test]
fn the_sample_is_read_in_full() {
    let cluster = parse(sample()).unwrap();
    insta::assert_debug_snapshot!(cluster);
    assert_eq!(
        (cluster.namespace(), cluster.name(), cluster.uid()),
        ("tenants", "shop", "5a1e")
    );
    assert_eq!(cluster.generation(), 7);
    assert!(!cluster.is_deleting());
    let wanted: Vec<_> = cluster
        .roles()
        .iter()
        .map(|role| (role.name().as_str(), role.wanted()))
        .collect();
    assert_eq!(wanted, [("ControlPlane", 3), ("Worker", 5)]);
    let networks: Vec<_> = cluster.network_ids().into_iter().map(NetworkId::as_str).collect();
    assert_eq!(networks, ["data", "oam"]);
    let names: Vec<_> = cluster
        .services()
        .map(|service| service.object_name().as_str())
        .collect();
    assert_eq!(
        names,
        [
            "loadbalancer-controlplane-shop",
            "loadbalancer-worker-shop",
            "jumphost-shop",
            "auth-shop"
        ]
    );
}

#[test]
fn replacement_after_an_error_has_a_default_time() {
    for (said, seconds) in [("", 600), ("30m", 1800), ("0s", 0)] {
        let cluster = parse(sample_with("/nodes/Worker/replaceAfterError", said.into())).unwrap();
        let worker = cluster
            .roles()
            .iter()
            .find(|role| role.name().as_str() == "Worker")
            .unwrap();
        let grace = worker.replace_after_error().map(|grace| grace.as_secs());
        assert_eq!(grace, Some(seconds), "{said:?}");
    }
}

#[test]
fn how_connections_are_led_is_read() {
    for (balance, proxy_protocol, expected) in [
        (Value::Null, Value::Null, (Balance::RoundRobin, false)),
        (json!("roundrobin"), json!(false), (Balance::RoundRobin, false)),
        (json!("leastconn"), json!(true), (Balance::LeastConn, true)),
    ] {
        let mut object = sample_with("/services/loadBalancerWorker/0/balance", balance.clone());
        object["spec"]["services"]["loadBalancerWorker"][0]["proxyProtocol"] = proxy_protocol;
        object["spec"]["services"]["loadBalancerControlPlane"][0]["balance"] = balance;
        let cluster = parse(object).unwrap();
        let worker = &cluster.load_balancers_worker()[0];
        assert_eq!((worker.balance(), worker.proxy_protocol()), expected);
        assert_eq!(cluster.load_balancers_control_plane()[0].balance(), expected.0);
    }
}

#[test]
fn a_spec_survives_a_round_trip() {
    let sample = sample();
    let typed: SIPCluster = serde_json::from_value(sample.clone()).unwrap();
    assert_eq!(serde_json::to_value(typed).unwrap(), sample);
}

#[test]
fn samples_are_accepted_and_survive_a_round_trip() {
    let files = samples(
        &["stock/sipcluster.yaml", "pair/metrics.yaml", "pair/blog.yaml"],
        &[
            "sip/sipcluster.yaml",
            "treasuremap/lma-sipcluster.yaml",
            "treasuremap/wordpress-sipcluster.yaml",
        ],
    );
    for (file, objects) in files {
        for object in of_kind(objects, "SIPCluster") {
            let typed: SIPCluster = serde_json::from_value(object.clone()).unwrap();
            assert_eq!(
                serde_json::to_value(&typed).unwrap(),
                object,
                "{}",
                file.display()
            );
            let mut served = object;
            served["metadata"]["uid"] = "u".into();
            // Where a manifest has no namespace, kubectl sets one.
            served["metadata"]["namespace"] = "default".into();
            let cluster = parse(served).unwrap();
            assert_eq!(cluster.roles().len(), 2, "{}", file.display());
            assert!(cluster.services().count() >= 3, "{}", file.display());
        }
    }
}

#[test]
fn a_sipcluster_that_sip_left_is_accepted() {
    for (_, objects) in samples(&["left-by-sip.yaml"], &["sip/leftovers.yaml"]) {
        for mut object in of_kind(objects, "SIPCluster") {
            object["metadata"]["uid"] = "u".into();
            assert_eq!(faults(object), [] as [&str; 0]);
        }
    }
}

#[test]
fn what_sip_accepted_is_accepted() {
    let cases: [(&str, Value); 14] = [
        // No members, no services: satisfied at once.
        ("/nodes", Value::Null),
        ("/services", Value::Null),
        ("/nodes/Worker/labelSelector", json!({})),
        (
            "/nodes/Worker/labelSelector",
            json!({ "matchLabels": { "k": "" } }),
        ),
        ("/nodes/Worker/topologyKey", Value::Null),
        ("/nodes/Worker/topologyKey", json!("")),
        ("/nodes/Worker/count", json!({ "active": 1 })),
        ("/nodes/Worker/count", json!({ "standby": 1 })),
        ("/nodes/Worker/count", json!({})),
        (
            "/nodes/etcd-1",
            json!({ "labelSelector": {}, "count": { "active": 1 } }),
        ),
        ("/services/loadBalancerControlPlane/0/nodePort", Value::Null),
        ("/services/loadBalancerControlPlane/0/clusterIP", json!("")),
        // The range says the ports; this one is only there for an older schema.
        ("/services/loadBalancerWorker/0/nodePort", json!(30_001)),
        ("/services/jumpHost/0/bmc", Value::Null),
    ];
    for (pointer, value) in cases {
        assert_eq!(
            faults(sample_with(pointer, value.clone())),
            [] as [&str; 0],
            "{pointer} = {value}"
        );
    }
}

#[test]
fn an_object_without_spec_is_an_empty_cluster() {
    // As the API server serves it, with the default of the schema.
    let cluster = parse(json!({
        "apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster", "spec": {},
        "metadata": { "name": "empty", "namespace": "tenants", "uid": "u" },
    }));
    assert!(cluster.unwrap().roles().is_empty());
}

#[test]
fn match_labels_and_expressions_become_sorted_requirements() {
    let cluster = parse(sample()).unwrap();
    let worker = &cluster.roles()[1];
    let shown: Vec<_> = worker
        .selector()
        .requirements()
        .map(|requirement| {
            let values: Vec<_> = requirement.values().map(crate::LabelValue::as_str).collect();
            format!(
                "{} {} {}",
                requirement.key(),
                requirement.operator().as_str(),
                values.join(",")
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            "example.org/flavor In worker",
            "example.org/rack In r1,r2,r3",
            "example.org/retired DoesNotExist "
        ]
    );
}

#[test]
fn the_second_entry_of_a_kind_gets_its_index() {
    let second = json!({ "image": "haproxy", "nodeInterfaceId": "oam", "nodePort": 30_100 });
    let cluster = parse(sample_with("/services/loadBalancerControlPlane/1", second)).unwrap();
    let names: Vec<_> = cluster
        .load_balancers_control_plane()
        .iter()
        .map(|balancer| balancer.service().object_name().as_str())
        .collect();
    assert_eq!(
        names,
        [
            "loadbalancer-controlplane-shop",
            "loadbalancer-controlplane-shop-1"
        ]
    );

    let second = json!({ "image": "jump-host", "nodeInterfaceId": "oam", "nodePort": 30_101 });
    let cluster = parse(sample_with("/services/jumpHost/1", second)).unwrap();
    let jump_hosts = cluster.jump_hosts().iter();
    let names: Vec<_> = jump_hosts
        .map(|jump_host| jump_host.service().object_name().as_str())
        .collect();
    assert_eq!(names, ["jumphost-shop", "jumphost-shop-1"]);
}

#[test]
fn keys_of_a_jump_host_lose_the_line_break_at_their_end() {
    let mut object = sample_with(
        "/services/jumpHost/0/sshAuthorizedKeys",
        json!([
            "ssh-ed25519 AAAA ana\n",
            "ssh-ed25519 AAAA\nssh-ed25519 BBBB \r\n"
        ]),
    );
    object["spec"]["services"]["jumpHost"][0]["sshUserCA"] = json!(["ssh-ed25519 CCCC\n"]);
    let cluster = parse(object).unwrap();
    let jump_host = &cluster.jump_hosts()[0];
    assert_eq!(
        jump_host.ssh_authorized_keys(),
        ["ssh-ed25519 AAAA ana", "ssh-ed25519 AAAA\nssh-ed25519 BBBB"]
    );
    assert_eq!(jump_host.ssh_user_ca(), ["ssh-ed25519 CCCC"]);
}

#[test]
fn a_name_of_37_characters_leaves_room_for_the_longest_service() {
    let mut object = sample();
    object["metadata"]["name"] = "n".repeat(37).into();
    assert!(parse(object.clone()).is_ok());
    object["metadata"]["name"] = "n".repeat(38).into();
    let faults = faults(object);
    assert_eq!(faults.len(), 1, "{faults:#?}");
    assert!(faults[0].starts_with("metadata.name is \"nnn"));
    assert!(
        faults[0].contains("must be at most 63 lowercase letters"),
        "{}",
        faults[0]
    );
}

#[test]
fn deletion_is_seen() {
    let mut object = sample();
    object["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
    assert!(parse(object).as_ref().is_ok_and(Cluster::is_deleting));
}

#[test]
fn the_kubeconfig_of_an_identity_provider_comes_first() {
    let named = |object: Value| parse(object).unwrap().kubeconfig_secret().map(str::to_owned);
    assert_eq!(named(sample()).as_deref(), Some("shop-kubeconfig"));
    let both = sample_with("/services/auth/0/kubeconfigSecret", json!("sign-in"));
    assert_eq!(named(both).as_deref(), Some("sign-in"));
    let none = sample_with("/services/jumpHost", json!([]));
    assert_eq!(named(none), None);
}

#[test]
fn a_cluster_serves_what_its_annotation_names_or_its_namesake() {
    let mut object = sample();
    assert_eq!(parse(object.clone()).unwrap().cluster_api_name(), "shop");
    object["metadata"]["annotations"] = json!({"sip.airshipit.org/cluster-api-cluster": "capi/shop-prod"});
    assert_eq!(parse(object).unwrap().cluster_api_name(), "shop-prod");
}

#[test]
fn the_version_of_an_image_is_its_tag() {
    let long = format!("haproxy:{}", "1".repeat(64));
    for (image, version) in [
        ("haproxy:3.2.1", Some("3.2.1")),
        ("registry.example:5000/library/haproxy:3.2", Some("3.2")),
        ("haproxy:3.2@sha256:abc", Some("3.2")),
        ("registry.example:5000/haproxy", None),
        ("haproxy@sha256:abc", None),
        ("haproxy:", None),
        ("haproxy:_3", None),
        ("haproxy:3:2", None),
        (&long, None),
    ] {
        let image: Image = image.parse().unwrap();
        let found = image.version();
        assert_eq!(found.as_ref().map(LabelValue::as_str), version, "{image}");
    }
}
