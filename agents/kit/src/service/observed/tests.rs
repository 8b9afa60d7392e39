use api::{annotations::SERVED, labels};
use serde_json::{Value, json};

use super::{
    super::{existing_ports::trim_service, identity::BALANCERS, watches::trim_deployment},
    *,
};

#[test]
fn a_moved_entry_keeps_its_ports_while_the_watch_lags() {
    let cluster: SIPCluster = serde_json::from_value(json!({
        "metadata": {"namespace": "tenant", "name": "shop", "uid": "u"}, "spec": {},
    }))
    .unwrap();
    let service = |version: &str, port: u16| {
        let mut service = metadata("tenant", "loadbalancer-worker-shop", Some("u"));
        service["metadata"]["resourceVersion"] = json!(version);
        service["spec"] = json!({"ports": [{"port": port, "nodePort": port}]});
        Arc::new(serde_json::from_value::<Service>(service).unwrap())
    };
    let mut observed = Observed::among(&cluster, BALANCERS, vec![service("5", 31_325)], &[]);
    observed.take_newer(|_, shown| {
        assert_eq!(shown, Some("5"));
        Some(service("6", 31_326))
    });
    let made = observed.made_ports();
    assert_eq!(made["loadbalancer-worker-shop"], [31_326].into());
    observed.take_newer(|_, _| None);
    assert_eq!(observed.made_ports(), made, "the watch shows the newest");
}

fn metadata(namespace: &str, name: &str, owner: Option<&str>) -> Value {
    let owner = owner.map(|uid| {
        json!([{"apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster", "name": "shop", "uid": uid}])
    });
    json!({"metadata": {"namespace": namespace, "name": name, "ownerReferences": owner}})
}

fn service(namespace: &str, name: &str, owner: Option<&str>) -> Arc<Service> {
    Arc::new(serde_json::from_value(metadata(namespace, name, owner)).unwrap())
}

fn deployment(name: &str, owner: Option<&str>) -> Arc<Deployment> {
    let mut object = metadata("tenant", name, owner);
    object["spec"] = json!({"selector": {}, "template": {}});
    Arc::new(serde_json::from_value(object).unwrap())
}

/// Without an owner.
fn labelled(name: &str, part_of: &str, cluster: &str) -> Arc<Service> {
    let mut object = metadata("tenant", name, None);
    object["metadata"]["labels"] =
        json!({labels::PART_OF: part_of, labels::CLUSTER_NAME: cluster, labels::INSTANCE: name});
    Arc::new(serde_json::from_value(object).unwrap())
}

#[test]
fn instances_without_an_owner_are_found_by_their_labels() {
    let cluster = json!({"metadata": {"namespace": "tenant", "name": "shop", "uid": "now"}, "spec": {}});
    let cluster: SIPCluster = serde_json::from_value(cluster).unwrap();
    let mut copied = metadata("tenant", "loadbalancer-worker-shop-stats", None);
    copied["metadata"]["labels"] = json!({
        labels::PART_OF: labels::PART_OF_SIP, labels::CLUSTER_NAME: "shop", labels::INSTANCE: "loadbalancer-worker-shop",
    });
    let services = vec![
        labelled("loadbalancer-worker-shop-a", labels::PART_OF_SIP, "shop"),
        Arc::new(serde_json::from_value(copied).unwrap()),
        // Of another cluster, another section, somebody else.
        labelled("loadbalancer-worker-shop-b", labels::PART_OF_SIP, "shop-b"),
        labelled("loadbalancer-worker-shop", labels::PART_OF_SIP, "bank"),
        labelled("jumphost-shop-c", labels::PART_OF_SIP, "shop"),
        labelled("loadbalancer-worker-shop-d", "shop", "shop"),
        service("tenant", "loadbalancer-worker-shop-e", None),
    ];
    let mut left = deployment("loadbalancer-worker-shop-f", None);
    let left_labels = [
        (labels::PART_OF, labels::PART_OF_SIP),
        (labels::CLUSTER_NAME, "shop"),
        (labels::INSTANCE, "loadbalancer-worker-shop-f"),
    ];
    let left_labels = left_labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let kept = Arc::make_mut(&mut left);
    kept.metadata.labels = Some(left_labels.into());
    trim_deployment(kept);
    let observed = Observed::among(&cluster, BALANCERS, services, &[left]);
    let names: Vec<_> = observed.names().iter().collect();
    assert_eq!(
        names,
        ["loadbalancer-worker-shop-a", "loadbalancer-worker-shop-f"]
    );
}

