//! A load balancer stays until the one that takes its place is made: an edit that is refused stops nothing that serves.

use k8s_openapi::api::core::v1::ResourceQuota;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};
use sandbox::wait;
use serde_json::{Value, json};

use super::{
    Objects, objects,
    releases::{comes_to_rest, forbid},
    workers,
};
use crate::fixtures::{Cluster, PATIENCE, Role, Stage, applied, cluster, on_shared_site};

const A: &str = "loadbalancer-worker-shop-a";
const B: &str = "loadbalancer-worker-shop-b";
const C: &str = "loadbalancer-worker-shop-c";

fn entry(name: &str, port: u16) -> Value {
    workers(port, port, &json!({"name": name}))
}

/// The site allows no such label.
fn refused(name: &str, port: u16) -> Value {
    let changes = json!({"service": {"metadata": {"labels": {"exposed-by": "blue"}}}});
    workers(port, port, &json!({"name": name, "override": changes}))
}

async fn ready_with(stage: &Stage, scenario: &str, entries: Value) -> Cluster {
    let shop = cluster(scenario, "shop")
        .role(Role::Worker, 0)
        .with("/services/loadBalancerWorker", entries);
    stage.create(&shop).await;
    stage.ready(&shop).await;
    shop
}

async fn edit(stage: &Stage, shop: &Cluster, entries: Value) {
    let entries = json!({"services": {"loadBalancerWorker": entries}});
    stage.edit(shop, entries).await;
}

impl Objects {
    /// The names of the Services, and of the Deployments behind them.
    async fn names(&self) -> Vec<String> {
        let services = self.services.list(&ListParams::default()).await.unwrap();
        let deployments = self.deployments.list(&ListParams::default()).await.unwrap();
        let names: Vec<String> = services.iter().map(ResourceExt::name_any).collect();
        let behind: Vec<String> = deployments.iter().map(ResourceExt::name_any).collect();
        assert_eq!(names, behind);
        names
    }

    async fn uid(&self, name: &str) -> String {
        self.services.get(name).await.unwrap().uid().unwrap()
    }
}

#[test]
fn a_refused_entry_takes_the_place_of_none() {
    on_shared_site("renamed-refused", async |stage| {
        let (kept, other) = (31_980, entry("c", 31_981));
        let of = objects(stage, "renamed-refused");
        let shop = ready_with(stage, "renamed-refused", json!([entry("a", kept), other])).await;
        let before = of.uid(A).await;

        // The entry that stays gets another port in the same edit.
        edit(stage, &shop, json!([refused("b", kept), entry("c", 31_982)])).await;
        stage
            .condition_is(&shop, "LoadBalancerReady", "False", "OverrideNotAllowed")
            .await;
        comes_to_rest(stage, &shop).await;
        assert_eq!(of.names().await, [A, C]);
        assert_eq!(of.uid(A).await, before);
        let object = stage.clusters("renamed-refused").get("shop").await.unwrap();
        let served: Vec<String> = applied(&object)
            .into_iter()
            .map(|applied| applied.service)
            .collect();
        assert_eq!(served, [C]);
        let port = of.services.get(C).await.unwrap().spec.unwrap().ports.unwrap()[0].node_port;
        assert_eq!(port, Some(31_982));

        edit(stage, &shop, json!([entry("b", kept), entry("c", 31_982)])).await;
        stage.ready(&shop).await;
        assert_eq!(of.names().await, [B, C]);

        // An entry that can be made takes the port of one, though another entry is refused.
        edit(stage, &shop, json!([refused("x", 31_983), entry("d", 31_982)])).await;
        stage
            .condition_is(&shop, "LoadBalancerReady", "False", "OverrideNotAllowed")
            .await;
        comes_to_rest(stage, &shop).await;
        assert_eq!(of.names().await, [B, "loadbalancer-worker-shop-d"]);

        edit(stage, &shop, json!([entry("d", 31_982)])).await;
        stage.ready(&shop).await;
        assert_eq!(of.names().await, ["loadbalancer-worker-shop-d"]);
    });
}

#[test]
fn a_load_balancer_stays_while_its_successor_is_refused() {
    on_shared_site("renamed-quota", async |stage| {
        let of = objects(stage, "renamed-quota");
        let shop = ready_with(stage, "renamed-quota", json!([entry("a", 31_985)])).await;
        let before = of.uid(A).await;
        forbid(stage, "renamed-quota", "count/deployments.apps").await;

        edit(stage, &shop, json!([entry("b", 31_986)])).await;
        stage
            .condition_is(&shop, "LoadBalancerReady", "False", "Refused")
            .await;
        comes_to_rest(stage, &shop).await;
        assert_eq!(of.uid(A).await, before);
        assert!(of.deployments.get_opt(A).await.unwrap().is_some());

        let quotas: Api<ResourceQuota> = Api::namespaced(stage.site.client(), "renamed-quota");
        quotas.delete("none", &DeleteParams::default()).await.unwrap();
        // The next try may be minutes away.
        edit(
            stage,
            &shop,
            json!([workers(31_986, 31_986, &json!({"name": "b", "replicas": 2}))]),
        )
        .await;
        stage.ready(&shop).await;
        assert_eq!(of.names().await, [B]);

        // Nothing new is made for a cluster that is being deleted, so nothing waits for it.
        forbid(stage, "renamed-quota", "count/deployments.apps").await;
        edit(stage, &shop, json!([entry("a", 31_985)])).await;
        stage
            .condition_is(&shop, "LoadBalancerReady", "False", "Refused")
            .await;
        stage.delete(&shop).await;
        stage.gone(&shop).await;
        wait::until_gone(of.deployments.clone(), B, PATIENCE)
            .await
            .unwrap();
        wait::until_gone(of.services.clone(), A, PATIENCE).await.unwrap();
    });
}
