//! What SIP made before is taken over under its name, and serves all the while.

use std::pin::pin;

use futures::TryStreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api,
    api::{DynamicObject, ObjectMeta, PostParams},
    runtime::{WatchStreamExt as _, watcher},
};
use sandbox::{region::Agent, wait};
use serde_json::{Value, json};

use super::{
    balanced, objects,
    releases::{FIRST, nothing_is_given_back, until_held},
    with_three_workers, workers,
};
use crate::fixtures::{PATIENCE, Role, Stage, cluster, on_shared_site};

const NAME: &str = "loadbalancer-controlplane-shop";

fn selector() -> Value {
    json!({
        "app.kubernetes.io/component": "loadbalancer", "app.kubernetes.io/instance": NAME,
        "app.kubernetes.io/name": "haproxy", "app.kubernetes.io/part-of": "sip",
    })
}

/// SIP's objects, with everything of them that anybody has seen: its Deployment for workers had the init container.
fn made_by_sip() -> [(Value, &'static str); 3] {
    let pod = json!({
        "nodeSelector": {"node-role.kubernetes.io/master": ""},
        "tolerations": [{"key": "node-role.kubernetes.io/master", "effect": "NoSchedule"}],
        "initContainers": [{"name": "init", "image": "busybox", "command": ["true"]}],
        "containers": [{
            "name": "loadbalancer", "image": "haproxy:2.3.2", "imagePullPolicy": "IfNotPresent",
            "ports": [{"name": "http", "containerPort": 6443}],
            "volumeMounts": [{
                "name": "haproxy-config", "mountPath": "/usr/local/etc/haproxy/haproxy.cfg", "subPath": "haproxy.cfg",
            }],
        }],
        "volumes": [{"name": "haproxy-config", "secret": {"secretName": NAME}}],
    });
    [
        (
            json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"haproxy.cfg": ""}}),
            "secrets",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Service", "spec": {
                "type": "NodePort", "selector": selector(),
                "ports": [{"name": "http", "port": 6443, "targetPort": 6443, "nodePort": 31_150}],
            }}),
            "services",
        ),
        (
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"labels": selector()}, "spec": {
                "replicas": 1, "selector": {"matchLabels": selector()},
                "template": {"metadata": {"labels": selector()}, "spec": pod},
            }}),
            "deployments",
        ),
    ]
}

/// Makes an object under the name by which SIP's process is known to the API server.
async fn make(stage: &Stage, namespace: &str, object: Value, plural: &str) {
    make_named(NAME, stage, namespace, object, plural).await;
}

/// The same of another load balancer.
async fn make_named(name: &str, stage: &Stage, namespace: &str, object: Value, plural: &str) {
    let mut object: Value = serde_json::from_str(&object.to_string().replace(NAME, name)).unwrap();
    object["metadata"]["name"] = json!(name);
    object["metadata"]["namespace"] = json!(namespace);
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let types = object.types.clone().unwrap();
    let kind = kube::api::GroupVersionKind::try_from(&types).unwrap();
    let resource = kube::api::ApiResource::from_gvk_with_plural(&kind, plural);
    let api: Api<DynamicObject> = Api::namespaced_with(stage.site.client(), namespace, &resource);
    let sip = PostParams {
        field_manager: Some("manager".to_owned()),
        ..PostParams::default()
    };
    api.create(&sip, &object).await.unwrap();
}

/// How many pods serve. A new pod that serves is not available yet while clients are handed over to it.
fn serving(deployment: &Deployment) -> i32 {
    let status = deployment.status.as_ref();
    status.and_then(|status| status.ready_replicas).unwrap_or(0)
}

/// Nothing that only SIP asked for is in the pods.
fn nothing_is_left(deployment: &Deployment) {
    let pod = serde_json::to_value(deployment.spec.template.spec.as_ref().unwrap()).unwrap();
    for left in ["nodeSelector", "initContainers", "tolerations"] {
        assert_eq!(pod[left], Value::Null, "{left}");
    }
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    assert!(
        mounts.iter().all(|mount| mount["subPath"].is_null()) && mounts.len() == 1,
        "{mounts:?}"
    );
}

fn is_ours(metadata: ObjectMeta) {
    let entries = metadata.managed_fields.unwrap();
    let managers: Vec<_> = entries
        .iter()
        .filter(|entry| entry.subresource.is_none())
        .map(|entry| entry.manager.clone().unwrap())
        .collect();
    assert!(!managers.contains(&"manager".to_owned()), "{managers:?}");
    assert_eq!(metadata.owner_references.unwrap()[0].name, "shop");
}

#[test]
fn a_sip_deployment_without_its_service_is_taken_over() {
    on_shared_site("half-left", async |stage| {
        for (object, plural) in made_by_sip() {
            if plural == "deployments" {
                make(stage, "half-left", object, plural).await;
            }
        }
        let shop = balanced("half-left", "shop", 31_155, &json!({"replicas": 1}));
        stage.create(&shop).await;
        stage.ready(&shop).await;

        let after = objects(stage, "half-left").deployments.get(NAME).await.unwrap();
        nothing_is_left(&after);
        is_ours(after.metadata);
    });
}

