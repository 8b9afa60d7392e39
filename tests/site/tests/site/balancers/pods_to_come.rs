//! A `ReplicaSet` without a pod may start one at any time, with the configuration of which it was made.

use k8s_openapi::api::apps::v1::ReplicaSet;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{
    releases::{FIRST, nothing_is_given_back, until_held},
    with_three_workers,
};

const SCENARIO: &str = "to-come";
const SET: &str = "loadbalancer-worker-shop-5d4f";

/// As Airship SIP's Deployment makes it.
async fn make(sets: &Api<ReplicaSet>) {
    let labels = json!({
        "app.kubernetes.io/component": "loadbalancer", "app.kubernetes.io/instance": FIRST,
        "app.kubernetes.io/name": "haproxy", "app.kubernetes.io/part-of": "sip",
    });
    let set = json!({
        "metadata": {"name": SET, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "loadbalancer", "image": "haproxy:2.3.2"}]},
            },
        },
    });
    let set = serde_json::from_value(set).unwrap();
    sets.create(&PostParams::default(), &set).await.unwrap();
}

#[tokio::test]
async fn hosts_wait_for_a_replica_set_that_has_no_pod() {
    let (mut stage, shop) = with_three_workers(SCENARIO).await;

    // Nobody makes the pod, as while a quota is used up.
    let manager = &mut stage.site.control_plane().controller_manager;
    manager.kill9().await.unwrap();
    let sets = Api::<ReplicaSet>::namespaced(stage.site.client(), SCENARIO);
    make(&sets).await;
    stage
        .edit(&shop, json!({"nodes": {"Worker": {"count": {"active": 2}}}}))
        .await;
    nothing_is_given_back(&stage, SCENARIO, 3).await;
    sets.delete(SET, &DeleteParams::default()).await.unwrap();
    until_held(&stage, SCENARIO, 2).await;
    stage.ready(&shop).await;

    // The same when nobody but the cluster agent looks for pods.
    make(&sets).await;
    stage.delete(&shop).await;
    stage.condition_is(&shop, "Scheduled", "False", "Deleting").await;
    let stripped = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    stage
        .clusters(SCENARIO)
        .patch("shop", &PatchParams::default(), &stripped)
        .await
        .unwrap();
    stage.gone(&shop).await;
    nothing_is_given_back(&stage, SCENARIO, 2).await;
    sets.delete(SET, &DeleteParams::default()).await.unwrap();
    until_held(&stage, SCENARIO, 0).await;
    stage.nothing_was_forbidden();
}
