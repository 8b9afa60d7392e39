//! Several providers of one cluster: each keeps its CA, its keys and its part of the storage, whatever happens to the others' entries.

use std::collections::BTreeMap;

use api::conditions::AUTH_READY;
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::{Api, api::DynamicObject};
use sandbox::wait;
use serde_json::{Value, json};

use super::{BIND_PASSWORD, Scene};
use crate::fixtures::PATIENCE;

/// What people and API servers trust, and where keys and tokens are, by port.
async fn trust_and_storage(scene: &Scene, object: &DynamicObject) -> BTreeMap<u16, (Value, Value)> {
    let secrets: Api<Secret> = scene.api();
    let mut by_port = BTreeMap::new();
    for endpoint in object.data["status"]["endpoints"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let name = endpoint["name"].as_str().unwrap();
        let files = secrets.get(name).await.unwrap().data.unwrap();
        let config: Value = serde_json::from_slice(&files["dex.json"].0).unwrap();
        let part = config["storage"]["config"]["namespace"].clone();
        by_port.insert(port(endpoint).unwrap(), (endpoint["caBundle"].clone(), part));
    }
    by_port
}

fn port(endpoint: &Value) -> Option<u16> {
    endpoint["port"]
        .as_u64()
        .and_then(|port| u16::try_from(port).ok())
}

fn ports(object: &DynamicObject) -> Vec<u16> {
    let endpoints = object.data["status"]["endpoints"].as_array();
    let ports = endpoints.into_iter().flatten();
    let mut ports: Vec<_> = ports.filter_map(port).collect();
    ports.sort_unstable();
    ports
}

#[tokio::test]
async fn a_provider_keeps_its_keys_when_another_is_removed() {
    let scene = Scene::start().await;
    let stage = &scene.stage;
    scene.set_bind_password(BIND_PASSWORD).await;
    let entry = |port: u16| scene.cluster("shop", port).spec()["services"]["auth"][0].clone();
    let (first, second) = (31_680, 31_681);
    let shop = scene
        .cluster("shop", first)
        .with("/services/auth", json!([entry(first), entry(second)]));
    stage.create(&shop).await;
    let object = stage
        .until(&shop, "have two providers", |object| {
            ports(object) == [first, second]
        })
        .await;
    let before = trust_and_storage(&scene, &object).await;
    assert_ne!(before[&first].0, before[&second].0);
    assert_ne!(before[&first].1, before[&second].1);

    let swapped = json!({"services": {"auth": [entry(second), entry(first)]}});
    stage.edit(&shop, swapped).await;
    stage
        .condition_is(&shop, AUTH_READY.as_str(), "False", "IssuerUnreachable")
        .await;
    let object = stage.clusters(&shop.namespace).get("shop").await.unwrap();
    assert_eq!(
        trust_and_storage(&scene, &object).await,
        before,
        "swapped entries lock nothing"
    );

    let removed = json!({"services": {"auth": [entry(second)]}});
    stage.edit(&shop, removed).await;
    wait::until_gone(scene.api::<Service>(), "auth-shop", PATIENCE)
        .await
        .unwrap();
    let object = stage
        .until(&shop, "have one provider", |object| ports(object) == [second])
        .await;
    let after = trust_and_storage(&scene, &object).await;
    assert_eq!(after[&second], before[&second]);
}
