//! Hosts that are held for a `SIPCluster` that does not exist: an operator orders their release, and the agent completes it.

use kube::{
    ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams},
};
use sandbox::{
    inventory::Host,
    sip_clusters::{CLUSTER_NAME, CLUSTER_NAMESPACE, NODE_TYPE},
    wait,
};
use serde_json::{Value, json};

use crate::fixtures::{
    PATIENCE, Role, Stage, cluster, fleet, given_back, host, on_shared_site, set_consumer, sip_labels,
};

const PLACEMENT: &str = "sip.placement.v1.PlacementService";
const INVENTORY: &str = "sip.inventory.v1.InventoryService";

/// A host whose labels name a `SIPCluster` of the scenario that does not exist.
fn orphan(scenario: &str, name: &str) -> Host {
    host(scenario, "worker", "r1", name)
        .label(CLUSTER_NAMESPACE, scenario)
        .label(CLUSTER_NAME, "never")
        .label(NODE_TYPE, "Worker")
}

/// Waits until the scheduler says of a host what it should.
async fn scheduler_says(stage: &Stage, host: &str, true_now: impl Fn(&Value) -> bool) -> Value {
    let asked = json!({"site": "shared", "namespace": "metal", "name": host});
    stage
        .until_answer(&format!("{INVENTORY}/GetHost"), asked, |answer| {
            true_now(&answer["host"])
        })
        .await
}

async fn forge_placement(stage: &Stage, placement: Value) {
    let patch = Patch::Merge(json!({"status": {"placement": placement}}));
    stage
        .clusters("orphan")
        .patch_status("forged", &PatchParams::default(), &patch)
        .await
        .unwrap();
}

async fn release(stage: &Stage, host: &DynamicObject) {
    let host = json!({"namespace": "metal", "name": host.name_any(), "uid": host.uid()});
    stage
        .call(
            &format!("{PLACEMENT}/ReleaseOrphan"),
            json!({"site": "shared", "host": host}),
        )
        .await;
}

#[test]
fn an_orphan_that_an_operator_releases_is_unlabelled_and_free() {
    on_shared_site("orphan", async |stage| {
        stage
            .load(&[orphan("orphan", "left"), orphan("orphan", "used")])
            .await;
        set_consumer(
            stage,
            "orphan-used",
            json!({"apiVersion": "v1", "kind": "Metal3Machine", "namespace": "orphan", "name": "m-0"}),
        )
        .await;
        scheduler_says(stage, "orphan-left", |host| {
            host["host"]["labels"][CLUSTER_NAME] == "never"
        })
        .await;
        scheduler_says(stage, "orphan-used", |host| {
            host["host"]["consumer"]["name"] == "m-0"
        })
        .await;
        let shop = cluster("orphan", "shop").role(Role::Worker, 1);
        stage.create(&shop).await;
        stage.condition_is(&shop, "Ready", "False", "Unschedulable").await;

        // A status that claims an epoch that no scheduler has answered from is of no concern to other clusters.
        stage
            .create(&cluster("orphan", "forged").role(Role::Worker, 0))
            .await;
        forge_placement(
            stage,
            json!({"epoch": 9_000_000_000_u64, "revision": 1, "generation": 1}),
        )
        .await;

        for host in stage.hosts_of("orphan").await {
            release(stage, &host).await;
        }

        stage.ready(&shop).await;
        let took = stage.labelled("orphan", &shop).await;
        assert_eq!(took.keys().collect::<Vec<_>>(), ["orphan-left"]);

        // One in use is waited for, without a `SIPCluster` too.
        let used = stage.hosts().get("orphan-used").await.unwrap();
        assert_eq!(sip_labels(&used).len(), 3, "{:?}", used.metadata);
        set_consumer(stage, "orphan-used", Value::Null).await;
        wait::until(
            stage.hosts(),
            "orphan-used",
            "the host to be released",
            PATIENCE,
            given_back,
        )
        .await
        .unwrap();
        scheduler_says(stage, "orphan-used", |host| host.get("holder").is_none()).await;
        let asked = json!({"site": "shared", "namespace": "orphan"});
        let placements = stage.call(&format!("{PLACEMENT}/ListPlacements"), asked).await;
        let others = placements["placements"].as_array().unwrap().iter();
        assert_eq!(
            others
                .filter(|placed| placed["cluster"]["name"] != "forged")
                .count(),
            1,
            "the release has ended: {placements}"
        );
        forge_placement(stage, Value::Null).await;
    });
}

#[test]
fn a_cluster_without_its_finalizer_still_releases_its_hosts() {
    on_shared_site("stripped", async |stage| {
        stage.load(&fleet("stripped", 2, 0, 1)).await;
        let shop = cluster("stripped", "shop").role(Role::Worker, 2);
        stage.create(&shop).await;
        stage.ready(&shop).await;

        let consumer =
            json!({"apiVersion": "v1", "kind": "Metal3Machine", "namespace": "stripped", "name": "m-0"});
        for host in ["stripped-r1-w1", "stripped-r2-w1"] {
            set_consumer(stage, host, consumer.clone()).await;
        }
        stage.delete(&shop).await;
        stage.condition_is(&shop, "Ready", "False", "Progressing").await;
        let stripped = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        stage
            .clusters("stripped")
            .patch("shop", &PatchParams::default(), &stripped)
            .await
            .unwrap();
        stage.gone(&shop).await;

        for host in ["stripped-r1-w1", "stripped-r2-w1"] {
            set_consumer(stage, host, Value::Null).await;
        }

        stage
            .until_hosts("stripped", "be released", |hosts| {
                hosts.len() == 2 && hosts.iter().all(|host| given_back(host))
            })
            .await;
        for host in ["stripped-r1-w1", "stripped-r2-w1"] {
            scheduler_says(stage, host, |host| host.get("holder").is_none()).await;
        }
    });
}
