//! Clusters whose hosts the stand-in takes: it finds exactly those of each cluster and role.

use std::collections::BTreeSet;

use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};
use sandbox::{
    sip_clusters::{CLUSTER_NAME, NODE_TYPE},
    wait,
};
use serde_json::{Value, json};

use super::{Capm3, Claim, FAILURE_DOMAIN, Metal3Machine, NODE_REUSE, Pauses, metal3_machine, webhook};
use crate::fixtures::{
    AGENTS, PATIENCE, Role, Stage, cluster, fleet, given_back, held, host, members, on_shared_site,
};

#[test]
fn capm3_takes_exactly_the_hosts_of_its_cluster_and_role() {
    on_shared_site("capm3", async |stage| {
        stage.load(&fleet("capm3", 4, 2, 2)).await;
        let clusters = [("one", 30_630), ("two", 30_635)].map(|(name, port)| {
            cluster("capm3", name)
                .role(Role::ControlPlane, 3)
                .role(Role::Worker, 2)
                .balanced(port)
        });
        webhook::install(&stage.site).await;
        let mut capm3 = Capm3::install(&stage.site, Pauses::default(), 1).await;
        // One machine more than there are hosts, in each role: it must not find one.
        let machines: Vec<Metal3Machine> = clusters
            .iter()
            .flat_map(|cluster| {
                let of = |role, count| (0..=count).map(move |index| metal3_machine(cluster, role, index));
                of(Role::ControlPlane, 3).chain(of(Role::Worker, 2))
            })
            .collect();
        for one in &clusters {
            stage.create(one).await;
        }
        capm3.associate_all(&machines, 10).await;
        let mut placed = BTreeSet::new();
        for one in &clusters {
            let ready = stage.ready(one).await;
            let labelled = stage.labelled("capm3", one).await;
            assert_eq!(held(&members(&ready)), labelled);
            placed.extend(
                labelled
                    .into_iter()
                    .map(|(host, role)| (host, one.name.clone(), role)),
            );
        }
        let found: Vec<(String, &Metal3Machine)> = capm3
            .associate_all(&machines, 10)
            .await
            .into_iter()
            .zip(&machines)
            .filter_map(|(host, machine)| Some((host?, machine)))
            .collect();
        assert_eq!(found.len(), 10, "as many as there are hosts, and no more");
        let taken: BTreeSet<&str> = found.iter().map(|(host, _)| &**host).collect();
        assert_eq!(taken, placed.iter().map(|(host, ..)| &**host).collect());
        for (host, machine) in &found {
            let (_, cluster, role) = placed.iter().find(|(placed, ..)| placed == host).unwrap();
            assert!(
                machine
                    .selector
                    .ends_with(&format!("{CLUSTER_NAME}={cluster},{NODE_TYPE}={role}"))
            );
        }
        for host in stage.hosts_of("capm3").await {
            let used = host.data["spec"]
                .get("consumerRef")
                .is_some_and(|consumer| !consumer.is_null());
            assert_eq!(used, taken.contains(&*host.name_any()), "{:?}", host.metadata);
        }

        // The cluster is deleted: its hosts go back one by one, when their machines let them go.
        stage.delete(&clusters[0]).await;
        for (host, machine) in &found {
            if machine.cluster == "one" {
                assert_eq!(capm3.release(machine).await.as_ref(), Some(host));
            }
        }
        stage.gone(&clusters[0]).await;
        for host in stage.hosts_of("capm3").await {
            let of_the_other = placed
                .iter()
                .any(|(name, of, _)| *name == host.name_any() && of == "two");
            let of_the_one = placed
                .iter()
                .any(|(name, of, _)| *name == host.name_any() && of == "one");
            assert_eq!(
                given_back(&host),
                of_the_one && !of_the_other,
                "{:?}",
                host.metadata
            );
        }
    });
}

