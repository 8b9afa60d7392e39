//! Parts that end without warning: what runs goes on, and what was begun is finished when they are back.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::{Api, ResourceExt as _};
use sandbox::region::Agent;
use serde_json::json;

use crate::fixtures::{AGENTS, Cluster, Role, Stage, cluster, fleet, held, members};

fn shop(name: &str, port: u16) -> Cluster {
    cluster("outage", name)
        .role(Role::ControlPlane, 2)
        .role(Role::Worker, 2)
        .balanced(port)
}

/// Load balancers of a namespace, by uid, with their configuration's versions.
async fn children(stage: &Stage) -> BTreeMap<String, Option<String>> {
    let client = stage.site.client();
    let services: Api<Service> = Api::namespaced(client.clone(), "outage");
    let config_maps: Api<ConfigMap> = Api::namespaced(client, "outage");
    let services = services
        .list(&kube::api::ListParams::default())
        .await
        .unwrap()
        .items;
    let config_maps = config_maps
        .list(&kube::api::ListParams::default().labels("app.kubernetes.io/part-of=sip"))
        .await
        .unwrap()
        .items;
    let services = services
        .into_iter()
        .map(|service| (service.uid().unwrap(), service.resource_version()));
    services
        .chain(
            config_maps
                .into_iter()
                .map(|map| (map.uid().unwrap(), map.resource_version())),
        )
        .collect()
}

#[tokio::test]
async fn without_the_scheduler_nothing_is_torn_down() {
    let mut stage = Stage::start("site-a", &AGENTS).await;
    stage.load(&fleet("outage", 3, 1, 2)).await;
    stage.site.create_tenant_namespace("outage").await.unwrap();
    let (keeps, ends) = (
        shop("keeps", 30_500),
        cluster("outage", "ends").role(Role::ControlPlane, 1),
    );
    for cluster in [&keeps, &ends] {
        stage.create(cluster).await;
        stage.ready(cluster).await;
    }
    let (labelled, before) = (stage.labelled("outage", &keeps).await, children(&stage).await);

    stage.region_mut().scheduler().kill9().await.unwrap();
    stage
        .edit(&keeps, json!({"nodes": {"Worker": {"count": {"active": 4}}}}))
        .await;
    stage
        .event(&keeps, "Stale", "the scheduler does not serve the call")
        .await;
    stage.delete(&ends).await;
    stage
        .event(&ends, "Stale", "the scheduler does not serve the call")
        .await;

    assert_eq!(stage.labelled("outage", &keeps).await, labelled);
    assert_eq!(children(&stage).await, before, "load balancers were written to");
    let object = stage.clusters("outage").get("keeps").await.unwrap();
    assert_eq!(held(&members(&object)), labelled);
    let ready = sandbox::wait::condition(&object, "Ready").unwrap();
    assert_eq!(
        (ready.0, ready.1),
        ("True", "ReconciliationSucceeded"),
        "conditions keep their last truth"
    );

    stage.region_mut().scheduler().restart().await.unwrap();
    stage.ready(&keeps).await;
    stage.gone(&ends).await;
    let after = stage.labelled("outage", &keeps).await;
    assert_eq!(after.len(), 6);
    assert!(
        labelled.keys().all(|name| after.contains_key(name)),
        "{labelled:?} {after:?}"
    );
    stage.nothing_was_forbidden();
}

#[tokio::test]
async fn killed_agents_and_api_server_finish_their_work() {
    let mut stage = Stage::start("site-a", &AGENTS).await;
    stage.load(&fleet("outage", 4, 1, 2)).await;
    stage.site.create_tenant_namespace("outage").await.unwrap();
    let (first, second) = (shop("first", 30_510), shop("second", 30_520));

    stage.create(&first).await;
    let claimed = stage
        .until(&first, "hold four hosts", |object| members(object).len() == 4)
        .await;
    for agent in AGENTS {
        stage.agent(agent).kill9().await.unwrap();
    }
    stage.create(&second).await;
    for agent in AGENTS {
        stage.agent(agent).restart().await.unwrap();
    }
    stage.ready(&first).await;
    stage.ready(&second).await;
    let labelled = stage.labelled("outage", &first).await;
    assert_eq!(labelled, held(&members(&claimed)));

    stage.restart_api_server().await;
    stage
        .edit(&second, json!({"nodes": {"Worker": {"count": {"active": 1}}}}))
        .await;
    stage.ready(&second).await;
    stage.delete(&first).await;
    stage.agent(Agent::Cluster).kill9().await.unwrap();
    stage.agent(Agent::Cluster).restart().await.unwrap();
    stage.gone(&first).await;
    assert!(stage.labelled("outage", &first).await.is_empty());
    assert_eq!(stage.labelled("outage", &second).await.len(), 3);
    // An API server that has just started knows no roles yet and forbids everything: that is not counted here.
}
