//! What SIP left behind is taken over: names, selectors, container and port names are its own.

use std::path::Path;

use api::{Cluster, SIPCluster};
use serde_json::Value;

use crate::load_balancer::{control_plane, worker};

/// SIP's objects, from a real API server. Not part of the project: where they are absent, the test of the selector stays.
fn leftovers() -> Option<Vec<Value>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/sip/leftovers.yaml");
    let text = std::fs::read_to_string(file).ok()?;
    Some(serde_saphyr::from_multiple(&text).unwrap())
}

fn legacy() -> Cluster {
    let yaml = "
metadata: {name: legacy, namespace: sipcluster-system, uid: u}
apiVersion: airship.airshipit.org/v1
kind: SIPCluster
spec:
  services:
    loadBalancerControlPlane: [{image: 'haproxy:2.3.2', nodeInterfaceId: oam-ipv4, nodePort: 30001}]
    loadBalancerWorker: [{image: 'haproxy:2.3.2', nodeInterfaceId: oam-ipv4, nodePortRange: {start: 30002, end: 30004}}]
";
    let object: SIPCluster = serde_saphyr::from_str(yaml).unwrap();
    Cluster::parse(&object).unwrap()
}

#[test]
fn the_selector_is_that_of_sip() {
    let cluster = legacy();
    let objects = control_plane(&cluster, &cluster.load_balancers_control_plane()[0], &[]);
    let selector = serde_json::to_value(objects.deployment.spec.selector).unwrap();
    assert_eq!(
        selector,
        serde_json::json!({ "matchLabels": {
            "app.kubernetes.io/component": "loadbalancer",
            "app.kubernetes.io/instance": "loadbalancer-controlplane-legacy",
            "app.kubernetes.io/name": "haproxy",
            "app.kubernetes.io/part-of": "sip",
        }})
    );
}

#[test]
fn the_objects_fit_those_that_sip_left() {
    let Some(leftovers) = leftovers() else { return };
    let cluster = legacy();
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
