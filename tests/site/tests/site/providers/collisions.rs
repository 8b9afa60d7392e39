//! A provider whose name is that of another cluster's: the bindings of that one stay.

use std::time::Duration;

use api::conditions::AUTH_READY;
use k8s_openapi::api::{core::v1::Secret, rbac::v1::ClusterRoleBinding};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use sandbox::site::Site;
use serde_json::json;

use super::{PATIENCE, Scene};

/// How often somebody has asked for the bindings of the tenant's cluster.
fn lists(tenant: &Site) -> usize {
    let entries = tenant.audit_log().unwrap();
    let lists = entries.iter().filter(|entry| {
        entry.verb == "list"
            && entry.request_uri.contains("/clusterrolebindings?")
            && entry.request_uri.contains("identity-provider")
    });
    lists.count()
}

#[tokio::test]
async fn an_entry_of_anothers_name_changes_no_binding_of_that_one() {
    let scene = Scene::start("collided", |_| {}).await;
    let (stage, condition) = (&scene.stage, AUTH_READY.as_str());
    let tenant = Site::builder("tenant").start().await.unwrap();
    let file = tenant
        .kubectl_ok(&["config", "view", "--raw", "--flatten"])
        .await
        .unwrap();
    scene.write_secret("kubeconfig", json!({ "value": file })).await;
    let groups = |groups| json!({"kubeconfigSecret": "kubeconfig", "groups": groups});
    let fields = groups(json!([{"group": "admins", "clusterRole": "view"}]));
    let other = Scene::cluster("shop-1", 31_750, &fields);
    stage.create(&other).await;
    let entry = &other.spec()["services"]["auth"][0];
    stage
        .condition_is(&other, condition, "False", "IssuerUnreachable")
        .await;
    let bindings = Api::<ClusterRoleBinding>::all(tenant.client());
    let found = async || {
        let ours = kube::api::ListParams::default().labels("app.kubernetes.io/part-of=sip");
        let found = bindings.list(&ours).await.unwrap().items;
        found
            .into_iter()
            .map(|binding| (binding.name_any(), binding.uid()))
            .collect::<Vec<_>>()
    };
    until(async || found().await.len() == 1).await;
    let before = found().await;

    let mut second = entry.clone();
    second["nodePort"] = json!(31_752);
    second["groups"] = json!([]);
    let shop = Scene::cluster("shop", 31_751, &json!({}));
    let first = shop.spec()["services"]["auth"][0].clone();
    let shop = shop.with("/services/auth", json!([first, second]));
    stage.create(&shop).await;
    let why = stage
        .condition_mentions(&shop, condition, "False", "NameConflict", "auth-shop-1")
        .await;
    assert!(why.contains("shop-1"), "{why}");
    let so_far = lists(&tenant);
    until(async || lists(&tenant) >= so_far + 4).await;
    assert_eq!(found().await, before);
    let deletions = tenant.audit_log().unwrap();
    let mut deletions = deletions.iter().filter(|entry| entry.verb == "delete");
    assert!(
        !deletions.any(|entry| entry.request_uri.contains("clusterrolebindings/sip-oidc")),
        "another cluster's binding was deleted for a moment"
    );
}

/// The Secret is labelled as Cluster API labels it. The author of a spec does not decide whose it is.
#[tokio::test]
async fn an_annotation_does_not_open_another_clusters_kubeconfig() {
    let scene = Scene::start("opened", |_| {}).await;
    let (stage, condition) = (&scene.stage, AUTH_READY.as_str());
    let tenant = Site::builder("tenant").start().await.unwrap();
    let file = tenant
        .kubectl_ok(&["config", "view", "--raw", "--flatten"])
        .await
        .unwrap();
    scene
        .write_secret("bank-kubeconfig", json!({ "value": file }))
        .await;
    let secrets: Api<Secret> = scene.api();
    let change = async |metadata: serde_json::Value| {
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        secrets
            .patch("bank-kubeconfig", &PatchParams::default(), &patch)
            .await
            .unwrap();
    };
    change(json!({"labels": {"cluster.x-k8s.io/cluster-name": "bank"}})).await;
    let fields = json!({
        "kubeconfigSecret": "bank-kubeconfig", "groups": [{"group": "staff", "clusterRole": "cluster-admin"}],
    });
    let shop = Scene::cluster("shop", 31_755, &fields);
    stage.create(&shop).await;
    let served = json!({"metadata": {"annotations": {"sip.airshipit.org/cluster-api-cluster": "bank"}}});
    let served = Patch::Merge(served);
    let clusters = stage.clusters(&shop.namespace);
    clusters
        .patch("shop", &PatchParams::default(), &served)
        .await
        .unwrap();
    let help = "set the annotation sip.airshipit.org/used-by: shop";
    stage
        .condition_mentions(&shop, condition, "False", "KubeconfigInvalid", help)
        .await;
    assert_eq!(lists(&tenant), 0);

    // Who may write it allows that.
    change(json!({"annotations": {"sip.airshipit.org/used-by": "shop"}})).await;
    until(async || lists(&tenant) > 0).await;
}

async fn until(is_true: impl AsyncFn() -> bool) {
    let waiting = async {
        let mut pace = tokio::time::interval(Duration::from_millis(200));
        while !is_true().await {
            pace.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap();
}
