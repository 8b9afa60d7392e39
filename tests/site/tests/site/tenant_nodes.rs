//! Nodes of a tenant's cluster, on an API server of its own: load balancers prefer members whose Node is ready, and the Node of a host that
//! leaves is drained and deleted before the host goes. No kubelet runs: the tests write the Nodes' statuses.

mod cluster_api;

use std::net::Ipv4Addr;

use k8s_openapi::api::{
    core::v1::{Node, Pod, Secret, ServiceAccount},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use sandbox::{
    inventory::{Host, NETWORK},
    region::Agent,
    site::Site,
    wait,
};
use serde_json::{Value, json};

use crate::fixtures::{Cluster, PATIENCE, Role, Stage, cluster, given_back, host, sip_labels};

const NAMESPACE: &str = "tenant-nodes";
/// The namespace of pods in the tenant's cluster.
const PODS: &str = "default";

/// A site with a namespace of a tenant, and the tenant's API server.
struct Scene {
    stage: Stage,
    tenant: Site,
}

impl Scene {
    async fn start() -> Self {
        let mut stage = Stage::start("tenant-nodes", &[Agent::Cluster]).await;
        stage
            .start_agent_where(Agent::LoadBalancer, |config| {
                config.haproxy_sidecar_image = Some("localhost/sip-haproxy-sidecar:1".to_owned());
            })
            .await;
        stage.site.create_tenant_namespace(NAMESPACE).await.unwrap();
        stage.agents_are_ready().await;
        let tenant = Site::builder("tenant-nodes-tenant").start().await.unwrap();
        let file = tenant.kubectl_ok(&["config", "view", "--raw", "--flatten"]);
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": "kubeconfig"}, "stringData": {"value": file.await.unwrap()},
        }))
        .unwrap();
        let secrets: Api<Secret> = Api::namespaced(stage.site.client(), NAMESPACE);
        secrets.create(&PostParams::default(), &secret).await.unwrap();
        Self { stage, tenant }
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.tenant.client())
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.tenant.client(), PODS)
    }

    /// A Node on this host, as its kubelet would write it.
    async fn node(&self, name: &str, address: Ipv4Addr, ready: bool) {
        let node = json!({"metadata": {"name": name}});
        let node: Node = serde_json::from_value(node).unwrap();
        self.nodes().create(&PostParams::default(), &node).await.unwrap();
        let reason = if ready { "KubeletReady" } else { "KubeletNotReady" };
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": address.to_string()}],
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }, "reason": reason}],
        }});
        let patch = Patch::Merge(status);
        self.nodes()
            .patch_status(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// A running pod on each of these Nodes, and a budget that lets nobody evict one.
    async fn guarded_pods(&self, nodes: &[String]) {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.tenant.client(), PODS);
        let made = wait::until(accounts, "default", "ServiceAccount default", PATIENCE, |_| true);
        made.await.unwrap();
        let budget = json!({
            "metadata": {"name": "web"},
            "spec": {"minAvailable": nodes.len(), "selector": {"matchLabels": {"app": "web"}}},
        });
        let budget: PodDisruptionBudget = serde_json::from_value(budget).unwrap();
        let budgets = self.budgets();
        budgets.create(&PostParams::default(), &budget).await.unwrap();
        for node in nodes {
            let pod = json!({
                "metadata": {"name": pod_on(node), "labels": {"app": "web"}},
                "spec": {
                    "nodeName": node, "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "web", "image": "web:1"}],
                },
            });
            let pod: Pod = serde_json::from_value(pod).unwrap();
            self.pods().create(&PostParams::default(), &pod).await.unwrap();
            let running =
                json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
            let running = Patch::Merge(running);
            self.pods()
                .patch_status(&pod_on(node), &PatchParams::default(), &running)
                .await
                .unwrap();
        }
        let counted = wait::until(
            budgets,
            "web",
            "the budget to count its pods",
            PATIENCE,
            |budget| {
                let healthy = budget.status.as_ref().and_then(|status| status.current_healthy);
                healthy.is_some_and(|healthy| usize::try_from(healthy) == Ok(nodes.len()))
            },
        );
        counted.await.unwrap();
    }

    fn budgets(&self) -> Api<PodDisruptionBudget> {
        Api::namespaced(self.tenant.client(), PODS)
    }

    /// A cluster of so many workers whose jump host, which no agent makes here, names the tenant's kubeconfig.
    fn cluster(name: &str, workers: u32, port: u16) -> Cluster {
        let jump_host = json!({
            "image": "jump:1", "nodeInterfaceId": NETWORK, "nodePort": port, "kubeconfigSecret": "kubeconfig",
        });
        cluster(NAMESPACE, name)
            .role(Role::Worker, workers)
            .with("/services/jumpHost", json!([jump_host]))
    }

    /// Waits until a cluster's hosts have its labels. Returns their names.
    async fn labelled(&self, cluster: &Cluster, count: usize) -> Vec<String> {
        let all_are = |hosts: &[&DynamicObject]| {
            let labelled = hosts.iter().filter(|host| is_of(host, cluster));
            labelled.count() == count
        };
        let hosts = self.stage.until_hosts(NAMESPACE, "be labelled", all_are).await;
        let own = hosts.iter().filter(|host| is_of(host, cluster));
        own.map(kube::ResourceExt::name_any).collect()
    }
}

