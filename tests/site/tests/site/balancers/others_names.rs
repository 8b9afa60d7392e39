//! Two clusters may give one name to their load balancers. What is left of one is never another's.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Pod},
    networking::v1::NetworkPolicy,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{balanced, change, objects};
use crate::fixtures::{Cluster, Stage, on_shared_site};

const NAME: &str = "loadbalancer-controlplane-shop";

/// Metadata of an object without an owner, which was made for another cluster.
fn of_bank(namespace: &str, name: &str) -> Value {
    json!({"namespace": namespace, "name": name, "labels": {
        "app.kubernetes.io/component": "loadbalancer", "app.kubernetes.io/instance": NAME,
        "app.kubernetes.io/name": "haproxy", "app.kubernetes.io/part-of": "sip",
        "sip.airshipit.org/cluster-name": "bank",
    }})
}

/// Creates it; its kind is that of the API.
async fn create<K>(objects: &Api<K>, object: Value)
where
    K: kube::Resource + Clone + serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object).unwrap();
    objects.create(&PostParams::default(), &object).await.unwrap();
}

async fn conflicts(stage: &Stage, shop: &Cluster, words: &str) {
    stage
        .condition_mentions(shop, "LoadBalancerReady", "False", "NameConflict", words)
        .await;
}

#[test]
fn no_service_leads_to_another_clusters_pods() {
    on_shared_site("its-pods", async |stage| {
        let pods: Api<Pod> = Api::namespaced(stage.site.client(), "its-pods");
        let container = json!([{"name": "loadbalancer", "image": "haproxy"}]);
        let pod = json!({"metadata": of_bank("its-pods", "left"), "spec": {"containers": container}});
        create(&pods, pod).await;
        let shop = balanced("its-pods", "shop", 31_146, &json!({"replicas": 1}));
        stage.create(&shop).await;
        conflicts(stage, &shop, "Pod its-pods/left of SIPCluster bank").await;
        let services = objects(stage, "its-pods").services;
        assert!(services.get_opt(NAME).await.unwrap().is_none());

        let at_once = DeleteParams::default().grace_period(0);
        pods.delete("left", &at_once).await.unwrap();
        stage.ready(&shop).await;
        assert!(services.get_opt(NAME).await.unwrap().is_some());
    });
}

#[test]
fn what_was_made_for_another_cluster_stays() {
    on_shared_site("its-objects", async |stage| {
        let maps: Api<ConfigMap> = Api::namespaced(stage.site.client(), "its-objects");
        let policies: Api<NetworkPolicy> = Api::namespaced(stage.site.client(), "its-objects");
        let metadata = of_bank("its-objects", NAME);
        create(&maps, json!({"metadata": metadata})).await;
        let nobody = json!({"podSelector": {}, "policyTypes": ["Ingress"]});
        create(&policies, json!({"metadata": metadata, "spec": nobody})).await;
        let version = async || {
            let (map, policy) = (maps.get(NAME).await.unwrap(), policies.get(NAME).await.unwrap());
            (map.metadata.resource_version, policy.metadata.resource_version)
        };
        let before = version().await;
        let shop = balanced("its-objects", "shop", 31_147, &json!({"replicas": 1}));
        stage.create(&shop).await;
        let words = "ConfigMap its-objects/loadbalancer-controlplane-shop was made for SIPCluster bank";
        conflicts(stage, &shop, words).await;
        // Passes after the first, in which the watch has shown the Service.
        for port in [31_148, 31_149] {
            stage
                .edit(
                    &shop,
                    change("its-objects", "shop", port, &json!({"replicas": 1})),
                )
                .await;
            conflicts(stage, &shop, words).await;
        }
        assert_eq!(version().await, before);

        maps.delete(NAME, &DeleteParams::default()).await.unwrap();
        let words = "NetworkPolicy its-objects/loadbalancer-controlplane-shop was made for SIPCluster bank";
        conflicts(stage, &shop, words).await;
        policies.delete(NAME, &DeleteParams::default()).await.unwrap();
        stage.ready(&shop).await;
    });
}

#[test]
fn a_foreign_deployment_is_noticed_when_it_goes() {
    on_shared_site("its-deployment", async |stage| {
        const NAMED: &str = "loadbalancer-controlplane-shop-b";
        let fields = json!({"name": "b", "replicas": 1});
        let shop = balanced("its-deployment", "shop", 31_151, &fields);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let deployments = objects(stage, "its-deployment").deployments;
        // Without the agent's labels no watch shows it.
        let theirs = json!([
            {"op": "replace", "path": "/metadata/labels", "value": {"app": "theirs"}},
            {"op": "remove", "path": "/metadata/ownerReferences"},
        ]);
        let theirs = Patch::<Deployment>::Json(serde_json::from_value(theirs).unwrap());
        deployments
            .patch(NAMED, &PatchParams::default(), &theirs)
            .await
            .unwrap();
        let words =
            "Deployment its-deployment/loadbalancer-controlplane-shop-b was not made for a SIPCluster";
        conflicts(stage, &shop, words).await;
        stage
            .condition_is(&shop, "Ready", "False", "InfraServiceFailure")
            .await;

        deployments.delete(NAMED, &DeleteParams::default()).await.unwrap();
        stage.ready(&shop).await;
        let ours = deployments.get(NAMED).await.unwrap();
        assert!(ours.metadata.owner_references.is_some());
    });
}
