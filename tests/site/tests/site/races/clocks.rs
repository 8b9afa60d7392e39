//! Clocks that jump: nothing that was promised depends on what time it is.

use std::time::Duration;

use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use kube::{Api, api::DynamicObject};
use sandbox::{
    process::Clock,
    region::{AGENTS_NAMESPACE, Agent},
};
use serde_json::json;

use crate::fixtures::{AGENTS, Cluster, Role, Stage, cluster, fleet, held, members};

fn shop(name: &str, port: u16) -> Cluster {
    cluster("clocks", name)
        .role(Role::ControlPlane, 1)
        .role(Role::Worker, 1)
        .balanced(port)
}

/// At how manieth election each agent acts.
async fn elections(stage: &Stage) -> Vec<Option<i32>> {
    let leases: Api<Lease> = Api::namespaced(stage.site.client(), AGENTS_NAMESPACE);
    let mut elections = Vec::new();
    for agent in AGENTS {
        let lease = leases.get(agent.program()).await.unwrap();
        elections.push(lease.spec.unwrap().lease_transitions);
    }
    elections
}

/// How far ahead of this process's clock that one was by which a cluster became Ready.
fn hours_ahead(object: &DynamicObject) -> i64 {
    let conditions = object.data["status"]["conditions"].as_array().unwrap();
    let ready = conditions
        .iter()
        .find(|condition| condition["type"] == "Ready")
        .unwrap();
    let since: Timestamp = ready["lastTransitionTime"].as_str().unwrap().parse().unwrap();
    // It is some seconds ago.
    let ahead = since.duration_since(Timestamp::now()).as_secs() + 60;
    ahead.div_euclid(3600)
}

#[tokio::test]
async fn clock_jumps_of_hours_change_no_decision() {
    let mut stage = Stage::start("site-a", &AGENTS).await;
    let Some(clock) = Clock::new(stage.region.directory()).unwrap() else {
        println!("not shown here: there is no libfaketime");
        return;
    };
    stage.region_mut().scheduler().restart_by(&clock).await.unwrap();
    stage.region_mut().scheduler_is_ready().await.unwrap();
    for agent in [Agent::Cluster, Agent::LoadBalancer] {
        stage.agent(agent).restart_by(&clock).await.unwrap();
    }
    stage.agents_are_ready().await;
    stage.load(&fleet("clocks", 5, 1, 1)).await;
    stage.site.create_tenant_namespace("clocks").await.unwrap();
    let keeps = shop("keeps", 31_100);
    stage.create(&keeps).await;
    let promised = held(&members(&stage.ready(&keeps).await));
    let elected = elections(&stage).await;

    for (hours, name, port) in [(6, "later", 31_110), (0, "earlier", 31_120), (2, "again", 31_130)] {
        clock.set_ahead(Duration::from_hours(hours)).unwrap();
        let next = shop(name, port);
        stage.create(&next).await;
        assert_eq!(
            hours_ahead(&stage.ready(&next).await),
            i64::try_from(hours).unwrap()
        );
        stage.delete(&next).await;
        stage.gone(&next).await;
    }

    assert_eq!(held(&members(&stage.ready(&keeps).await)), promised);
    assert_eq!(stage.labelled("clocks", &keeps).await, promised);
    assert_eq!(elections(&stage).await, elected, "nobody took over from anybody");
    stage
        .edit(&keeps, json!({"nodes": {"Worker": {"count": {"active": 2}}}}))
        .await;
    let grown = held(&members(&stage.ready(&keeps).await));
    assert_eq!(grown.len(), promised.len() + 1);
    assert!(promised.keys().all(|host| grown.contains_key(host)), "{grown:?}");
    stage.nothing_was_forbidden();
}
