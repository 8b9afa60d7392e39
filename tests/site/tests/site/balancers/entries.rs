//! Entries of one kind keep their objects through edits of the others, whatever their order in the spec.

use std::collections::BTreeMap;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kube::{Api, ResourceExt as _, api::ListParams};
use sandbox::{inventory::NETWORK, region::Agent};
use serde_json::{Value, json};

use super::workers;
use crate::fixtures::{Cluster, Role, Stage, cluster, on_shared_site, statuses_sent};

/// The Services of a scenario's load balancers by their first port: uid, and how often the Deployment's spec has changed.
async fn made(stage: &Stage, scenario: &str) -> BTreeMap<i32, (String, Option<i64>)> {
    let services: Api<Service> = Api::namespaced(stage.site.client(), scenario);
    let deployments: Api<Deployment> = Api::namespaced(stage.site.client(), scenario);
    let mut made = BTreeMap::new();
    for service in services.list(&ListParams::default()).await.unwrap() {
        let port = service.spec.as_ref().unwrap().ports.as_ref().unwrap()[0].port;
        let deployment = deployments.get(&service.name_any()).await.unwrap();
        made.insert(port, (service.uid().unwrap(), deployment.metadata.generation));
    }
    made
}

fn entry(port: u16, name: Option<&str>) -> Value {
    workers(port, port, &json!({"name": name}))
}

async fn edit(stage: &Stage, shop: &Cluster, entries: &[Value]) {
    stage
        .edit(shop, json!({"services": {"loadBalancerWorker": entries}}))
        .await;
    stage.ready(shop).await;
}

/// Every port that is there before and after keeps its objects.
fn assert_kept(before: &BTreeMap<i32, (String, Option<i64>)>, after: &BTreeMap<i32, (String, Option<i64>)>) {
    for (port, made) in after {
        if let Some(known) = before.get(port) {
            assert_eq!(made, known, "port {port} has other objects");
        }
    }
}

#[test]
fn entries_without_names_keep_their_objects_by_their_ports() {
    on_shared_site("entries", async |stage| {
        let [a, b, c, d] = [31_320, 31_321, 31_322, 31_323].map(|port| entry(port, None));
        let shop = cluster("entries", "shop")
            .role(Role::Worker, 0)
            .with("/services/loadBalancerWorker", json!([a, b, c]));
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let mut before = made(stage, "entries").await;
        assert_eq!(before.len(), 3);
        for (what, entries) in [
            ("swapped", vec![b.clone(), a.clone(), c.clone()]),
            ("the middle one removed", vec![b.clone(), c.clone()]),
            ("one before the others", vec![d.clone(), b, c.clone()]),
            ("the others removed", vec![c, d]),
        ] {
            edit(stage, &shop, &entries).await;
            let after = made(stage, "entries").await;
            assert_eq!(after.len(), entries.len(), "{what}");
            assert_kept(&before, &after);
            before = after;
        }
        // One that changes its port keeps its objects: nothing else could be it.
        edit(stage, &shop, &[entry(31_322, None), entry(31_324, None)]).await;
        let after = made(stage, "entries").await;
        assert_kept(&before, &after);
        assert_eq!(after[&31_324].0, before[&31_323].0);
    });
}

/// No status has ever reported that node ports are taken.
fn never_in_conflict(stage: &Stage, cluster: &Cluster) {
    let sent = statuses_sent(stage, cluster);
    assert!(!sent.is_empty(), "the audit log has the statuses");
    for sent in sent {
        let sent = sent.request_object.to_string();
        assert!(!sent.contains("PortConflict"), "{sent}");
    }
}

