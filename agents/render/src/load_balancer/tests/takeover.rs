//! What SIP left behind is taken over: names, selectors, container and port names are its own.

use std::path::Path;

use api::{Cluster, SIPCluster};
use serde_json::Value;

use crate::load_balancer::{control_plane, worker};

/// Objects that SIP leaves: this project's, and those of a real API server where a copy lies beside the checkout.
fn leftovers() -> Vec<Vec<Value>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let own = root.join("tests/site/samples/left-by-sip.yaml");
    let real = Some(root.join("../shared/data/sip/leftovers.yaml")).filter(|file| file.is_file());
    [own]
        .into_iter()
        .chain(real)
        .map(|file| serde_saphyr::from_multiple(&std::fs::read_to_string(file).unwrap()).unwrap())
        .collect()
}

/// The cluster among them.
fn cluster(objects: &[Value]) -> Cluster {
    let mut object = objects
        .iter()
        .find(|object| object["kind"] == "SIPCluster")
        .unwrap()
        .clone();
    object["metadata"]["uid"] = "u".into();
    let object: SIPCluster = serde_json::from_value(object).unwrap();
    Cluster::parse(&object).unwrap()
}

#[test]
fn the_selector_is_that_of_sip() {
    let cluster = cluster(&leftovers()[0]);
    let objects = control_plane(&cluster, &cluster.load_balancers_control_plane()[0], &[]);
    let selector = serde_json::to_value(objects.deployment.spec.selector).unwrap();
    assert_eq!(
        selector,
        serde_json::json!({ "matchLabels": {
            "app.kubernetes.io/component": "loadbalancer",
            "app.kubernetes.io/instance": "loadbalancer-controlplane-depot",
            "app.kubernetes.io/name": "haproxy",
            "app.kubernetes.io/part-of": "sip",
        }})
    );
}

#[test]
fn the_objects_fit_those_that_sip_left() {
    for left in leftovers() {
        fit_those_that_sip_left(&left);
    }
}

fn fit_those_that_sip_left(leftovers: &[Value]) {
    let cluster = cluster(leftovers);
    let balancers = [
        control_plane(&cluster, &cluster.load_balancers_control_plane()[0], &[]),
        worker(&cluster, &cluster.load_balancers_worker()[0], &[]),
    ];
    for ours in balancers {
        let name = ours.config_map.metadata.name.clone().unwrap();
        let left = |kind: &str| {
            let same = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == *name;
            leftovers
                .iter()
                .find(same)
                .unwrap_or_else(|| panic!("SIP left no {kind} {name}"))
        };
        let deployment = serde_json::to_value(&ours.deployment).unwrap();
        let theirs = left("Deployment");
        assert_eq!(deployment["spec"]["selector"], theirs["spec"]["selector"]);
        let (container, their_container) = (
            &deployment["spec"]["template"]["spec"]["containers"][0],
            &theirs["spec"]["template"]["spec"]["containers"][0],
        );
        assert_eq!(container["name"], their_container["name"]);
        assert_eq!(
            container["volumeMounts"][0]["name"],
            their_container["volumeMounts"][0]["name"]
        );
        assert_eq!(
            container["volumeMounts"][0]["mountPath"],
            their_container["volumeMounts"][0]["mountPath"]
        );
        let balanced = their_container["ports"].as_array().unwrap();
        assert_eq!(
            &container["ports"].as_array().unwrap()[..balanced.len()],
            balanced
        );

        let service = serde_json::to_value(&ours.service).unwrap();
        for field in ["type", "selector", "ports"] {
            assert_eq!(service["spec"][field], left("Service")["spec"][field], "{field}");
        }
        assert_eq!(
            left("Secret")["data"]
                .as_object()
                .unwrap()
                .keys()
                .collect::<Vec<_>>(),
            ["haproxy.cfg"]
        );
    }
}
