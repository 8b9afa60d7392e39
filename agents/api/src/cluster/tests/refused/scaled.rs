use serde_json::{Value, json};

use super::{VALUE, refused};
use crate::fixtures::{parse, sample, sample_with};
use crate::{Scaled, ScaledKind};

const AT: &str = "spec.clusterAPI.replicas";

#[test]
fn objects_of_cluster_api() {
    let one = "must name exactly one of machineDeployment and kubeadmControlPlane";
    let name = "must be the name of an object in the namespace of the hosts: a DNS subdomain of at most 253 lowercase letters, digits, \
                '-' and '.'";
    for (replicas, expected) in [
        (json!({"Worker": {}}), format!("{AT}[Worker] is absent: {one}")),
        (
            json!({"Worker": {"machineDeployment": "a", "kubeadmControlPlane": "b"}}),
            format!("{AT}[Worker] is \"a\": {one}"),
        ),
        (
            json!({"-": {"machineDeployment": "a"}}),
            format!("{AT}[-] is \"-\": must be the name of a role: {VALUE}"),
        ),
        (
            json!({"Worker": {"machineDeployment": "a"}, "ControlPlane": {"machineDeployment": "a"}}),
            format!(
                "{AT}[Worker] is \"a\": must be the MachineDeployment of one role; that of ControlPlane is the same"
            ),
        ),
        (
            json!({"Worker": {"machineDeployment": "other/a"}}),
            format!("{AT}[Worker].machineDeployment is \"other/a\": {name}"),
        ),
        (
            json!({"ControlPlane": {"kubeadmControlPlane": ""}}),
            format!("{AT}[ControlPlane].kubeadmControlPlane is \"\": {name}"),
        ),
    ] {
        refused("/clusterAPI/replicas", replicas, &expected);
    }
    let many: Value = (0..33)
        .map(|index| (format!("r{index}"), json!({"machineDeployment": "a"})))
        .collect::<serde_json::Map<_, _>>()
        .into();
    refused(
        "/clusterAPI/replicas",
        many,
        "spec.clusterAPI.replicas is 33 roles: must be at most 32",
    );
}

#[test]
fn an_object_follows_the_active_hosts_of_its_role() {
    let cluster = parse(sample()).unwrap();
    let found: Vec<_> = cluster
        .scaled()
        .iter()
        .map(|one| {
            (
                one.role().as_str(),
                one.active(),
                one.wanted(),
                one.kind(),
                one.name(),
            )
        })
        .collect();
    let (control_plane, workers) = (ScaledKind::KubeadmControlPlane, ScaledKind::MachineDeployment);
    assert_eq!(
        found,
        [
            ("ControlPlane", 3, 3, control_plane, "shop"),
            ("Worker", 4, 5, workers, "shop-workers"),
        ]
    );
    let dropped = parse(sample_with("/nodes/Worker", Value::Null)).unwrap();
    let counts: Vec<_> = dropped
        .scaled()
        .iter()
        .map(|one| (one.active(), one.wanted()))
        .collect();
    assert_eq!(counts, [(3, 3), (0, 0)], "a role that is not named wants no host");
    for none in [Value::Null, json!({}), json!({"replicas": {}})] {
        let cluster = parse(sample_with("/clusterAPI", none)).unwrap();
        assert_eq!(cluster.scaled(), [] as [Scaled; 0]);
    }
}
