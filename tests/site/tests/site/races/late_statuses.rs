//! What a service agent reports of a `SIPCluster` that is another one by then, or that another replica has written to since.

use std::time::Duration;

use kube::ResourceExt as _;
use sandbox::region::Agent;
use tokio::time::timeout;

use super::{
    made_again::delete_by_force,
    writes::{patches, replica},
};
use crate::{
    faults::{ApiProxy, Fault, Injected},
    fixtures::{Cluster, PATIENCE, Role, Stage, cluster, host, statuses_sent_by},
};

const STATUS: &str = "sipclusters/status";

/// The answers to statuses that the load-balancer agent wrote, in the order of the answers.
fn answers(stage: &Stage, cluster: &Cluster) -> Vec<u16> {
    let sent = statuses_sent_by(Agent::LoadBalancer, stage, cluster).into_iter();
    sent.map(|entry| entry.response_status.code).collect()
}

/// Lets a held status go. Returns what the API server answers.
async fn late_answer(stage: &Stage, late: &Injected, cluster: &Cluster) -> u16 {
    let before = answers(stage, cluster).len();
    late.open();
    let arrives = async {
        while answers(stage, cluster).len() == before {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, arrives).await.expect("the late status arrives");
    answers(stage, cluster)[before]
}

#[tokio::test]
async fn a_late_status_tells_nothing_of_a_new_cluster() {
    let mut stage = Stage::start("site-a", &[Agent::Cluster]).await;
    let proxy = stage.start_proxied_balancers().await;
    stage.load(&[host("late-new", "cp", "r1", "only")]).await;
    stage.site.create_tenant_namespace("late-new").await.unwrap();
    let late = proxy.inject(patches(STATUS, "late-new"), 0, Fault::HeldBefore);
    let shop = cluster("late-new", "shop")
        .role(Role::ControlPlane, 1)
        .balanced(31_960);
    stage.create(&shop).await;
    late.happens().await;

    // Nobody else writes to the new one.
    stage.agent(Agent::Cluster).kill9().await.unwrap();
    delete_by_force(&stage, &shop).await;
    stage.create(&shop).await;
    let answer = late_answer(&stage, &late, &shop).await;
    let object = stage.clusters("late-new").get("shop").await.unwrap();
    assert_eq!(object.data.get("status"), None, "answered with {answer}");
    assert_eq!(answer, 409);

    stage.agent(Agent::Cluster).restart().await.unwrap();
    stage.ready(&shop).await;
    assert_eq!(stage.labelled("late-new", &shop).await.len(), 1);
}

#[tokio::test]
async fn a_deposed_replicas_late_status_is_refused() {
    let stage = Stage::start("site-a", &[Agent::Cluster]).await;
    let (old, new) = (ApiProxy::to(&stage.site).await, ApiProxy::to(&stage.site).await);
    let mut first = replica(&stage, Agent::LoadBalancer, "first", &old).await;
    let _second = replica(&stage, Agent::LoadBalancer, "second", &new).await;
    stage.load(&[host("late-status", "cp", "r1", "only")]).await;
    stage.site.create_tenant_namespace("late-status").await.unwrap();
    let late = old.inject(patches(STATUS, "late-status"), 0, Fault::HeldBefore);
    let shop = cluster("late-status", "shop")
        .role(Role::ControlPlane, 1)
        .balanced(31_970);
    stage.create(&shop).await;
    late.happens().await;
    first.process().pause().unwrap();

    let ready = stage.ready(&shop).await;
    let answer = late_answer(&stage, &late, &shop).await;
    assert_eq!(answer, 409, "it would name again what was withdrawn since");
    let object = stage.clusters("late-status").get("shop").await.unwrap();
    assert_eq!(object.resource_version(), ready.resource_version());
}
