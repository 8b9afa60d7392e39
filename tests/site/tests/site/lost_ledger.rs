//! A ledger is lost, and then the next one: the site works with each new ledger.

use kube::api::DynamicObject;

use sandbox::{region::Agent, wait};

use crate::fixtures::{AGENTS, Cluster, Role, Stage, cluster, fleet, host, make_again, members};

fn shop(name: &str) -> Cluster {
    cluster("lost", name).role(Role::Worker, 2)
}

fn epoch(object: &DynamicObject) -> Option<u64> {
    object.data.pointer("/status/placement/epoch")?.as_u64()
}

async fn lose_ledger(stage: &mut Stage) {
    stage.region_mut().lose_ledger().await.unwrap();
    stage.region_mut().scheduler_is_ready().await.unwrap();
}

#[tokio::test]
async fn a_ledger_lost_after_all_clusters_went_hinders_nobody() {
    let mut stage = Stage::start("site-a", &AGENTS).await;
    stage.load(&fleet("lost", 2, 2, 2)).await;
    stage.site.create_tenant_namespace("lost").await.unwrap();
    let first = shop("first");
    stage.create(&first).await;
    for expected in 1..=3 {
        if expected > 1 {
            lose_ledger(&mut stage).await;
        }
        stage
            .until(&first, "be answered in the next epoch", |object| {
                epoch(object) == Some(expected)
            })
            .await;
    }
    stage.delete(&first).await;
    stage.gone(&first).await;

    // Only the agent knows the third epoch now.
    lose_ledger(&mut stage).await;
    let second = shop("second");
    stage.create(&second).await;
    let answered = stage
        .until(&second, "hold two hosts", |object| members(object).len() == 2)
        .await;
    assert_eq!(epoch(&answered), Some(4));
}

/// Nobody knows whether it was paused for a move of Cluster API's objects, so it is waited for; nor which addresses it had.
#[tokio::test]
async fn a_host_gone_with_the_ledger_is_named_beside_its_address() {
    let mut stage = Stage::start("site-a", &AGENTS).await;
    let only = host("gone", "worker", "r1", "only");
    stage.load(std::slice::from_ref(&only)).await;
    stage.site.create_tenant_namespace("gone").await.unwrap();
    let shop = cluster("gone", "shop").role(Role::Worker, 1).balanced(30_190);
    stage.create(&shop).await;
    stage.ready(&shop).await;

    stage.agent(Agent::Cluster).kill9().await.unwrap();
    make_again(&stage, &only).await;
    lose_ledger(&mut stage).await;
    stage.agent(Agent::Cluster).restart().await.unwrap();
    let lost = stage
        .until(&shop, "name the host and its address", |object| {
            let ready = wait::condition(object, "Ready");
            ready.is_some_and(|(_, _, message)| message.contains("NoAddress"))
        })
        .await;
    let (status, reason, message) = wait::condition(&lost, "Ready").unwrap();
    assert_eq!((status, reason), ("False", "InfraServiceFailure"));
    assert!(
        message.starts_with("metal/gone-only: its BareMetalHost is gone; loadBalancer: NoAddress: "),
        "{message}"
    );
}
