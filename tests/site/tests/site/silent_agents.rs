//! Agents that do not answer a section of the spec, and when that is said.

use kube::api::{Patch, PatchParams};
use sandbox::{proxy::Proxy, region::Agent, wait};
use serde_json::{Value, json};

use crate::fixtures::{Cluster, PATIENCE, Role, Stage, cluster, host, set_consumer};

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
async fn silence_counts_from_the_requested_generation() {
    let stage = Stage::start("site-a", &[Agent::Cluster]).await;
    stage.site.create_tenant_namespace("silent").await.unwrap();
    stage.load(&[host("silent", "cp", "r1", "only")]).await;
    let shop = cluster("silent", "shop")
        .role(Role::ControlPlane, 1)
        .balanced(30_410);
    stage.create(&shop).await;
    stage.condition_is(&shop, "Ready", "False", "Progressing").await;

    // Nobody has answered this generation for years.
    age(&stage, &shop).await;
    let why = stage
        .condition_is(&shop, "Ready", "False", "InfraServiceFailure")
        .await;
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

/// Only this agent's calls fail: it runs, and says so.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_scheduler_names_the_scheduler() {
    let mut stage = Stage::start("unanswered", &[Agent::Cluster]).await;
    let way = Proxy::to(stage.region_mut().address()).await.unwrap();
    let by = format!("https://{}", way.address());
    stage
        .start_agent_where(Agent::LoadBalancer, |config| *config = config.clone().by(by))
        .await;
    stage.agents_are_ready().await;
    stage.site.create_tenant_namespace("unanswered").await.unwrap();
    stage.load(&[host("unanswered", "cp", "r1", "only")]).await;
    let shop = cluster("unanswered", "shop")
        .role(Role::ControlPlane, 1)
        .balanced(30_412);
    stage.create(&shop).await;
    stage.ready(&shop).await;
    way.cut(true);
    stage
        .edit(
            &shop,
            json!({"nodes": {"ControlPlane": {"topologyKey": "kubernetes.io/hostname"}}}),
        )
        .await;
    let told = stage.until(&shop, "name the scheduler", |object| {
        let conditions = object.data.pointer("/status/conditions");
        let conditions = conditions.and_then(Value::as_array).into_iter().flatten();
        conditions.into_iter().any(|condition| {
            condition["type"] == "LoadBalancerReady"
                && condition["observedGeneration"].as_i64() == Some(2)
                && condition["reason"] == "Progressing"
                && condition["message"]
                    .as_str()
                    .is_some_and(|message| message.contains("scheduler"))
        })
    });
    told.await;
    way.cut(false);
    stage.ready(&shop).await;
}

#[tokio::test]
async fn a_deleted_cluster_waits_for_an_agent_that_is_away() {
    let mut stage = Stage::start("site-a", &[Agent::Cluster, Agent::LoadBalancer]).await;
    stage.site.create_tenant_namespace("away").await.unwrap();
    stage.load(&[host("away", "cp", "r1", "only")]).await;
    let shop = cluster("away", "shop")
        .role(Role::ControlPlane, 1)
        .balanced(30_411);
    stage.create(&shop).await;
    stage.ready(&shop).await;
    let machine = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Machine",
        "namespace": "away", "name": "shop-0",
    });
    set_consumer(&stage, "away-only", machine).await;
    stage.delete(&shop).await;
    stage
        .condition_mentions(
            &shop,
            "Ready",
            "False",
            "Progressing",
            "it is still used by Metal3Machine away/shop-0",
        )
        .await;
    // The pods follow before the agent goes; then its host waits for the consumer alone.
    stage
        .until(&shop, "have drained load balancers", |object| {
            object.data.pointer("/status/drained").is_some()
        })
        .await;
    stage.agent(Agent::LoadBalancer).stop(PATIENCE).await.unwrap();
    // For the cluster agent the consumer has stayed for years.
    age(&stage, &shop).await;
    set_consumer(&stage, "away-only", Value::Null).await;
    stage
        .condition_mentions(
            &shop,
            "Ready",
            "False",
            "Progressing",
            "waiting for the deletion of: loadBalancer",
        )
        .await;

    age(&stage, &shop).await;
    stage.gone(&shop).await;
}
