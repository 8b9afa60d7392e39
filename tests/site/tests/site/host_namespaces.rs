//! Namespaces with hosts that leave a site's configuration.

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use sandbox::{
    inventory,
    region::{Agent, HOSTS_NAMESPACE, Region},
    wait,
};
use serde_json::json;

use crate::fixtures::{Cluster, Member, PATIENCE, Role, SECOND_NAMESPACE, Stage, cluster, host, members};

const BOTH: [&str; 2] = [HOSTS_NAMESPACE, SECOND_NAMESPACE];

/// Starts the agent without the second namespace: it ends, and replaces no host.
async fn ends_and_replaces_nothing(stage: &mut Stage, shop: &Cluster, held: &[Member]) {
    stage.start_agent(Agent::Cluster, &[HOSTS_NAMESPACE]).await;
    let replaced = wait::until(
        stage.clusters("dropped"),
        &shop.name,
        "change its members",
        PATIENCE,
        |object| members(object) != held,
    );
    let ended = tokio::select! {
        _ = replaced => panic!("a host was replaced in a namespace that left the configuration"),
        ended = stage.agent(Agent::Cluster).ended() => ended.unwrap().unwrap(),
    };
    assert!(!ended.success(), "{ended}");
}

#[tokio::test]
async fn a_namespace_with_held_hosts_cannot_be_dropped() {
    let region = Region::start("north").await.unwrap().into();
    let mut stage = Stage::start_in(region, "site-a", &BOTH, &[Agent::Cluster]).await;
    stage.site.create_tenant_namespace("dropped").await.unwrap();
    let there = [
        host("dropped", "cp", "r1", "one"),
        host("dropped", "cp", "r2", "two"),
    ];
    inventory::load(&stage.site.client(), SECOND_NAMESPACE, &there)
        .await
        .unwrap();
    let shop = cluster("dropped", "shop").role(Role::ControlPlane, 2);
    stage.create(&shop).await;
    let held = members(&stage.ready(&shop).await);
    // Hosts that could take their places.
    let spare = [
        host("dropped", "cp", "r1", "red"),
        host("dropped", "cp", "r2", "blue"),
    ];
    stage.load(&spare).await;
    stage.agent(Agent::Cluster).stop(PATIENCE).await.unwrap();

    ends_and_replaces_nothing(&mut stage, &shop, &held).await;
    let log = stage.agent(Agent::Cluster).log_tail(500);
    assert!(
        log.contains("metal-too/dropped-one") && log.contains("dropped/shop"),
        "{log}"
    );
    stage
        .event(
            &shop,
            "HostNamespaceDropped",
            "metal-too/dropped-one by dropped/shop",
        )
        .await;

    // With it the cluster goes on as it was.
    stage.start_agent(Agent::Cluster, &BOTH).await;
    stage.agents_are_ready().await;
    assert_eq!(members(&stage.ready(&shop).await), held);
}

/// Somebody has removed the placement from the status, or its agent has not written it yet.
#[tokio::test]
async fn a_namespace_with_hosts_of_the_ledger_cannot_be_dropped() {
    let region = Region::start("north").await.unwrap().into();
    let mut stage = Stage::start_in(region, "site-a", &BOTH, &[Agent::Cluster]).await;
    stage.site.create_tenant_namespace("dropped").await.unwrap();
    let there = [host("dropped", "cp", "r1", "one")];
    inventory::load(&stage.site.client(), SECOND_NAMESPACE, &there)
        .await
        .unwrap();
    let shop = cluster("dropped", "shop").role(Role::ControlPlane, 1);
    stage.create(&shop).await;
    let held = members(&stage.ready(&shop).await);
    // A host that could take its place.
    stage.load(&[host("dropped", "cp", "r1", "red")]).await;
    stage.agent(Agent::Cluster).stop(PATIENCE).await.unwrap();
    let removed = Patch::Merge(json!({"status": {"placement": null}}));
    stage
        .clusters("dropped")
        .patch_status(&shop.name, &PatchParams::default(), &removed)
        .await
        .unwrap();

    ends_and_replaces_nothing(&mut stage, &shop, &[]).await;
    stage
        .event(
            &shop,
            "HostNamespaceDropped",
            "metal-too/dropped-one by dropped/shop",
        )
        .await;

    // With it the status names the host again.
    stage.start_agent(Agent::Cluster, &BOTH).await;
    stage.agents_are_ready().await;
    stage
        .until(&shop, "hold its host as before", |object| members(object) == held)
        .await;
}