fn node_on(host: &str) -> String {
    format!("node-{host}")
}

fn pod_on(node: &str) -> String {
    format!("web-{node}")
}

fn is_of(host: &DynamicObject, cluster: &Cluster) -> bool {
    sip_labels(host).values().any(|value| *value == cluster.name)
}

fn address(hosts: &[Host], name: &str) -> Ipv4Addr {
    let host = hosts.iter().find(|host| host.name == name).unwrap();
    host.addresses[NETWORK]
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_tenants_are_preferred_when_ready_and_drained() {
    let scene = Scene::start().await;
    let Scene { stage, tenant: _ } = &scene;
    let hosts: Vec<Host> = ["a", "b", "c", "d"]
        .map(|name| host(NAMESPACE, "worker", "r1", name))
        .into();
    stage.load(&hosts).await;

    // Connections go to a member whose Node is not ready only if the other one does not answer.
    let shop = Scene::cluster("shop", 2, 30_700).balanced(30_701);
    stage.create(&shop).await;
    let of_shop = scene.labelled(&shop, 2).await;
    scene.node("shop-1", address(&hosts, &of_shop[0]), true).await;
    scene.node("shop-2", address(&hosts, &of_shop[1]), false).await;
    let named = stage.until(&shop, "name the member whose Node is not ready", |object| {
        object.data["status"]["tenantNodes"]["notPreferred"].is_array()
    });
    let named = named.await.data["status"]["tenantNodes"].clone();
    let first = &named["notPreferred"][0];
    assert_eq!(
        (&first["name"], &first["node"], &first["reason"]),
        (&json!(of_shop[1]), &json!("shop-2"), &json!("KubeletNotReady"))
    );
    assert_eq!(
        (named["notPreferred"].as_array().unwrap().len(), &named["problem"]),
        (1, &Value::Null)
    );
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(stage.site.client(), NAMESPACE);
    let backup = ":30702 backup\n";
    let rendered = wait::until(maps, "loadbalancer-worker-shop", "a backup", PATIENCE, |map| {
        let config = map.data.as_ref().map_or("", |data| &*data["haproxy.cfg"]);
        config.matches(backup).count() == 1
            && config.contains(&format!("{}{backup}", address(&hosts, &of_shop[1])))
    });
    rendered.await.unwrap();

    // Without Cluster API, the Node of a host that leaves is drained and deleted first, as its budgets allow.
    let bank = Scene::cluster("bank", 2, 30_710);
    stage.create(&bank).await;
    let of_bank = scene.labelled(&bank, 2).await;
    let nodes: Vec<String> = of_bank.iter().map(|name| node_on(name)).collect();
    for (node, host) in nodes.iter().zip(&of_bank) {
        scene.node(node, address(&hosts, host), true).await;
    }
    scene.guarded_pods(&nodes).await;
    stage
        .edit(&bank, json!({"nodes": {"Worker": {"count": {"active": 1}}}}))
        .await;
    let leaving = stage.until(&bank, "release a member", |object| releasing(object).is_some());
    let leaving = releasing(&leaving.await).unwrap();
    let node = node_on(&leaving);
    let waits = stage.until(&bank, "wait for the drain", |object| {
        let held = format!("a PodDisruptionBudget protects {PODS}/{}", pod_on(&node));
        wait::condition(object, "HostsLabeled").is_some_and(|(_, _, message)| message.contains(&held))
    });
    waits.await;
    let spec = scene.nodes().get(&node).await.unwrap().spec.unwrap();
    assert_eq!(spec.unschedulable, Some(true));
    let still = stage.hosts().get(&leaving).await.unwrap();
    assert!(is_of(&still, &bank), "it waits for its Node");
    scene
        .budgets()
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    stage
        .until_hosts(NAMESPACE, "be given back", |hosts| {
            hosts
                .iter()
                .any(|host| host.name_any() == leaving && given_back(host))
        })
        .await;
    assert!(scene.nodes().get_opt(&node).await.unwrap().is_none());
    assert!(scene.pods().get_opt(&pod_on(&node)).await.unwrap().is_none());
    stage.event(&bank, "NodeDeleted", &node).await;
    for kept in nodes.iter().filter(|kept| **kept != node) {
        let spec = scene.nodes().get(kept).await.unwrap().spec.unwrap();
        assert_eq!(spec.unschedulable, None, "the other Node stays as it is");
        scene.pods().get(&pod_on(kept)).await.unwrap();
    }
    cluster_api::its_nodes_are_found_and_left_to_it(&scene).await;
    stage.nothing_was_forbidden();
}

/// The member that a status shows as releasing.
fn releasing(object: &DynamicObject) -> Option<String> {
    let members = object.data["status"]["placement"]["members"].as_array()?;
    let releasing = members.iter().find(|member| member["state"] == "Releasing")?;
    Some(releasing["name"].as_str()?.to_owned())
}
