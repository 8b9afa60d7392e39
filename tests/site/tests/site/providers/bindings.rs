//! Bindings of groups at the tenant's API server.

use api::conditions::AUTH_READY;
use k8s_openapi::api::{core::v1::Secret, rbac::v1::ClusterRoleBinding};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use sandbox::{region::Agent, site::Site, wait};
use serde_json::{Value, json};

use super::{NAMESPACE, Scene};
use crate::fixtures::{Cluster, PATIENCE, Stage, statuses_sent_by};

#[tokio::test]
async fn groups_are_bound_at_the_tenants_api_server() {
    let scene = Scene::start("bound", |_| {}).await;
    let (stage, condition) = (&scene.stage, AUTH_READY.as_str());
    let tenant = Site::builder("tenant").start().await.unwrap();
    let fields = json!({
        "kubeconfigSecret": "shop-kubeconfig", "groups": [{"group": "admins", "clusterRole": "cluster-admin"}],
    });
    let shop = Scene::cluster("shop", 31_730, &fields);
    stage.create(&shop).await;

    // The provider runs before its tenant's API server does, which needs what the provider gives.
    let why = stage
        .condition_is(&shop, condition, "False", "KubeconfigMissing")
        .await;
    assert_eq!(
        why,
        "auth-shop: kubeconfigSecret: the Secret shop-kubeconfig does not exist; \
         auth-shop: staticPasswords is set, so users outside the directories can log in"
    );
    let _dex = scene.run("auth-shop", "dex", 31_730).await;
    let file = tenant
        .kubectl_ok(&["config", "view", "--raw", "--flatten"])
        .await
        .unwrap();
    let program = file.replace(
        "client-certificate-data:",
        "exec: {command: /bin/sh, apiVersion: v1}\n    x:",
    );
    scene
        .write_secret("shop-kubeconfig", json!({ "value": program }))
        .await;
    let why = stage
        .condition_is(&shop, condition, "False", "KubeconfigInvalid")
        .await;
    assert!(why.contains("exec: must not be set"), "{why}");
    scene
        .write_secret("shop-kubeconfig", json!({ "value": file }))
        .await;
    stage
        .condition_is(&shop, condition, "True", "StaticPasswords")
        .await;
    let ours = ListParams::default().labels("sip.airshipit.org/identity-provider");
    let bindings = Api::<ClusterRoleBinding>::all(tenant.client());
    let bound = bindings.list(&ours).await.unwrap().items;
    assert_eq!(bound.len(), 1);
    assert_eq!(bound[0].role_ref.name, "cluster-admin");
    assert_eq!(bound[0].subjects.as_ref().unwrap()[0].name, "oidc:admins");

    let name = bound[0].name_any();
    a_group_is_unbound_before_the_issuer_is_known(&scene, &shop, &bindings, &name).await;
    a_group_is_unbound_though_the_deployment_is_refused(&scene, &shop, &bindings, &name).await;

    // What is no longer in the spec is deleted, also while the provider cannot be prepared.
    scene
        .api::<Secret>()
        .delete("users", &DeleteParams::default())
        .await
        .unwrap();
    let mut entry = shop.spec()["services"]["auth"][0].clone();
    entry["groups"] = json!([]);
    stage.edit(&shop, json!({"services": {"auth": [entry]}})).await;
    let why = stage
        .condition_is(&shop, condition, "False", "SecretMissing")
        .await;
    assert!(why.contains("so its users cannot log in"), "{why}");
    wait::until_gone(bindings, &name, PATIENCE).await.unwrap();
    // Nor does the provider let in whom the file named.
    let what = "a configuration without users";
    wait::until(scene.api(), "auth-shop", what, PATIENCE, |secret: &Secret| {
        let config = secret.data.as_ref().and_then(|data| data.get("dex.json"));
        config.is_some_and(|config| !String::from_utf8_lossy(&config.0).contains("ada@example.org"))
    })
    .await
    .unwrap();
    stage.nothing_was_forbidden();
}

/// What runs the provider is not valid. The tenant's own edit takes the rights away nonetheless.
async fn a_group_is_unbound_though_the_deployment_is_refused(
    scene: &Scene,
    shop: &Cluster,
    bindings: &Api<ClusterRoleBinding>,
    name: &str,
) {
    let (stage, condition) = (&scene.stage, AUTH_READY.as_str());
    let mut entry = shop.spec()["services"]["auth"][0].clone();
    entry["resources"] = json!({"requests": {"memory": "1Gi"}, "limits": {"memory": "512Mi"}});
    entry["groups"] = json!([]);
    stage.edit(shop, json!({"services": {"auth": [entry]}})).await;
    let why = stage.condition_is(shop, condition, "False", "Refused").await;
    assert!(why.ends_with("users outside the directories can log in"), "{why}");
    wait::until_gone(bindings.clone(), name, PATIENCE).await.unwrap();
    let entry = shop.spec()["services"]["auth"][0].clone();
    stage.edit(shop, json!({"services": {"auth": [entry]}})).await;
    stage
        .condition_is(shop, condition, "True", "StaticPasswords")
        .await;
    assert!(bindings.get_opt(name).await.unwrap().is_some());
}