#[tokio::test]
async fn a_namespace_whose_held_hosts_are_gone_can_be_dropped() {
    let region = Region::start("north").await.unwrap().into();
    let mut stage = Stage::start_in(region, "site-a", &BOTH, &[Agent::Cluster, Agent::LoadBalancer]).await;
    stage.site.create_tenant_namespace("dropped").await.unwrap();
    let there = [host("dropped", "cp", "r1", "one")];
    inventory::load(&stage.site.client(), SECOND_NAMESPACE, &there)
        .await
        .unwrap();
    let shop = cluster("dropped", "shop").role(Role::ControlPlane, 1);
    stage.create(&shop).await;
    stage.ready(&shop).await;
    stage.load(&[host("dropped", "cp", "r1", "red")]).await;
    stage.agent(Agent::Cluster).stop(PATIENCE).await.unwrap();
    inventory::api(stage.site.client(), SECOND_NAMESPACE)
        .delete("dropped-one", &DeleteParams::default())
        .await
        .unwrap();

    stage.start_agent(Agent::Cluster, &[HOSTS_NAMESPACE]).await;
    stage.agents_are_ready().await;
    stage
        .until(&shop, "hold the host that is there", |object| {
            let members = members(object);
            members.len() == 1 && members[0].name == "dropped-red" && members[0].state == "Bound"
        })
        .await;
}

#[tokio::test]
async fn a_namespace_with_a_recreated_host_cannot_be_dropped() {
    let region = Region::start("north").await.unwrap().into();
    let mut stage = Stage::start_in(region, "site-a", &BOTH, &[Agent::Cluster]).await;
    stage.site.create_tenant_namespace("dropped").await.unwrap();
    let there = [host("dropped", "cp", "r1", "one")];
    inventory::load(&stage.site.client(), SECOND_NAMESPACE, &there)
        .await
        .unwrap();
    let shop = cluster("dropped", "shop").role(Role::ControlPlane, 1);
    stage.create(&shop).await;
    let held = members(&stage.ready(&shop).await);
    // A host that could take its place.
    stage.load(&[host("dropped", "cp", "r1", "red")]).await;
    stage.agent(Agent::Cluster).stop(PATIENCE).await.unwrap();
    let hosts = inventory::api(stage.site.client(), SECOND_NAMESPACE);
    hosts
        .delete("dropped-one", &DeleteParams::default())
        .await
        .unwrap();
    wait::until_gone(hosts, "dropped-one", PATIENCE).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(stage.site.client(), SECOND_NAMESPACE);
    secrets
        .delete("dropped-one-network-data", &DeleteParams::default())
        .await
        .unwrap();
    inventory::load(&stage.site.client(), SECOND_NAMESPACE, &there)
        .await
        .unwrap();

    ends_and_replaces_nothing(&mut stage, &shop, &held).await;
    stage
        .event(
            &shop,
            "HostNamespaceDropped",
            "metal-too/dropped-one by dropped/shop (recreated since)",
        )
        .await;

    // With it the rules for recreated hosts apply: a member without host is replaced.
    stage.start_agent(Agent::Cluster, &BOTH).await;
    stage.agents_are_ready().await;
    stage
        .until(&shop, "hold a host that exists", |object| {
            let members = members(object);
            members
                .iter()
                .any(|member| member.uid != held[0].uid && member.state == "Bound")
        })
        .await;
}
