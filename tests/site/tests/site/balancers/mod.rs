//! What a load balancer consists of on a real API server, and how it follows its spec. KWOK plays the nodes.

mod by_hand;
pub(crate) mod edits;
mod entries;
mod exposure;
mod former;
mod frozen;
mod gone;
mod networks;
mod others_names;
mod pods;
mod pods_to_come;
mod ports;
mod reachability;
pub(crate) mod releases;
mod removal;
mod renamed;
mod scheduler_away;
mod takeover;
mod templates;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, Service},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use sandbox::inventory::NETWORK;
use serde_json::{Value, json};

use crate::fixtures::{AGENTS, Cluster, Role, Stage, cluster, fleet};

/// The objects of a scenario.
struct Objects {
    deployments: Api<Deployment>,
    services: Api<Service>,
    budgets: Api<PodDisruptionBudget>,
    policies: Api<NetworkPolicy>,
    pods: Api<Pod>,
}

impl Objects {
    /// The pods of a load balancer that are to stay.
    async fn pods_of(&self, name: &str) -> Vec<Pod> {
        let own = ListParams::default().labels(&format!("app.kubernetes.io/instance={name}"));
        let pods = self.pods.list(&own).await.unwrap().items;
        pods.into_iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            .collect()
    }

    /// Writes the status of pods as a kubelet would.
    async fn play(&self, name: &str, status: &Value) {
        for pod in self.pods_of(name).await {
            let played = Patch::Merge(json!({"status": status}));
            self.pods
                .patch_status(&pod.name_any(), &PatchParams::default(), &played)
                .await
                .unwrap();
        }
    }
}

fn objects(stage: &Stage, scenario: &str) -> Objects {
    let client = || stage.site.client();
    Objects {
        deployments: Api::namespaced(client(), scenario),
        services: Api::namespaced(client(), scenario),
        budgets: Api::namespaced(client(), scenario),
        policies: Api::namespaced(client(), scenario),
        pods: Api::namespaced(client(), scenario),
    }
}

/// A site with all agents, and with a cluster of three hosts that is ready.
async fn with_three_workers(scenario: &str) -> (Stage, Cluster) {
    let stage = Stage::start(scenario, &AGENTS).await;
    stage.site.create_tenant_namespace(scenario).await.unwrap();
    stage.load(&fleet(scenario, 3, 0, 1)).await;
    let shop = cluster(scenario, "shop").role(Role::Worker, 3);
    stage.create(&shop).await;
    stage.ready(&shop).await;
    (stage, shop)
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

/// A load balancer in front of no workers, on these ports.
fn workers(start: u16, end: u16, fields: &Value) -> Value {
    let mut entry = json!({
        "image": "haproxy:2.8", "nodeInterfaceId": NETWORK, "nodePortRange": {"start": start, "end": end},
    });
    for (name, value) in fields.as_object().unwrap() {
        entry[name] = value.clone();
    }
    entry
}
