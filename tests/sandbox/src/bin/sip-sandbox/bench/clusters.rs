//! The clusters that are placed.

use std::fmt;

use kube::api::DynamicObject;
use sandbox::inventory;
use serde_json::json;

/// How many hosts a cluster wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) control_plane: u32,
    pub(super) workers: u32,
}

impl Shape {
    pub(super) fn hosts(self) -> u32 {
        self.control_plane + self.workers
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} + {}", self.control_plane, self.workers)
    }
}

/// A cluster with a load balancer of each kind. `number`: no other one in the site has it.
pub(super) fn cluster(
    namespace: &str,
    name: &str,
    number: u16,
    shape: Shape,
) -> serde_json::Result<DynamicObject> {
    let role = |flavor: &str, key: &str, active: u32| {
        json!({
            "labelSelector": {"matchLabels": {inventory::FLAVOR: flavor}},
            "topologyKey": key,
            "count": {"active": active, "standby": 0},
        })
    };
    // Three node ports for each cluster, from 30000 on.
    let port = 30_000 + u32::from(number) * 3;
    serde_json::from_value(json!({
        "apiVersion": "airship.airshipit.org/v1",
        "kind": "SIPCluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "nodes": {
                "ControlPlane": role("control-plane", inventory::RACK, shape.control_plane),
                "Worker": role("worker", inventory::SERVER, shape.workers),
            },
            "services": {
                "loadBalancerControlPlane": [{
                    "image": "haproxy:2.8",
                    "nodeInterfaceId": inventory::NETWORK,
                    "nodePort": port,
                    "replicas": 1,
                }],
                "loadBalancerWorker": [{
                    "image": "haproxy:2.8",
                    "nodeInterfaceId": inventory::NETWORK,
                    "nodePortRange": {"start": port + 1, "end": port + 2},
                    "replicas": 1,
                }],
            },
        },
    }))
}
