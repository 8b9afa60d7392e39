//! What a spec drops while the scheduler does not answer: an entry goes at once where nothing takes its place, and otherwise stays until
//! what takes its place can be made.

use k8s_openapi::api::core::v1::Service;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use sandbox::{inventory::NETWORK, wait};
use serde_json::{Value, json};

use super::{
    objects,
    releases::{FIRST, PAUSE, SECOND, STAYS, behind},
    removal::keep,
    workers,
};
use crate::fixtures::{AGENTS, Cluster, PATIENCE, Role, Stage, applied, cluster, fleet, remove_policy};

/// A spec of more than a certain size waits for the scheduler as a whole; this makes it so.
async fn enlarge(stage: &Stage, cluster: &Cluster) {
    let note = json!({"metadata": {"annotations": {"example.org/note": "x".repeat(250 << 10)}}});
    stage
        .clusters(&cluster.namespace)
        .patch(&cluster.name, &PatchParams::default(), &Patch::Merge(note))
        .await
        .unwrap();
}

/// The load balancers that the status names as applied.
fn names_applied(object: &kube::api::DynamicObject) -> Vec<String> {
    applied(object)
        .into_iter()
        .map(|applied| applied.service)
        .collect()
}

/// A stage with a ready cluster in each of these namespaces, the second one too large to be applied without the scheduler.
async fn placed(name: &str, clusters: &[&Cluster; 2]) -> Stage {
    let stage = Stage::start(name, &AGENTS).await;
    for of in clusters {
        stage.site.create_tenant_namespace(&of.namespace).await.unwrap();
        stage.load(&fleet(&of.namespace, 3, 1, 1)).await;
        stage.create(of).await;
    }
    enlarge(&stage, clusters[1]).await;
    for of in clusters {
        stage.ready(of).await;
    }
    stage
}

const API: &str = "loadbalancer-controlplane-shop";

fn api_entry(port: u16, name: Option<&str>) -> Value {
    json!([{"image": "haproxy:2.8", "nodeInterfaceId": NETWORK, "nodePort": port, "name": name}])
}

#[tokio::test]
async fn a_renamed_entry_stays_until_the_scheduler_answers() {
    let of = |scenario, port| {
        cluster(scenario, "shop")
            .role(Role::ControlPlane, 1)
            .role(Role::Worker, 1)
            .balanced(port)
    };
    let (small, large) = (of("renamed", 31_350), of("renamed-large", 31_355));
    let mut stage = placed("renamed", &[&small, &large]).await;
    let services = |of: &Cluster| -> Api<Service> { objects(&stage, &of.namespace).services };
    let (old_small, old_large) = (services(&small), services(&large));
    let mut before = Vec::new();
    for services in [&old_small, &old_large] {
        before.push(services.get(API).await.unwrap().uid());
    }

    stage.region_mut().scheduler().kill9().await.unwrap();
    for (of, port) in [(&small, 31_350), (&large, 31_355)] {
        let edit = json!({"services": {
            "loadBalancerControlPlane": api_entry(port, Some("api")), "loadBalancerWorker": null,
        }});
        stage.edit(of, edit).await;
    }
    for services in [&old_small, &old_large] {
        // Nothing takes its place.
        wait::until_gone(services.clone(), FIRST, PATIENCE).await.unwrap();
    }
    let until = tokio::time::Instant::now() + STAYS;
    while tokio::time::Instant::now() < until {
        for (services, before) in [&old_small, &old_large].into_iter().zip(&before) {
            let service = services.get_opt(API).await.unwrap();
            let uid = service.and_then(|service| service.uid());
            assert_eq!(uid, *before, "it is deleted, and nothing is made");
        }
        tokio::time::sleep(PAUSE).await;
    }
    for of in [&small, &large] {
        let objects = objects(&stage, &of.namespace);
        assert!(objects.deployments.get_opt(API).await.unwrap().is_some());
        stage.haproxy_config(of, "controlplane").await;
        let stays = format!("this stays: {API}");
        stage
            .condition_mentions(of, "LoadBalancerReady", "False", "Progressing", &stays)
            .await;
    }
    stage
        .until(&large, "name only what is left", |object| {
            names_applied(object) == [API]
        })
        .await;

    stage.region_mut().scheduler().restart().await.unwrap();
    for (of, services) in [(&small, &old_small), (&large, &old_large)] {
        wait::until_gone(services.clone(), API, PATIENCE).await.unwrap();
        let ready = stage.ready(of).await;
        assert_eq!(names_applied(&ready), [format!("{API}-api")]);
        services.get(&format!("{API}-api")).await.unwrap();
    }
}

#[tokio::test]
async fn a_refused_deletion_is_reported_without_scheduler() {
    let (small, large) = (
        behind("kept-away", &[31_360, 31_361]),
        behind("kept-away-large", &[31_362, 31_363]),
    );
    let mut stage = placed("kept-away", &[&small, &large]).await;
    let mut policies = Vec::new();
    for of in [&small, &large] {
        policies.push(keep(&stage, &of.namespace, "services", SECOND).await);
    }

    stage.region_mut().scheduler().kill9().await.unwrap();
    for (of, port) in [(&small, 31_360), (&large, 31_362)] {
        let one = json!([workers(port, port, &json!({}))]);
        stage
            .edit(of, json!({"services": {"loadBalancerWorker": one}}))
            .await;
        let why = stage
            .condition_is(of, "LoadBalancerReady", "False", "Refused")
            .await;
        assert!(why.contains(SECOND) && why.contains("kept until Monday"), "{why}");
        let object = stage.clusters(&of.namespace).get("shop").await.unwrap();
        assert_eq!(names_applied(&object), [FIRST, SECOND]);
        let endpoints = object.data["status"]["endpoints"].as_array().unwrap();
        assert_eq!(endpoints.len(), 2);
    }

    for (of, policy) in [&small, &large].into_iter().zip(&policies) {
        remove_policy(&stage.site, policy).await;
        let services = objects(&stage, &of.namespace).services;
        wait::until_gone(services, SECOND, PATIENCE).await.unwrap();
    }
    // It is not refused any more.
    stage
        .condition_is(&small, "LoadBalancerReady", "False", "Progressing")
        .await;
    stage
        .condition_mentions(&large, "LoadBalancerReady", "False", "Progressing", "the size")
        .await;
    stage
        .until(&large, "name only what is left", |object| {
            names_applied(object) == [FIRST]
        })
        .await;
    stage.region_mut().scheduler().restart().await.unwrap();
    for of in [&small, &large] {
        let ready = stage.ready(of).await;
        assert_eq!(names_applied(&ready), [FIRST]);
    }
}
