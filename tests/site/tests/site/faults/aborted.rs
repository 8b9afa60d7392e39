//! Calls whose caller is gone while the API server is in the middle of them.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::{Api, ResourceExt as _, api::ListParams};
use sandbox::{region::Agent, wait};
use serde_json::json;

use super::{Call, Fault};
use crate::fixtures::{PATIENCE, Role, Stage, cluster};

/// So many creations are aborted, each a little later in its course.
const ABORTED: u16 = 12;
const STEP: Duration = Duration::from_millis(3);

#[tokio::test]
async fn an_aborted_creation_keeps_no_node_port() {
    let mut stage = Stage::start("site-a", &[Agent::Cluster]).await;
    let proxy = stage.start_proxied_balancers().await;
    stage.site.create_tenant_namespace("aborted").await.unwrap();
    let writes_service = |call: &Call| {
        call.resource == "services" && call.namespace == "aborted" && ["post", "patch"].contains(&&*call.verb)
    };
    let aborted: Vec<_> = (1..=u32::from(ABORTED))
        .map(|nth| proxy.inject(writes_service, 0, Fault::Aborted(nth * STEP)))
        .collect();
    let shops: Vec<_> = (0..ABORTED)
        .map(|nth| {
            cluster("aborted", &format!("shop-{nth}"))
                .role(Role::Worker, 0)
                .balanced(30_700 + 3 * nth)
        })
        .collect();
    for shop in &shops {
        stage.create(shop).await;
    }
    // An API server that keeps the ports of what was not created gives them back after nine minutes at the earliest.
    for shop in &shops {
        stage.ready(shop).await;
    }
    assert!(aborted.iter().all(|aborted| aborted.times() == 1));

    // Wherever its creation ended, the agent has applied each Service, and removes from it what is not asked for any more.
    let services: Api<Service> = Api::namespaced(stage.site.client(), "aborted");
    for shop in &shops {
        let range = &shop.spec()["services"]["loadBalancerWorker"][0]["nodePortRange"];
        let first = range["start"].clone();
        let one = shop.clone().with(
            "/services/loadBalancerWorker/0/nodePortRange",
            json!({"start": first, "end": first}),
        );
        stage.edit(shop, one.spec().clone()).await;
    }
    for shop in &shops {
        stage.ready(shop).await;
        let name = format!("loadbalancer-worker-{}", shop.name);
        wait::until(
            services.clone(),
            &name,
            "have one port",
            PATIENCE,
            |service: &Service| {
                let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref());
                ports.is_some_and(|ports| ports.len() == 1)
            },
        )
        .await
        .unwrap();
    }
    for service in services.list(&ListParams::default()).await.unwrap() {
        let entries = service.managed_fields().iter();
        let written = entries.filter(|entry| entry.subresource.is_none());
        let operations: Vec<_> = written.map(|entry| entry.operation.as_deref()).collect();
        assert_eq!(operations, [Some("Apply")], "{}", service.name_any());
    }
}
