//! Selectors that are unusual and right.

use sandbox::{inventory::RACK, region::Agent};
use serde_json::json;

use crate::fixtures::{Role, Stage, cluster, fleet, host, in_role, on_shared_site};

#[test]
fn an_empty_value_selects_the_hosts_whose_label_is_empty() {
    on_shared_site("empty-value", async |stage| {
        let key = "empty-value.example/zone";
        let blank = host("empty-value", "worker", "r1", "blank").label(key, "");
        let named = host("empty-value", "worker", "r2", "named").label(key, "z1");
        let without = host("empty-value", "worker", "r3", "without");
        stage.load(&[blank, named, without]).await;
        let shop = cluster("empty-value", "shop")
            .role(Role::Worker, 1)
            .with("/nodes/Worker/labelSelector", json!({"matchLabels": {key: ""}}));
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let held = stage.labelled("empty-value", &shop).await;
        assert_eq!(in_role(&held, "Worker"), ["empty-value-blank"]);

        stage
            .edit(&shop, json!({"nodes": {"Worker": {"count": {"active": 2}}}}))
            .await;
        let why = stage.condition_is(&shop, "Ready", "False", "Unschedulable").await;
        assert!(why.contains("Worker: 2 wanted"), "{why}");
    });
}

/// On a site of its own: it would take the hosts of every other scenario.
#[tokio::test]
async fn an_empty_topology_label_is_no_domain() {
    let stage = Stage::start("site-a", &[Agent::Cluster]).await;
    let mut hosts = fleet("every", 2, 1, 1);
    // What ViNO makes of a node without the label: it must not defeat anti-affinity.
    hosts.push(host("every", "worker", "", "blank"));
    stage.load(&hosts).await;
    stage.site.create_tenant_namespace("every").await.unwrap();
    let every = |name| {
        cluster("every", name)
            .role(Role::Worker, 5)
            .with("/nodes/Worker/labelSelector", json!({}))
    };

    let by_rack = every("by-rack").with("/nodes/Worker/topologyKey", json!(RACK));
    stage.create(&by_rack).await;
    stage
        .condition_is(&by_rack, "Ready", "False", "Unschedulable")
        .await;
    let request = json!({"site": "site-a", "cluster": {"namespace": "every", "name": "by-rack"}});
    let placement = stage
        .call("sip.placement.v1.PlacementService/GetPlacement", request)
        .await;
    let funnel = &placement["placement"]["refusal"]["roles"][0];
    assert_eq!(
        [&funnel["matched"], &funnel["withTopology"], &funnel["domains"]],
        [&json!(5), &json!(4), &json!(2)],
        "{placement}"
    );

    let all = every("all").with("/nodes/Worker/topologyKey", json!(null));
    stage.create(&all).await;
    stage.ready(&all).await;
    assert_eq!(stage.labelled("every", &all).await.len(), 5);
    stage.nothing_was_forbidden();
}
