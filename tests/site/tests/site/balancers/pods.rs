//! The pods: how many, where, with what, and what guards them.

use api::annotations::CONFIG_HASH;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{ResourceExt as _, runtime::watcher::Config};
use sandbox::{inventory::NETWORK, region::Agent, wait};
use serde_json::{Value, json};

use super::{balanced, change, objects};
use crate::fixtures::{
    AGENTS, PATIENCE, Role, Stage, cluster, fleet, members, newest_revision, on_shared_site, statuses_sent_by,
};

const NAME: &str = "loadbalancer-controlplane-shop";

#[tokio::test]
async fn pods_that_lack_the_placement_are_not_ready() {
    const SCENARIO: &str = "unplaced";
    let mut stage = Stage::start(SCENARIO, &AGENTS).await;
    stage.site.create_tenant_namespace(SCENARIO).await.unwrap();
    stage.load(&fleet(SCENARIO, 2, 0, 1)).await;
    let entry = json!({
        "image": "haproxy:2.8", "nodeInterfaceId": NETWORK, "nodePortRange": {"start": 31_000, "end": 31_000},
    });
    let shop = cluster(SCENARIO, "shop")
        .role(Role::Worker, 1)
        .with("/services/loadBalancerWorker", json!([entry]));
    stage.create(&shop).await;
    stage.ready(&shop).await;

    // The new spec has the old placement for a while.
    stage.agent(Agent::Cluster).pause().unwrap();
    stage
        .edit(&shop, json!({"nodes": {"Worker": {"count": {"active": 2}}}}))
        .await;
    stage
        .condition_is(&shop, "LoadBalancerReady", "True", "Available")
        .await;
    stage.agent(Agent::Cluster).resume().unwrap();
    let placed = stage
        .until(&shop, "be Ready with two hosts", |object| {
            members(object).len() == 2 && wait::is_true(object, "Ready")
        })
        .await;

    let newest = newest_revision(&placed).unwrap();
    let sent = statuses_sent_by(Agent::LoadBalancer, &stage, &shop);
    let first = sent
        .iter()
        .map(|entry| &entry.request_object["status"])
        .find(|status| status["applied"][0]["revision"] == newest)
        .unwrap();
    assert_eq!(first["conditions"][0]["status"], "False", "{first}");
    assert_eq!(first["conditions"][0]["reason"], "Progressing", "{first}");
}

#[test]
fn a_budget_exists_with_more_than_one_replica() {
    on_shared_site("scaled", async |stage| {
        let scaled = |replicas: i32| json!({"replicas": replicas});
        let shop = balanced("scaled", "shop", 31_100, &scaled(1));
        let of = objects(stage, "scaled");
        stage.create(&shop).await;
        for (replicas, budget) in [(1, false), (3, true), (1, false), (0, false), (2, true)] {
            stage
                .edit(&shop, change("scaled", "shop", 31_100, &scaled(replicas)))
                .await;
            stage.ready(&shop).await;
            let deployment = of.deployments.get(NAME).await.unwrap();
            assert_eq!(deployment.spec.replicas, Some(replicas));
            let available = deployment.status.unwrap().available_replicas;
            assert_eq!(available.unwrap_or(0), replicas);
            let found = of.budgets.get_opt(NAME).await.unwrap();
            assert_eq!(found.is_some(), budget, "with {replicas} pods");
        }
        let allowed = wait::until(
            of.budgets.clone(),
            NAME,
            "its budget to be counted",
            PATIENCE,
            |budget| {
                budget
                    .status
                    .as_ref()
                    .is_some_and(|status| status.expected_pods == Some(2))
            },
        )
        .await
        .unwrap();
        assert_eq!(allowed.status.unwrap().disruptions_allowed, Some(1));

        stage
            .edit(&shop, json!({"services": {"loadBalancerControlPlane": null}}))
            .await;
        stage.ready(&shop).await;
        wait::until_gone(of.services, NAME, PATIENCE).await.unwrap();
        wait::until_gone(of.deployments, NAME, PATIENCE).await.unwrap();
        wait::until_gone(of.budgets, NAME, PATIENCE).await.unwrap();
        wait::until_gone(of.policies, NAME, PATIENCE).await.unwrap();
    });
}