#[test]
fn instances_are_found_by_owner_sip_name_or_status() {
    let cluster = json!({
        "metadata": {"namespace": "tenant", "name": "shop", "uid": "now"}, "spec": {},
        "status": {"applied": [
            {"service": "loadbalancer-worker-shop-6", "epoch": 1, "revision": 1, "generation": 1},
            {"service": "jumphost-shop", "epoch": 1, "revision": 1, "generation": 1},
        ]},
    });
    let cluster: SIPCluster = serde_json::from_value(cluster).unwrap();
    let services = vec![
        service("tenant", "loadbalancer-worker-shop-1", Some("now")),
        // Of an earlier SIPCluster, another section, another namespace, a stranger.
        service("tenant", "loadbalancer-worker-shop-2", Some("before")),
        service("tenant", "jumphost-shop", Some("now")),
        service("elsewhere", "loadbalancer-worker-shop-3", Some("now")),
        service("tenant", "loadbalancer-worker-bank", None),
        // As SIP left it.
        service("tenant", "loadbalancer-controlplane-shop", None),
        service("tenant", "loadbalancer-worker-shop-7", Some("before")),
    ];
    let deployments = [
        deployment("loadbalancer-worker-shop-4", Some("now")),
        deployment("loadbalancer-worker-shop-5", None),
        // As SIP left it, without its Service.
        deployment("loadbalancer-worker-shop", None),
    ];
    let observed = Observed::among(&cluster, BALANCERS, services, &deployments);
    assert_eq!(
        observed.names().iter().collect::<Vec<_>>(),
        [
            "loadbalancer-controlplane-shop",
            "loadbalancer-worker-shop",
            "loadbalancer-worker-shop-1",
            "loadbalancer-worker-shop-4",
            "loadbalancer-worker-shop-6",
        ]
    );
    assert_eq!(observed.applied().len(), 1);
    assert_eq!(observed.services().count(), 2);
}

#[test]
fn recorded_ports_count_until_a_service_is_seen() {
    let cluster: SIPCluster = serde_json::from_value(json!({
        "metadata": {"namespace": "tenant", "name": "shop", "uid": "now"}, "spec": {},
        "status": {
            "applied": [
                {"service": "loadbalancer-worker-shop", "epoch": 1, "revision": 1, "generation": 1},
                {"service": "loadbalancer-worker-shop-1", "epoch": 1, "revision": 1, "generation": 1},
            ],
            "endpoints": [
                {"name": "loadbalancer-worker-shop", "port": 1},
                {"name": "loadbalancer-worker-shop-1:2", "port": 2},
                {"name": "loadbalancer-worker-shop-1:3", "port": 3, "nodePort": 4},
                {"name": "jumphost-shop", "port": 5},
            ],
        },
    }))
    .unwrap();
    let seen = vec![service("tenant", "loadbalancer-worker-shop", Some("now"))];
    let observed = Observed::among(&cluster, BALANCERS, seen, &[]);
    let made = observed.made_ports_by(
        |_| [9].into(),
        |endpoint| {
            let ports = [endpoint.port, endpoint.node_port].into_iter().flatten();
            ports.filter_map(|port| u16::try_from(port).ok()).collect()
        },
    );
    let expected: MadePorts = [
        ("loadbalancer-worker-shop".to_owned(), [9].into()),
        ("loadbalancer-worker-shop-1".to_owned(), [2, 3, 4].into()),
    ]
    .into();
    assert_eq!(made, expected);
}

