//! Calls of one namespace that are never answered, and the clusters of another.

use sandbox::region::Agent;

use super::{Call, Fault, cells::Faulty};
use crate::fixtures::{Role, cluster, fleet};

/// Five times as many as may be reconciled at once in a namespace.
const CLUSTERS: usize = 80;
/// Calls that have hung by when the other cluster is ready: those of the first reconciles. Each ends after its timeout, and others begin.
const BEGUN: usize = 48;

#[tokio::test]
async fn a_namespace_whose_calls_hang_delays_no_other() {
    let site = Faulty::start(&[Agent::Cluster]).await;
    let stage = &site.stage;
    stage.load(&fleet("shares", 1, 1, 1)).await;
    for namespace in ["greedy", "shares"] {
        stage.site.create_tenant_namespace(namespace).await.unwrap();
    }
    let is_greedy = |call: &Call| call.verb == "patch" && call.namespace == "greedy";
    let hung = site.proxy().inject_always(is_greedy, Fault::HeldBefore);
    for number in 0..CLUSTERS {
        stage
            .create(&cluster("greedy", &format!("shop{number}")).role(Role::Worker, 1))
            .await;
    }
    hung.happens().await;

    let good = cluster("shares", "shop").role(Role::Worker, 1);
    stage.create(&good).await;
    stage.ready(&good).await;
    let began = hung.times();
    hung.open();

    assert!(began <= BEGUN, "it came after {began} others");
}
