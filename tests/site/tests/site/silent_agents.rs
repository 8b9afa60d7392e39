//! Agents that do not answer a section of the spec, and when that is said.

use kube::api::{Patch, PatchParams};
use sandbox::{region::Agent, wait};
use serde_json::{Value, json};

use crate::fixtures::{Cluster, Role, Stage, cluster, host};

/// Sets every time by which the cluster agent counts back by years.
async fn age(stage: &Stage, cluster: &Cluster) {
    let clusters = stage.clusters(&cluster.namespace);
    let long_ago = json!("2020-01-01T00:00:00Z");
    let object = clusters.get(&cluster.name).await.unwrap();
    let mut status = json!({"conditions": object.data["status"]["conditions"], "observedSince": long_ago});
    for condition in status["conditions"].as_array_mut().unwrap() {
        condition["lastTransitionTime"] = long_ago.clone();
    }
    let patch = Patch::Merge(json!({ "status": status }));
    clusters
        .patch_status(&cluster.name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

#[tokio::test]
async fn silence_counts_from_the_generation_that_is_asked() {
    let stage = Stage::start("site-a", &[Agent::Cluster]).await;
    stage.site.create_tenant_namespace("silent").await.unwrap();
    stage.load(&[host("silent", "cp", "r1", "only")]).await;
    let shop = cluster("silent", "shop")
        .role(Role::ControlPlane, 1)
        .balanced(30_410);
    stage.create(&shop).await;
    stage.says(&shop, "Ready", "False", "Progressing").await;

    // Nobody has answered this generation for years.
    age(&stage, &shop).await;
    let why = stage.says(&shop, "Ready", "False", "InfraServiceFailure").await;
    assert!(why.contains("NoAgent"), "{why}");

    // And nobody has been asked for the next one before it was there.
    stage
        .edit(
            &shop,
            json!({"nodes": {"ControlPlane": {"topologyKey": "kubernetes.io/hostname"}}}),
        )
        .await;
    let edited = stage.until(&shop, "say how the next generation stands", |object| {
        let ready = object
            .data
            .pointer("/status/conditions")
            .and_then(Value::as_array);
        ready.into_iter().flatten().any(|condition| {
            condition["type"] == "Ready" && condition["observedGeneration"].as_i64() == Some(2)
        })
    });
    let edited = edited.await;
    let (_, reason, message) = wait::condition(&edited, "Ready").unwrap();
    assert!(!message.contains("NoAgent"), "{reason}: {message}");
}
