//! A former address of a host: it may be another machine's by now, so it is released like a host that leaves, and the host stays.

use sandbox::inventory::NETWORK;
use serde_json::{Value, json};

use super::{
    releases::{FIRST, keep_pods, let_pods_go},
    workers,
};
use crate::fixtures::{Role, cluster, fleet, on_shared_site, set_network_data};

#[test]
fn a_former_address_that_pods_keep_is_reported() {
    on_shared_site("former", async |stage| {
        stage.load(&fleet("former", 1, 0, 1)).await;
        let entry = workers(31_370, 31_370, &json!({"replicas": 1}));
        let shop = cluster("former", "shop")
            .role(Role::Worker, 1)
            .with("/services/loadBalancerWorker", json!([entry]));
        stage.create(&shop).await;
        stage.ready(&shop).await;
        keep_pods(stage, "former", FIRST).await;

        let moved = json!({"networks": [{"id": NETWORK, "ip_address": "203.0.113.60"}]});
        set_network_data(stage, "former-r1-w1", &moved.to_string()).await;
        let waits = "metal/former-r1-w1: its former address is to be released, waits since 20";
        stage
            .condition_mentions(&shop, "HostsLabeled", "False", "Waiting", waits)
            .await;
        let object = stage.clusters("former").get("shop").await.unwrap();
        let placement = &object.data["status"]["placement"];
        assert!(placement["formerRelease"].is_u64(), "{placement}");
        assert!(placement["formerSince"].is_string(), "{placement}");
        assert_eq!(placement["members"][0]["state"], "Bound");
        let why = "hosts are not released: pod ";
        stage
            .condition_mentions(&shop, "LoadBalancerReady", "False", "Progressing", why)
            .await;

        let_pods_go(stage, "former", FIRST).await;
        stage
            .until(&shop, "have no former address", |object| {
                let placement = &object.data["status"]["placement"];
                ["formerRelease", "formerSince"].map(|field| &placement[field]) == [&Value::Null; 2]
            })
            .await;
        stage.ready(&shop).await;
    });
}
