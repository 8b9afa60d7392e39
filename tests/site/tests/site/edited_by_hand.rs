//! People who write to hosts and objects: what is ours is put back, what is somebody else's is reported and left.

use std::fmt::Debug;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Service},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{Patch, PatchParams},
};
use sandbox::{
    sip_clusters::{CLUSTER_NAME, NODE_TYPE},
    wait,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::fixtures::{PATIENCE, Role, Stage, cluster, fleet, on_shared_site, sip_labels};

async fn label(stage: &Stage, host: &str, key: &str, value: Value) {
    let patch = Patch::Merge(json!({"metadata": {"labels": {key: value}}}));
    stage
        .hosts()
        .patch(host, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

#[test]
fn a_removed_label_is_restored_and_a_foreign_one_reported() {
    on_shared_site("labels", async |stage| {
        stage.load(&fleet("labels", 2, 1, 0)).await;
        let shop = cluster("labels", "shop").role(Role::ControlPlane, 2);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let host = "labels-r1-cp1";

        for key in [NODE_TYPE, CLUSTER_NAME] {
            label(stage, host, key, Value::Null).await;
            wait::until(
                stage.hosts(),
                host,
                "the label to be put back",
                PATIENCE,
                |host| sip_labels(host).len() == 3,
            )
            .await
            .unwrap();
        }
        stage.ready(&shop).await;

        label(stage, host, CLUSTER_NAME, json!("somebody-else")).await;
        let expected = format!("metal/{host}: it has labels of another cluster or role");
        let why = stage
            .condition_mentions(&shop, "HostsLabeled", "False", "Blocked", &expected)
            .await;
        assert!(
            why.contains("sip.airshipit.org/cluster-name=somebody-else"),
            "{why}"
        );
        stage
            .condition_mentions(&shop, "Ready", "False", "UnableToApplyLabels", &expected)
            .await;
        let found = stage.hosts().get(host).await.unwrap();
        assert_eq!(
            sip_labels(&found)[CLUSTER_NAME],
            "somebody-else",
            "it was overwritten"
        );

        label(stage, host, CLUSTER_NAME, json!("shop")).await;
        stage.ready(&shop).await;
    });
}

#[test]
fn edited_objects_of_a_load_balancer_are_restored() {
    on_shared_site("objects", async |stage| {
        stage.load(&fleet("objects", 2, 1, 1)).await;
        let shop = cluster("objects", "shop")
            .role(Role::ControlPlane, 1)
            .role(Role::Worker, 1)
            .balanced(30_300);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let name = "loadbalancer-worker-shop";
        let services: Api<Service> = Api::namespaced(stage.site.client(), "objects");
        let deployments: Api<Deployment> = Api::namespaced(stage.site.client(), "objects");
        let (service, deployment) = (
            services.get(name).await.unwrap(),
            deployments.get(name).await.unwrap(),
        );

        let again = stage.deleted_comes_back(&services, name).await;
        let ports = |service: &Service| {
            let ports = service.spec.clone().unwrap().ports.unwrap_or_default();
            ports
                .into_iter()
                .map(|port| (port.port, port.node_port))
                .collect::<Vec<_>>()
        };
        assert_eq!(ports(&again), ports(&service));

        let image = |deployment: &Deployment| {
            let pod = deployment.spec.clone().template.spec.unwrap();
            pod.containers[0].image.clone()
        };
        let container = deployment.spec.clone().template.spec.unwrap().containers[0]
            .name
            .clone();
        let edited = Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": [
            {"name": container, "image": "somebody.example/else:1"},
        ]}}}}));
        deployments
            .patch(name, &PatchParams::default(), &edited)
            .await
            .unwrap();
        wait::until(
            deployments,
            name,
            "the image to be put back",
            PATIENCE,
            |now: &Deployment| image(now) == image(&deployment),
        )
        .await
        .unwrap();
        stage.ready(&shop).await;
    });
}

/// Removes the owners of an object, and waits until it has one again.
async fn owner_comes_back<K>(objects: Api<K>, name: &str)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static,
{
    let without = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
    objects
        .patch(name, &PatchParams::default(), &without)
        .await
        .unwrap();
    wait::until(objects, name, "the owner to be put back", PATIENCE, |now: &K| {
        !now.owner_references().is_empty()
    })
    .await
    .unwrap();
}

#[test]
fn an_object_that_loses_its_owner_gets_it_back() {
    on_shared_site("owners", async |stage| {
        let shop = cluster("owners", "shop").role(Role::Worker, 0).balanced(31_390);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let (client, namespace, name) = (stage.site.client(), "owners", "loadbalancer-worker-shop");
        owner_comes_back::<Service>(Api::namespaced(client.clone(), namespace), name).await;
        owner_comes_back::<ConfigMap>(Api::namespaced(client.clone(), namespace), name).await;
        owner_comes_back::<Deployment>(Api::namespaced(client.clone(), namespace), name).await;
        owner_comes_back::<NetworkPolicy>(Api::namespaced(client.clone(), namespace), name).await;
        owner_comes_back::<PodDisruptionBudget>(Api::namespaced(client, namespace), name).await;
        stage.ready(&shop).await;
    });
}

#[test]
fn a_deleted_or_edited_configuration_is_restored_at_once() {
    on_shared_site("configuration", async |stage| {
        stage.load(&fleet("configuration", 1, 0, 1)).await;
        let shop = cluster("configuration", "shop")
            .role(Role::ControlPlane, 0)
            .role(Role::Worker, 1)
            .balanced(31_170);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let name = "loadbalancer-worker-shop";
        let config_maps: Api<ConfigMap> = Api::namespaced(stage.site.client(), "configuration");
        let before = config_maps.get(name).await.unwrap();

        let again = stage.deleted_comes_back(&config_maps, name).await;
        assert_eq!(again.data, before.data);

        let emptied = Patch::Merge(json!({"data": {"haproxy.cfg": ""}}));
        config_maps
            .patch(name, &PatchParams::default(), &emptied)
            .await
            .unwrap();
        wait::until(
            config_maps,
            name,
            "the configuration to be put back",
            PATIENCE,
            |now: &ConfigMap| now.data == before.data,
        )
        .await
        .unwrap();
    });
}

#[test]
fn budgets_and_policies_are_restored_at_once() {
    on_shared_site("guards", async |stage| {
        stage.load(&fleet("guards", 1, 0, 1)).await;
        let shop = cluster("guards", "shop")
            .role(Role::ControlPlane, 0)
            .role(Role::Worker, 1)
            .balanced(31_190);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let name = "loadbalancer-worker-shop";
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(stage.site.client(), "guards");
        let policies: Api<NetworkPolicy> = Api::namespaced(stage.site.client(), "guards");
        let meant = policies.get(name).await.unwrap().spec;

        stage.deleted_comes_back(&budgets, name).await;
        stage.deleted_comes_back(&policies, name).await;
        let opened = Patch::Merge(json!({"spec": {"ingress": [{}]}}));
        policies
            .patch(name, &PatchParams::default(), &opened)
            .await
            .unwrap();
        wait::until(
            policies,
            name,
            "the policy to be put back",
            PATIENCE,
            |now: &NetworkPolicy| now.spec == meant,
        )
        .await
        .unwrap();
    });
}
