//! What a load balancer consists of on a real API server, and how it follows its spec. KWOK plays the nodes.

mod pods;

use k8s_openapi::api::{
    apps::v1::Deployment, core::v1::Service, networking::v1::NetworkPolicy, policy::v1::PodDisruptionBudget,
};
use kube::Api;
use sandbox::inventory::NETWORK;
use serde_json::{Value, json};

use crate::fixtures::{Cluster, Role, Stage, cluster};

/// The objects of a scenario.
struct Objects {
    deployments: Api<Deployment>,
    services: Api<Service>,
    budgets: Api<PodDisruptionBudget>,
    policies: Api<NetworkPolicy>,
}

fn objects(stage: &Stage, scenario: &str) -> Objects {
    let client = || stage.site.client();
    Objects {
        deployments: Api::namespaced(client(), scenario),
        services: Api::namespaced(client(), scenario),
        budgets: Api::namespaced(client(), scenario),
        policies: Api::namespaced(client(), scenario),
    }
}

/// A cluster that holds nothing, whose one load balancer is in front of the API servers and has these fields too.
fn balanced(scenario: &str, name: &str, port: u16, fields: &Value) -> Cluster {
    let mut entry = json!({"image": "haproxy:2.8", "nodeInterfaceId": NETWORK, "nodePort": port});
    for (name, value) in fields.as_object().unwrap() {
        entry[name] = value.clone();
    }
    cluster(scenario, name)
        .role(Role::ControlPlane, 0)
        .with("/services/loadBalancerControlPlane", json!([entry]))
}

/// The spec's change to what `balanced` makes of these fields.
fn change(scenario: &str, name: &str, port: u16, fields: &Value) -> Value {
    balanced(scenario, name, port, fields).spec().clone()
}
