//! Which kubeconfigs the agent records, and what it does by the record alone.

use api::conditions::AUTH_READY;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams};
use sandbox::site::Site;
use serde_json::{Value, json};

use super::{
    Scene,
    former_kubeconfigs::{
        REMAIN, bound, bound_by_first, forget, kubeconfig, name, recorded, two_tenants, until_bound,
    },
};

fn groups() -> Value {
    json!([
        {"group": "admins", "clusterRole": "view"}, {"group": "devs", "namespace": "default", "role": "edit"},
    ])
}

/// Behind one host and port there may be several clusters.
#[tokio::test]
async fn a_server_at_the_same_place_is_another_one() {
    let scene = Scene::start("same-place", |_| {}).await;
    let (stage, condition) = (&scene.stage, AUTH_READY.as_str());
    let tenant = Site::builder("tenant").start().await.unwrap();
    let first = kubeconfig(&tenant).await;
    let named = first.replace("    server:", "    tls-server-name: localhost\n    server:");
    assert_ne!(first, named);
    for (name, file) in [("first", &first), ("named", &named)] {
        scene.write_secret(name, json!({ "value": file })).await;
    }
    let (shop, _dex) = bound_by_first(&scene, 31_738, &groups()).await;
    let is_ready = || stage.condition_is(&shop, condition, "True", "StaticPasswords");
    is_ready().await;
    let secrets = scene.api::<Secret>();
    secrets.delete("first", &DeleteParams::default()).await.unwrap();
    name(&scene, &shop, Some("named"), &groups()).await;
    let why = stage
        .condition_is(&shop, condition, "True", "BindingsRemain")
        .await;
    assert!(
        why.contains(&format!("kubeconfigSecret was first before, {REMAIN}")),
        "{why}"
    );
    recorded(&scene, &["named", "first"]).await;
    // A name is no pattern.
    forget(stage, "n.med").await;
    recorded(&scene, &["named", "first"]).await;
    forget(stage, "first").await;
    recorded(&scene, &["named"]).await;
    is_ready().await;
}

#[tokio::test]
async fn without_groups_no_kubeconfig_is_recorded() {
    let scene = Scene::start("no-groups", |_| {}).await;
    let (stage, condition) = (&scene.stage, AUTH_READY.as_str());
    let (one, two) = two_tenants(&scene).await;
    let port = 31_739;
    let shop = Scene::cluster("shop", port, &json!({"kubeconfigSecret": "first", "groups": []}));
    stage.create(&shop).await;
    stage
        .condition_is(&shop, condition, "False", "IssuerUnreachable")
        .await;
    let _dex = scene.run("auth-shop", "dex", port).await;
    let is_ready = || stage.condition_is(&shop, condition, "True", "StaticPasswords");
    is_ready().await;
    let secrets = scene.api::<Secret>();
    secrets.delete("first", &DeleteParams::default()).await.unwrap();
    name(&scene, &shop, Some("second"), &json!([])).await;
    is_ready().await;
    recorded(&scene, &[]).await;

    // From the first group on it is.
    name(&scene, &shop, Some("second"), &groups()).await;
    recorded(&scene, &["second"]).await;
    until_bound(&two, 2).await;
    is_ready().await;
    assert_eq!(bound(&one).await, []);
}

/// What the new kubeconfig leads to does not answer, then nothing can be recorded, and the agent begins anew.
#[tokio::test]
async fn former_bindings_go_whatever_else_fails() {
    let mut scene = Scene::start("whatever", |_| {}).await;
    let condition = AUTH_READY.as_str();
    let tenant = Site::builder("tenant").start().await.unwrap();
    let file = kubeconfig(&tenant).await;
    let away = file.replace(tenant.server(), "https://127.0.0.1:1");
    for (name, file) in [("first", &file), ("away", &away)] {
        scene.write_secret(name, json!({ "value": file })).await;
    }
    let (shop, _dex) = bound_by_first(&scene, 31_742, &groups()).await;
    scene
        .stage
        .condition_is(&shop, condition, "True", "StaticPasswords")
        .await;

    // Those that groups still has may be in use at the new one.
    name(&scene, &shop, Some("away"), &json!([groups()[0]])).await;
    until_bound(&tenant, 1).await;
    let unknown = format!("{REMAIN}comparing with the bindings that are in use now: ");
    scene
        .stage
        .condition_mentions(&shop, condition, "False", "TenantUnreachable", &unknown)
        .await;

    scene.agent.process().kill9().await.unwrap();
    let filled = json!({"data": {"more": "QUFB".repeat(100_000)}});
    let secrets = scene.api::<Secret>();
    secrets
        .patch("auth-shop.keys", &PatchParams::default(), &Patch::Merge(filled))
        .await
        .unwrap();
    name(&scene, &shop, None, &groups()).await;
    scene.agent.process().restart().await.unwrap();
    scene
        .stage
        .condition_mentions(
            &shop,
            condition,
            "False",
            "SecretInvalid",
            "remove what was added",
        )
        .await;
    until_bound(&tenant, 0).await;
}
