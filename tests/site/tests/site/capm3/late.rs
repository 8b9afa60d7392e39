//! Where no policy refuses late claims: a release waits for them, and one that comes in that time gets its host back.

use std::time::Duration;

use kube::api::DynamicObject;
use sandbox::{region::Agent, sip_clusters::holder, site::HOST_CONSUMERS, wait};
use serde_json::json;
use tokio::time::{Instant, interval};

use super::{Capm3, Claim, Pauses, metal3_machine};
use crate::fixtures::{Cluster, PATIENCE, Role, Stage, cluster, given_back, host};

const SCENARIO: &str = "late";
const HOST: &str = "late-w1";
/// So long it is seen that nobody gets the host. With a policy the next cluster has it within a second.
const WATCHED: Duration = Duration::from_secs(5);

async fn start_agent(stage: &mut Stage, in_flight: u64) {
    stage
        .start_agent_where(Agent::Cluster, |config| {
            config.claims_in_flight_seconds = Some(in_flight);
        })
        .await;
    stage.agents_are_ready().await;
}

fn is_held_by(host: &DynamicObject, cluster: &Cluster) -> bool {
    holder(host).is_some_and(|(of, _)| of == format!("{SCENARIO}/{}", cluster.name))
}

async fn until(stage: &Stage, what: &str, is_true: impl Fn(&DynamicObject) -> bool) {
    wait::until(stage.hosts(), HOST, what, PATIENCE, is_true)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_late_claim_has_its_labels_back_before_the_next_cluster() {
    let mut stage = Stage::start(SCENARIO, &[Agent::LoadBalancer]).await;
    stage
        .kubectl(&["delete", "validatingadmissionpolicybinding", HOST_CONSUMERS])
        .await;
    start_agent(&mut stage, 3_600).await;
    stage.site.create_tenant_namespace(SCENARIO).await.unwrap();
    let mut capm3 = Capm3::install(&stage.site, Pauses::default(), 1).await;
    stage.load(&[host(SCENARIO, "worker", "r1", "w1")]).await;
    let [first, next] = ["first", "next"].map(|name| cluster(SCENARIO, name).role(Role::Worker, 1));
    stage.create(&first).await;
    stage.ready(&first).await;
    stage.create(&next).await;
    // It has chosen the host, and its patch is under way.
    let machine = metal3_machine(&first, Role::Worker, 0);
    stage
        .edit(&first, json!({"nodes": {"Worker": {"count": {"active": 0}}}}))
        .await;
    until(&stage, "be unlabelled", given_back).await;
    let (begun, mut pace) = (Instant::now(), interval(Duration::from_millis(100)));
    while begun.elapsed() < WATCHED {
        let now = stage.hosts().get(HOST).await.unwrap();
        assert!(given_back(&now), "a claim may be in flight: {:?}", now.metadata);
        pace.tick().await;
    }

    assert_eq!(capm3.claim(&machine, HOST).await, Claim::Has(HOST.to_owned()));
    until(&stage, "be its Machine's", |host| is_held_by(host, &first)).await;
    let used = "it is still used by Metal3Machine";
    let named = format!("{HOST}: to be released, {used} metal/{SCENARIO}-first-worker-0");
    stage
        .condition_mentions(&first, "HostsLabeled", "False", "Waiting", &named)
        .await;

    // The Machine goes, and now claims are over after a second.
    stage.agent(Agent::Cluster).kill9().await.unwrap();
    start_agent(&mut stage, 1).await;
    assert_eq!(capm3.release(&machine).await.as_deref(), Some(HOST));
    until(&stage, "be the next cluster's", |host| is_held_by(host, &next)).await;
    stage.ready(&next).await;
}
