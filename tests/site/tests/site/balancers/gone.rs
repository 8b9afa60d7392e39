//! A `SIPCluster` that is gone while it holds hosts. Nobody reports what its pods run, and something may yet start one.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use sandbox::region::Agent;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::{
    releases::{FIRST, PAUSE, behind, comes_to_rest, nothing_is_given_back, until_held},
    with_three_workers,
};
use crate::{
    faults::{ApiProxy, Call},
    fixtures::{Cluster, PATIENCE, Stage, fleet, set_consumer},
};

/// Somebody takes the finalizer off a cluster that is being deleted.
async fn loses_its_finalizer(stage: &Stage, cluster: &Cluster) {
    let stripped = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    stage
        .clusters(&cluster.namespace)
        .patch(&cluster.name, &PatchParams::default(), &stripped)
        .await
        .unwrap();
    stage.gone(cluster).await;
}

/// Labels of a load balancer that Airship SIP has made.
fn labels() -> Value {
    json!({
        "app.kubernetes.io/component": "loadbalancer", "app.kubernetes.io/instance": FIRST,
        "app.kubernetes.io/name": "haproxy", "app.kubernetes.io/part-of": "sip",
    })
}

#[tokio::test]
async fn hosts_of_a_gone_cluster_wait_for_what_may_start_pods() {
    const SCENARIO: &str = "gone";
    let (mut stage, shop) = with_three_workers(SCENARIO).await;
    stage.agent(Agent::LoadBalancer).kill9().await.unwrap();
    let deployments = Api::<Deployment>::namespaced(stage.site.client(), SCENARIO);
    let maps = Api::<ConfigMap>::namespaced(stage.site.client(), SCENARIO);
    let pods = json!({"containers": [{"name": "loadbalancer", "image": "haproxy:2.3.2"}]});
    // As Airship SIP has made it: only its pods are labelled. Somebody has scaled it down.
    let of_sip = json!({"metadata": {"name": FIRST}, "spec": {
        "replicas": 0, "selector": {"matchLabels": labels()},
        "template": {"metadata": {"labels": labels()}, "spec": pods},
    }});
    let of_sip = serde_json::from_value(of_sip).unwrap();
    deployments.create(&PostParams::default(), &of_sip).await.unwrap();
    let mut metadata = json!({"name": FIRST, "labels": labels()});
    metadata["labels"]["sip.airshipit.org/cluster-name"] = json!("shop");
    let map = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();

    stage.delete(&shop).await;
    stage.condition_is(&shop, "Scheduled", "False", "Deleting").await;
    loses_its_finalizer(&stage, &shop).await;
    nothing_is_given_back(&stage, SCENARIO, 3).await;
    deployments.delete(FIRST, &DeleteParams::default()).await.unwrap();
    nothing_is_given_back(&stage, SCENARIO, 3).await;
    deployments.create(&PostParams::default(), &of_sip).await.unwrap();
    maps.delete(FIRST, &DeleteParams::default()).await.unwrap();
    nothing_is_given_back(&stage, SCENARIO, 3).await;
    deployments.delete(FIRST, &DeleteParams::default()).await.unwrap();
    until_held(&stage, SCENARIO, 0).await;
    stage.nothing_was_forbidden();
}

/// How often the agent has applied objects of a kind since it had made so many calls.
fn applied(proxy: &ApiProxy, since: usize, resource: &str) -> usize {
    let calls = proxy.seen().into_iter().skip(since);
    calls
        .filter(|call: &Call| call.verb == "patch" && call.resource == resource)
        .count()
}

/// The agent's watch is behind: what the garbage collector has deleted is missing, and it makes that again.
#[tokio::test]
async fn no_pod_is_started_for_a_cluster_that_is_gone() {
    const SCENARIO: &str = "gone-unseen";
    let mut stage = Stage::start(SCENARIO, &[Agent::Cluster]).await;
    stage.site.create_tenant_namespace(SCENARIO).await.unwrap();
    let proxy = stage.start_proxied_balancers().await;
    stage.load(&fleet(SCENARIO, 3, 0, 1)).await;
    let shop = behind(SCENARIO, &[31_345]);
    stage.create(&shop).await;
    stage.ready(&shop).await;
    // The scheduler knows the cluster as long as a host is in use.
    let machine = json!({"apiVersion": "v1", "kind": "Metal3Machine", "namespace": SCENARIO, "name": "m-0"});
    set_consumer(&stage, "gone-unseen-r1-w1", machine).await;
    stage.delete(&shop).await;
    until_held(&stage, SCENARIO, 1).await;
    comes_to_rest(&stage, &shop).await;

    proxy.freeze("sipclusters");
    loses_its_finalizer(&stage, &shop).await;
    let since = proxy.seen().len();
    let passes = async {
        while applied(&proxy, since, "configmaps") < 3 {
            sleep(PAUSE).await;
        }
    };
    timeout(PATIENCE, passes).await.expect("the agent makes it again");
    assert_eq!(applied(&proxy, since, "deployments"), 0);
    stage.nothing_was_forbidden();
}