#[tokio::test]
async fn a_slow_watch_of_services_moves_no_entry() {
    let scenario = "slow-services";
    let mut stage = Stage::start(scenario, &[Agent::Cluster]).await;
    stage.site.create_tenant_namespace(scenario).await.unwrap();
    let proxy = stage.start_proxied_balancers().await;
    let [first, second, third, moved] = [31_325, 31_326, 31_328, 31_329].map(|port| entry(port, None));
    let [shop, bank] = [("shop", &first), ("bank", &third)].map(|(name, entry)| {
        cluster(scenario, name)
            .role(Role::Worker, 0)
            .with("/services/loadBalancerWorker", json!([entry]))
    });
    for one in [&shop, &bank] {
        stage.create(one).await;
        stage.ready(one).await;
    }

    proxy.freeze("services");
    edit(&stage, &shop, &[first, second.clone()]).await;
    let before = made(&stage, scenario).await;
    edit(&stage, &shop, std::slice::from_ref(&second)).await;
    let after = made(&stage, scenario).await;
    assert_eq!(after.keys().collect::<Vec<_>>(), [&31_326, &31_328]);
    assert_kept(&before, &after);

    // An entry gets another port, and a new entry that one's.
    edit(&stage, &bank, std::slice::from_ref(&moved)).await;
    let alone = made(&stage, scenario).await;
    assert_eq!(alone[&31_329].0, after[&31_328].0);
    edit(&stage, &bank, &[moved.clone(), third.clone()]).await;
    let frozen = made(&stage, scenario).await;
    proxy.thaw("services");
    // The watch has come so far when another Service is deleted again.
    edit(
        &stage,
        &bank,
        &[moved.clone(), third.clone(), entry(31_327, None)],
    )
    .await;
    edit(&stage, &bank, &[moved, third]).await;
    let after = made(&stage, scenario).await;
    assert_eq!(after, frozen);
    never_in_conflict(&stage, &bank);
    assert_kept(&alone, &after);
    assert_ne!(after[&31_328].0, alone[&31_329].0);
}

#[test]
fn entries_with_names_exchange_their_ports() {
    on_shared_site("exchange", async |stage| {
        let [a, b, c] = ["a", "b", "c"].map(Some);
        let shop = cluster("exchange", "shop").role(Role::Worker, 0).with(
            "/services/loadBalancerWorker",
            json!([entry(31_350, a), entry(31_351, b), entry(31_352, c)]),
        );
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let before = made(stage, "exchange").await;
        edit(
            stage,
            &shop,
            &[entry(31_351, a), entry(31_352, b), entry(31_350, c)],
        )
        .await;
        let after = made(stage, "exchange").await;
        for (from, to) in [(31_350, 31_351), (31_351, 31_352), (31_352, 31_350)] {
            assert_eq!(after[&to].0, before[&from].0, "{from} to {to}");
        }

        // With the load balancer of another role, and one port that stays.
        let range = |first: u16, last: u16, name| workers(first, last, &json!({"name": name}));
        edit(stage, &shop, &[range(31_350, 31_351, a)]).await;
        let of_role = |port: u16| json!([{"image": "haproxy:2.8", "nodeInterfaceId": NETWORK, "nodePort": port, "name": "d"}]);
        let role = shop.clone().role(Role::ControlPlane, 0).spec()["nodes"]["ControlPlane"].clone();
        let both = |entries: Value, port: u16| {
            json!({
                "nodes": {"ControlPlane": role},
                "services": {"loadBalancerWorker": entries, "loadBalancerControlPlane": of_role(port)},
            })
        };
        stage
            .edit(&shop, both(json!([range(31_350, 31_351, a)]), 31_352))
            .await;
        stage.ready(&shop).await;
        stage
            .edit(&shop, both(json!([range(31_351, 31_352, a)]), 31_350))
            .await;
        stage.ready(&shop).await;
    });
}

#[test]
fn entries_with_names_keep_their_objects_whatever_their_ports() {
    on_shared_site("named", async |stage| {
        let (a, b) = (entry(31_330, Some("a")), entry(31_331, Some("b")));
        let shop = cluster("named", "shop")
            .role(Role::Worker, 0)
            .with("/services/loadBalancerWorker", json!([a.clone(), b.clone()]));
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let before = made(stage, "named").await;
        let services: Api<Service> = Api::namespaced(stage.site.client(), "named");
        let of_a = services.get("loadbalancer-worker-shop-a").await.unwrap();
        assert_eq!(of_a.uid().unwrap(), before[&31_330].0);

        edit(stage, &shop, &[b.clone(), a]).await;
        assert_eq!(made(stage, "named").await, before);
        edit(stage, &shop, &[b, entry(31_332, Some("a"))]).await;
        let after = made(stage, "named").await;
        assert_eq!(after[&31_331], before[&31_331]);
        assert_eq!(after[&31_332].0, before[&31_330].0);

        // Another name is another load balancer, on the port of the one that goes.
        edit(stage, &shop, &[entry(31_331, Some("renamed"))]).await;
        let renamed = made(stage, "named").await;
        assert_ne!(renamed[&31_331].0, after[&31_331].0);
        never_in_conflict(stage, &shop);
    });
}
