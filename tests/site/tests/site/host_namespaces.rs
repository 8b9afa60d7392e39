//! Namespaces with hosts that leave a site's configuration.

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use sandbox::{
    inventory::{self, Host},
    region::{Agent, HOSTS_NAMESPACE, Region},
    wait,
};
use serde_json::json;

use crate::fixtures::{Cluster, Member, PATIENCE, Role, SECOND_NAMESPACE, Stage, cluster, host, members};

const BOTH: [&str; 2] = [HOSTS_NAMESPACE, SECOND_NAMESPACE];

/// The cluster `dropped/shop`, whose hosts are in the second namespace, and which the cluster agent has left as it is: it is stopped.
struct Scene {
    stage: Stage,
    shop: Cluster,
    /// The hosts of the second namespace.
    there: Vec<Host>,
    held: Vec<Member>,
}

impl Scene {
    /// For each pair of names there is a host in the second namespace, and then one in the first that could take its place.
    async fn start(agents: &[Agent], names: &[[&str; 2]]) -> Self {
        let region = Region::start("north").await.unwrap().into();
        let mut stage = Stage::start_in(region, "site-a", &BOTH, agents).await;
        stage.site.create_tenant_namespace("dropped").await.unwrap();
        let hosts = |of_pair: usize| -> Vec<Host> {
            let racks = names.iter().zip(1..);
            racks
                .map(|(pair, rack)| host("dropped", "cp", &format!("r{rack}"), pair[of_pair]))
                .collect()
        };
        let there = hosts(0);
        inventory::load(&stage.site.client(), SECOND_NAMESPACE, &there)
            .await
            .unwrap();
        let count = u32::try_from(there.len()).unwrap();
        let shop = cluster("dropped", "shop").role(Role::ControlPlane, count);
        stage.create(&shop).await;
        let held = members(&stage.ready(&shop).await);
        stage.load(&hosts(1)).await;
        stage.agent(Agent::Cluster).stop(PATIENCE).await.unwrap();
        Self {
            stage,
            shop,
            there,
            held,
        }
    }
}

/// Starts the agent without the second namespace: it ends, replaces no host, and an Event names the host that keeps it from starting.
async fn ends_and_replaces_nothing(stage: &mut Stage, shop: &Cluster, held: &[Member], named: &str) {
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
    stage.event(shop, "HostNamespaceDropped", named).await;
}

/// Starts the agent with both namespaces.
async fn start_with_both(stage: &mut Stage) {
    stage.start_agent(Agent::Cluster, &BOTH).await;
    stage.agents_are_ready().await;
}

#[tokio::test]
async fn a_namespace_with_held_hosts_cannot_be_dropped() {
    let names = [["one", "red"], ["two", "blue"]];
    let scene = Scene::start(&[Agent::Cluster], &names).await;
    let (mut stage, shop, held) = (scene.stage, scene.shop, scene.held);

    ends_and_replaces_nothing(&mut stage, &shop, &held, "metal-too/dropped-one by dropped/shop").await;
    let log = stage.agent(Agent::Cluster).log_tail(500);
    assert!(
        log.contains("metal-too/dropped-one") && log.contains("dropped/shop"),
        "{log}"
    );

    // With it the cluster goes on as it was.
    start_with_both(&mut stage).await;
    assert_eq!(members(&stage.ready(&shop).await), held);
}

/// Somebody has removed the placement from the status, or its agent has not written it yet.
#[tokio::test]
async fn a_namespace_with_hosts_of_the_ledger_cannot_be_dropped() {
    let scene = Scene::start(&[Agent::Cluster], &[["one", "red"]]).await;
    let (mut stage, shop, held) = (scene.stage, scene.shop, scene.held);
    let removed = Patch::Merge(json!({"status": {"placement": null}}));
    stage
        .clusters("dropped")
        .patch_status(&shop.name, &PatchParams::default(), &removed)
        .await
        .unwrap();

    ends_and_replaces_nothing(&mut stage, &shop, &[], "metal-too/dropped-one by dropped/shop").await;

    // With it the status names the host again.
    start_with_both(&mut stage).await;
    stage
        .until(&shop, "hold its host as before", |object| members(object) == held)
        .await;
}

#[tokio::test]
async fn a_namespace_whose_held_hosts_are_gone_can_be_dropped() {
    let agents = [Agent::Cluster, Agent::LoadBalancer];
    let scene = Scene::start(&agents, &[["one", "red"]]).await;
    let (mut stage, shop) = (scene.stage, scene.shop);
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
    let scene = Scene::start(&[Agent::Cluster], &[["one", "red"]]).await;
    let (mut stage, shop, held) = (scene.stage, scene.shop, scene.held);
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
    inventory::load(&stage.site.client(), SECOND_NAMESPACE, &scene.there)
        .await
        .unwrap();

    let named = "metal-too/dropped-one by dropped/shop (recreated since)";
    ends_and_replaces_nothing(&mut stage, &shop, &held, named).await;

    // With it the rules for recreated hosts apply: a member without host is replaced.
    start_with_both(&mut stage).await;
    stage
        .until(&shop, "hold a host that exists", |object| {
            let members = members(object);
            members
                .iter()
                .any(|member| member.uid != held[0].uid && member.state == "Bound")
        })
        .await;
}