/// What a person or the baremetal-operator changes of a host.
async fn change(stage: &Stage, host: &str, patch: Value) {
    let patch = Patch::Merge(patch);
    stage
        .hosts()
        .patch(host, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

#[test]
fn capm3_passes_over_hosts_by_these_reasons() {
    on_shared_site("passed-over", async |stage| {
        let mut capm3 = Capm3::install(&stage.site, Pauses::default(), 1).await;
        stage.load(&[host("passed-over", "worker", "r1", "w1")]).await;
        let shop = cluster("passed-over", "shop").role(Role::Worker, 1);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let machine = metal3_machine(&shop, Role::Worker, 0);
        let name = "passed-over-w1";
        let annotation = |key: &str, value: Value| json!({"metadata": {"annotations": {key: value}}});
        for key in [
            "baremetalhost.metal3.io/paused",
            "capm3.metal3.io/unhealthy",
            "capi.metal3.io/unhealthy",
        ] {
            change(stage, name, annotation(key, json!(""))).await;
            assert_eq!(capm3.associate(&machine).await, Claim::NoHost, "{key}");
            change(stage, name, annotation(key, Value::Null)).await;
        }
        let label = |key: &str, value: Value| json!({"metadata": {"labels": {key: value}}});
        change(stage, name, label(NODE_REUSE, json!("other"))).await;
        assert_eq!(
            capm3.associate(&machine).await,
            Claim::NoHost,
            "kept for another owner"
        );
        let reusing = Metal3Machine {
            reuses_for: Some("other".to_owned()),
            ..machine.clone()
        };
        assert_eq!(capm3.associate(&reusing).await, Claim::Has(name.to_owned()));
        assert_eq!(capm3.release(&reusing).await.as_deref(), Some(name));
        assert_eq!(
            capm3.associate(&machine).await,
            Claim::NoHost,
            "the label stays when the Machine is gone"
        );
        change(stage, name, label(NODE_REUSE, Value::Null)).await;
        assert_eq!(capm3.associate(&machine).await, Claim::Has(name.to_owned()));
        capm3.release(&machine).await;
    });
}

#[test]
fn capm3_prefers_a_failure_domain_and_takes_another() {
    on_shared_site("domains", async |stage| {
        let mut capm3 = Capm3::install(&stage.site, Pauses::default(), 1).await;
        stage
            .load(&[
                host("domains", "worker", "r1", "w1"),
                host("domains", "worker", "r2", "w2"),
            ])
            .await;
        for (name, domain) in [("domains-w1", "east"), ("domains-w2", "west")] {
            change(
                stage,
                name,
                json!({"metadata": {"labels": {FAILURE_DOMAIN: domain}}}),
            )
            .await;
        }
        let shop = cluster("domains", "shop").role(Role::Worker, 2);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let west = |index| Metal3Machine {
            failure_domain: Some("west".to_owned()),
            ..metal3_machine(&shop, Role::Worker, index)
        };
        assert_eq!(
            capm3.associate(&west(0)).await,
            Claim::Has("domains-w2".to_owned())
        );
        assert_eq!(
            capm3.associate(&west(1)).await,
            Claim::Has("domains-w1".to_owned())
        );
    });
}

#[tokio::test]
async fn an_unwritable_host_gives_its_place_to_another() {
    let stage = Stage::start("unwritable", &AGENTS).await;
    stage.site.create_tenant_namespace("unwritable").await.unwrap();
    stage
        .load(&["a", "b"].map(|name| host("unwritable", "worker", name, name)))
        .await;
    let (first, second) = ("unwritable-a", "unwritable-b");
    change(&stage, first, json!({"spec": {"bootMACAddress": null}})).await;
    webhook::install(&stage.site).await;
    let note = Patch::Merge(json!({"metadata": {"annotations": {"note": ""}}}));
    let refused = stage
        .hosts()
        .patch(first, &PatchParams::default(), &note)
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("bootMACAddress"), "{refused}");
    let shop = cluster("unwritable", "shop").role(Role::Worker, 1);
    stage.create(&shop).await;
    stage.ready(&shop).await;
    let held = stage.labelled("unwritable", &shop).await;
    assert_eq!(held.keys().collect::<Vec<_>>(), [second]);
    let text = format!("metal/{first}: it cannot be released");
    stage
        .condition_mentions(&shop, "HostsLabeled", "True", "Labeled", &text)
        .await;
    let asked = json!({"site": stage.site.name(), "namespace": "metal", "name": first});
    stage
        .until_answer("sip.inventory.v1.InventoryService/GetHost", asked, |answer| {
            answer.to_string().contains("BootMACAddress")
        })
        .await;

    // It is corrected: it can be marked, and is free.
    let mac = json!({"spec": {"bootMACAddress": "52:54:00:00:00:01"}});
    change(&stage, first, mac).await;
    wait::until(stage.hosts(), first, "be released", PATIENCE, given_back)
        .await
        .unwrap();
    stage
        .edit(&shop, json!({"nodes": {"Worker": {"count": {"active": 2}}}}))
        .await;
    stage.ready(&shop).await;
    assert_eq!(stage.labelled("unwritable", &shop).await.len(), 2);
}

#[test]
fn webhook_refuses_any_write_to_a_redfish_host_without_mac() {
    on_shared_site("webhook", async |stage| {
        webhook::install(&stage.site).await;
        stage.load(&[host("webhook", "worker", "r1", "w1")]).await;
        let without = json!({"spec": {"bootMACAddress": null}});
        let refused = stage
            .hosts()
            .patch("webhook-w1", &PatchParams::default(), &Patch::Merge(without))
            .await
            .unwrap_err();
        assert!(refused.to_string().contains("bootMACAddress"), "{refused}");
    });
}