/// As the watch keeps it.
fn annotated(name: &str, annotations: Value) -> Arc<Service> {
    let mut object = metadata("tenant", name, Some("now"));
    object["metadata"]["annotations"] = annotations;
    let mut service: Service = serde_json::from_value(object).unwrap();
    trim_service(&mut service);
    Arc::new(service)
}

#[test]
fn what_may_serve_is_decided_without_the_record() {
    const NAME: &str = "loadbalancer-worker-shop";
    let cluster = json!({"metadata": {"namespace": "tenant", "name": "shop", "uid": "now"}, "spec": {}});
    let cluster: SIPCluster = serde_json::from_value(cluster).unwrap();
    let (over, updated) = ("NewReplicaSetAvailable", "ReplicaSetUpdated");
    let [none, no, yes] = [json!({}), json!({SERVED: "false"}), json!({SERVED: "true"})];
    for (record, replicas, available, rollout, served, serving) in [
        // An earlier revision of the agent made it.
        (&none, 2, 0, over, false, true),
        // Its pods never came after it was scaled up from 0, or they were available only while the agent did not apply it.
        (&no, 2, 0, over, false, true),
        (&yes, 2, 0, over, true, true),
        // Its last rollout did not end.
        (&no, 2, 1, updated, false, true),
        (&no, 2, 0, updated, false, false),
        (&yes, 2, 0, updated, true, false),
        (&yes, 0, 0, over, false, false),
    ] {
        let mut object = metadata("tenant", NAME, Some("now"));
        object["metadata"]["generation"] = json!(1);
        object["spec"] = json!({"replicas": replicas, "selector": {}, "template": {}});
        object["status"] = json!({
            "observedGeneration": 1, "availableReplicas": available,
            "conditions": [
                {"type": "Available", "status": "False"},
                {"type": "Progressing", "status": "True", "reason": rollout},
            ],
        });
        let mut deployment: Deployment = serde_json::from_value(object).unwrap();
        trim_deployment(&mut deployment);
        let services = vec![annotated(NAME, record.clone())];
        let observed = Observed::among(&cluster, BALANCERS, services, &[Arc::new(deployment)]);
        let case = format!("{record} {replicas} {available} {rollout}");
        assert_eq!(observed.have_served().contains(NAME), served, "{case}");
        assert_eq!(observed.serving().contains(NAME), serving, "{case}");
    }
}

#[test]
fn a_service_records_that_pods_were_available() {
    let cluster = json!({"metadata": {"namespace": "tenant", "name": "shop", "uid": "now"}, "spec": {}});
    let cluster: SIPCluster = serde_json::from_value(cluster).unwrap();
    let [first, second, third, fourth] =
        ["", "-1", "-2", "-3"].map(|suffix| format!("loadbalancer-worker-shop{suffix}"));
    let deployment = |name: &str, available: u8| {
        let mut object = metadata("tenant", name, Some("now"));
        object["metadata"]["generation"] = json!(1);
        object["spec"] = json!({"selector": {}, "template": {}});
        let status = if available > 0 { "True" } else { "False" };
        object["status"] = json!({
            "observedGeneration": 1, "availableReplicas": available,
            "conditions": [{"type": "Available", "status": status}],
        });
        Arc::new(serde_json::from_value::<Deployment>(object).unwrap())
    };
    let services = vec![
        annotated(&first, json!({})),
        annotated(&second, json!({SERVED: "true"})),
        annotated(&third, json!({SERVED: "false"})),
    ];
    let deployments = [
        deployment(&first, 1),
        deployment(&second, 0),
        deployment(&third, 0),
        deployment(&fourth, 1),
    ];
    let mut observed = Observed::among(&cluster, BALANCERS, services, &deployments);
    assert_eq!(observed.have_served(), BTreeSet::from([&*first, &*second]));
    observed.outdated = [&first, &second]
        .map(|name| (name.clone(), Outdated::Generation))
        .into();
    assert_eq!(observed.have_served(), BTreeSet::from([&*second]));
}