#[test]
fn node_labels_and_resources_are_set_changed_and_cleared() {
    on_shared_site("selected", async |stage| {
        let of = objects(stage, "selected");
        let shop = balanced("selected", "shop", 31_101, &json!({}));
        stage.create(&shop).await;
        let linux = json!({"kubernetes.io/os": "linux"});
        let both = json!({"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"});
        let own = json!({"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}});
        let small = json!({"limits": {"cpu": 1, "memory": "128Mi"}});
        // The API server asks for what is allowed.
        let served = json!({"limits": {"cpu": "1", "memory": "128Mi"}});
        for (labels, resources, selector, expected) in [
            (Value::Null, Value::Null, Value::Null, &own),
            (linux.clone(), small, linux, &served),
            (both.clone(), Value::Null, both, &own),
            (Value::Null, Value::Null, Value::Null, &own),
        ] {
            let fields = json!({"nodeLabels": labels, "resources": resources});
            stage
                .edit(&shop, change("selected", "shop", 31_101, &fields))
                .await;
            stage.ready(&shop).await;
            let deployment = of.deployments.get(NAME).await.unwrap();
            let pod = serde_json::to_value(deployment.spec.template.spec).unwrap();
            assert_eq!(pod["nodeSelector"], selector);
            assert_eq!(pod["containers"][0]["resources"], *expected);
        }
    });
}

#[test]
fn pods_are_restricted_replaced_one_by_one_and_drained() {
    on_shared_site("restricted", async |stage| {
        stage
            .kubectl(&[
                "label",
                "namespace",
                "restricted",
                "pod-security.kubernetes.io/enforce=restricted",
            ])
            .await;
        let of = objects(stage, "restricted");
        let shop = balanced("restricted", "shop", 31_102, &json!({}));
        stage.create(&shop).await;
        // The API server refuses pods that are not restricted there, so these are.
        stage.ready(&shop).await;
        let deployment = of.deployments.get(NAME).await.unwrap();
        let spec = serde_json::to_value(&deployment.spec).unwrap();
        assert_eq!(
            spec["strategy"]["rollingUpdate"],
            json!({"maxSurge": 1, "maxUnavailable": 0})
        );
        let pod = &spec["template"]["spec"];
        let drain = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"].as_i64();
        let grace = pod["terminationGracePeriodSeconds"].as_i64();
        assert!(drain > Some(0) && grace > drain, "{drain:?} {grace:?}");
        let policy = of.policies.get(NAME).await.unwrap();
        assert_eq!(policy.owner_references()[0].name, "shop");

        // A pod may have started with the text in between, so the one that comes back is another one. One that stays is the same.
        let mut made_for = vec![hash(&deployment)];
        for fields in [
            json!({"replicas": 1}),
            json!({"balance": "leastconn"}),
            json!({"balance": null}),
        ] {
            stage
                .edit(&shop, change("restricted", "shop", 31_102, &fields))
                .await;
            stage.ready(&shop).await;
            made_for.push(hash(&of.deployments.get(NAME).await.unwrap()));
        }
        let [first, scaled, second, again] = &made_for[..] else {
            panic!("{made_for:?}")
        };
        assert_eq!(first, scaled);
        assert!(second != first && again != first, "{made_for:?}");
        let text = |hash: &str| hash.split('.').next().map(str::to_owned);
        assert_eq!(text(again), text(first));
    });
}

/// What the pods of a Deployment are made for.
fn hash(deployment: &Deployment) -> String {
    let template = deployment.spec.template.metadata.clone().unwrap();
    template.annotations.unwrap()[CONFIG_HASH].clone()
}

#[test]
fn pod_troubles_are_reported_in_the_kubelets_words() {
    on_shared_site("pulled", async |stage| {
        let of = objects(stage, "pulled");
        // On no node, so that nobody but the test says how the pods are.
        let nowhere = json!({"nodeLabels": {"example.org/nowhere": "x"}, "image": "haproxy:0"});
        let shop = balanced("pulled", "shop", 31_103, &nowhere);
        stage.create(&shop).await;
        let why = stage
            .condition_mentions(&shop, "LoadBalancerReady", "False", "Progressing", "0 of 2 pods")
            .await;
        assert!(why.contains(NAME), "{why}");
        wait::until_all(of.pods.clone(), Config::default(), "two pods", PATIENCE, |pods| {
            pods.len() == 2
        })
        .await
        .unwrap();
        for (waits, reason) in [
            ("ImagePullBackOff", "ImagePull"),
            ("CrashLoopBackOff", "PodsFail"),
        ] {
            let container = json!({
                "name": "loadbalancer", "image": "haproxy:0", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": waits, "message": "it says why"}},
            });
            of.play(NAME, &json!({"containerStatuses": [container]})).await;
            let why = stage
                .condition_is(&shop, "LoadBalancerReady", "False", reason)
                .await;
            assert!(
                why.contains("image haproxy:0") && why.contains("it says why"),
                "{why}"
            );
            stage.event(&shop, reason, "it says why").await;
            stage
                .condition_is(&shop, "Ready", "False", "InfraServiceFailure")
                .await;
        }
        stage
            .edit(
                &shop,
                change("pulled", "shop", 31_103, &json!({"nodeLabels": null})),
            )
            .await;
        stage.ready(&shop).await;
    });
}