/// Airship SIP gave all entries of a kind one name, so an index is never its.
#[test]
fn what_sip_made_for_another_cluster_is_not_taken() {
    on_shared_site("of-another", async |stage| {
        const OTHERS: &str = "loadbalancer-worker-shop-1";
        for (object, plural) in made_by_sip() {
            let object = object.to_string().replace("31150", "31158");
            let object = serde_json::from_str(&object).unwrap();
            make_named(OTHERS, stage, "of-another", object, plural).await;
        }
        let of = objects(stage, "of-another");
        let before = of.services.get(OTHERS).await.unwrap();
        let entries = json!([
            workers(31_156, 31_156, &json!({})),
            workers(31_157, 31_157, &json!({}))
        ]);
        let shop = cluster("of-another", "shop")
            .role(Role::Worker, 0)
            .with("/services/loadBalancerWorker", entries);
        stage.create(&shop).await;
        let is_anothers =
            "Service of-another/loadbalancer-worker-shop-1 was made by Airship SIP for another SIPCluster";
        stage
            .condition_mentions(&shop, "LoadBalancerReady", "False", "NameConflict", is_anothers)
            .await;
        let after = of.services.get(OTHERS).await.unwrap();
        assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
    });
}

#[test]
fn sips_objects_are_taken_over_without_a_gap() {
    on_shared_site("taken-over", async |stage| {
        // SIP pins its pods to such nodes.
        stage
            .kubectl(&[
                "label",
                "nodes",
                "--all",
                "--overwrite",
                "node-role.kubernetes.io/master=",
            ])
            .await;
        for (object, plural) in made_by_sip() {
            make(stage, "taken-over", object, plural).await;
        }
        let of = objects(stage, "taken-over");
        let before = wait::until(
            of.deployments.clone(),
            NAME,
            "SIP's pod to serve",
            PATIENCE,
            |deployment| serving(deployment) == 1,
        )
        .await
        .unwrap();

        // Every state of the Deployment from here on.
        let mut fewest = i32::MAX;
        let watching = async {
            let config = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
            let mut states = pin!(watcher(of.deployments.clone(), config).applied_objects());
            while let Some(state) = states.try_next().await.unwrap() {
                fewest = fewest.min(serving(&state));
            }
        };
        let taken_over = async {
            let shop = balanced("taken-over", "shop", 31_150, &json!({"replicas": 1}));
            stage.create(&shop).await;
            stage.ready(&shop).await;
        };
        tokio::select! {
            biased;
            () = watching => panic!("the watch has ended"),
            () = taken_over => {}
        }
        assert_eq!(fewest, 1, "there was a time without a pod");

        let after = of.deployments.get(NAME).await.unwrap();
        assert_eq!(after.metadata.uid, before.metadata.uid);
        assert_eq!(after.spec.selector, before.spec.selector);
        nothing_is_left(&after);
        let service = of.services.get(NAME).await.unwrap();
        for metadata in [after.metadata, service.metadata] {
            is_ours(metadata);
        }
    });
}

/// The entry that would take it over is refused. Nobody knows which hosts its pods would read from SIP's Secret. It goes with the entry.
#[tokio::test]
async fn hosts_wait_for_a_deployment_of_sips_without_pods() {
    const SCENARIO: &str = "sips-left";
    let (mut stage, shop) = with_three_workers(SCENARIO).await;

    stage.agent(Agent::LoadBalancer).kill9().await.unwrap();
    let [_, _, (mut deployment, plural)] = made_by_sip();
    deployment["spec"]["replicas"] = json!(0);
    make_named(FIRST, &stage, SCENARIO, deployment, plural).await;
    let of = objects(&stage, SCENARIO);
    let theirs = json!({
        "metadata": {"name": "theirs"}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 31_156}]},
    });
    let theirs = serde_json::from_value(theirs).unwrap();
    of.services.create(&PostParams::default(), &theirs).await.unwrap();
    let one_edit = json!({
        "nodes": {"Worker": {"count": {"active": 2}}},
        "services": {"loadBalancerWorker": [workers(31_156, 31_156, &json!({}))]},
    });
    stage.edit(&shop, one_edit).await;
    stage.agent(Agent::LoadBalancer).restart().await.unwrap();
    stage
        .condition_is(&shop, "LoadBalancerReady", "False", "PortConflict")
        .await;
    nothing_is_given_back(&stage, SCENARIO, 3).await;

    stage
        .edit(&shop, json!({"services": {"loadBalancerWorker": null}}))
        .await;
    until_held(&stage, SCENARIO, 2).await;
    stage.ready(&shop).await;
    assert!(of.deployments.get_opt(FIRST).await.unwrap().is_none());
}