#[tokio::test]
async fn without_the_scheduler_providers_are_checked_and_rights_end() {
    let mut scene = Scene::start("unscheduled", |_| {}).await;
    let condition = AUTH_READY.as_str();
    let tenant = Site::builder("tenant").start().await.unwrap();
    let file = tenant
        .kubectl_ok(&["config", "view", "--raw", "--flatten"])
        .await
        .unwrap();
    scene.write_secret("kubeconfig", json!({ "value": file })).await;
    let port = 31_734;
    let fields =
        json!({"kubeconfigSecret": "kubeconfig", "groups": [{"group": "admins", "clusterRole": "view"}]});
    let shop = Scene::cluster("shop", port, &fields);
    scene.stage.create(&shop).await;
    scene
        .stage
        .condition_is(&shop, condition, "False", "IssuerUnreachable")
        .await;
    let dex = scene.run("auth-shop", "dex", port).await;
    scene
        .stage
        .condition_is(&shop, condition, "True", "StaticPasswords")
        .await;
    let bindings = Api::<ClusterRoleBinding>::all(tenant.client());
    let ours = ListParams::default().labels("sip.airshipit.org/identity-provider");
    let bound = bindings.list(&ours).await.unwrap().items;
    assert_eq!(bound.len(), 1);

    scene.stage.region_mut().scheduler().kill9().await.unwrap();
    let mut entry = shop.spec()["services"]["auth"][0].clone();
    entry["groups"] = json!([]);
    scene
        .stage
        .edit(&shop, json!({"services": {"auth": [entry]}}))
        .await;
    wait::until_gone(bindings, &bound[0].name_any(), PATIENCE)
        .await
        .unwrap();
    drop(dex);
    scene
        .stage
        .condition_is(&shop, condition, "False", "IssuerUnreachable")
        .await;
}

/// The site has no load balancer that would give the Service an address: the provider is not applied, and the rights of its groups are.
async fn a_group_is_unbound_before_the_issuer_is_known(
    scene: &Scene,
    shop: &Cluster,
    bindings: &Api<ClusterRoleBinding>,
    name: &str,
) {
    let (stage, condition) = (&scene.stage, AUTH_READY.as_str());
    let mut entry = shop.spec()["services"]["auth"][0].clone();
    entry["clusterIP"] = Value::Null;
    entry["override"] = json!({"service": {"spec": {"type": "LoadBalancer"}}});
    entry["groups"] = json!([]);
    stage.edit(shop, json!({"services": {"auth": [entry]}})).await;
    stage.condition_is(shop, condition, "False", "Progressing").await;
    wait::until_gone(bindings.clone(), name, PATIENCE).await.unwrap();
    let entry = shop.spec()["services"]["auth"][0].clone();
    stage.edit(shop, json!({"services": {"auth": [entry]}})).await;
    stage
        .condition_is(shop, condition, "True", "StaticPasswords")
        .await;
    assert!(bindings.get_opt(name).await.unwrap().is_some());
}

#[tokio::test]
async fn groups_are_bound_before_the_entry_is_ready() {
    let scene = Scene::start("ready-late", |_| {}).await;
    let (stage, condition) = (&scene.stage, AUTH_READY.as_str());
    let port = 31_732;
    let shop = Scene::cluster("shop", port, &json!({}));
    stage.create(&shop).await;
    stage
        .condition_is(&shop, condition, "False", "IssuerUnreachable")
        .await;
    let _dex = scene.run("auth-shop", "dex", port).await;
    stage
        .condition_is(&shop, condition, "True", "StaticPasswords")
        .await;

    // The pods stay as they are, and the groups cannot be bound: nobody listens there.
    let kubeconfig = stage
        .site
        .kubectl_ok(&["config", "view", "--raw", "--flatten"])
        .await
        .unwrap();
    let kubeconfig = kubeconfig.replace(stage.site.server(), "https://127.0.0.1:1");
    scene
        .write_secret("shop-kubeconfig", json!({ "value": kubeconfig }))
        .await;
    let mut entry = shop.spec()["services"]["auth"][0].clone();
    entry["groups"] = json!([{"group": "admins", "clusterRole": "view"}]);
    entry["kubeconfigSecret"] = json!("shop-kubeconfig");
    stage.edit(&shop, json!({"services": {"auth": [entry]}})).await;
    stage
        .condition_is(&shop, condition, "False", "TenantUnreachable")
        .await;
    never_true(stage, &shop).await;

    // The Secret comes later than the edit.
    entry["kubeconfigSecret"] = json!("to-come");
    stage.edit(&shop, json!({"services": {"auth": [entry]}})).await;
    stage
        .condition_is(&shop, condition, "False", "KubeconfigMissing")
        .await;
    scene
        .write_secret("to-come", json!({ "value": kubeconfig }))
        .await;
    stage
        .condition_is(&shop, condition, "False", "TenantUnreachable")
        .await;
    never_true(stage, &shop).await;
}

/// No status of the spec as it is now was ever True.
async fn never_true(stage: &Stage, shop: &Cluster) {
    let object = stage.clusters(NAMESPACE).get("shop").await.unwrap();
    let generation = object.metadata.generation.unwrap();
    let written = statuses_sent_by(Agent::Dex, stage, shop);
    let conditions = written.iter().filter_map(|entry| {
        let conditions = entry.request_object.pointer("/status/conditions")?;
        conditions.as_array()
    });
    let of_this: Vec<_> = conditions
        .flatten()
        .filter(|found| found["type"] == AUTH_READY.as_str() && found["observedGeneration"] == generation)
        .collect();
    assert!(!of_this.is_empty());
    assert!(
        of_this.iter().all(|found| found["status"] == "False"),
        "{of_this:#?}"
    );
}
