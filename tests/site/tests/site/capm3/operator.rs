//! What the baremetal-operator writes to hosts, and what it leaves alone.

use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};
use metal3::health;
use sandbox::{audit::Entry, region::HOSTS_NAMESPACE, wait};
use serde_json::{Value, json};

use super::{
    ACCOUNT, NAMESPACE, account,
    machine_sets::{make_set, scale, start, until_running},
};
use crate::fixtures::{PATIENCE, Role, Stage, cluster, host, on_shared_site, sip_labels};

const OPERATED: &str = "operated";
const HOST: &str = "operated-a";

/// Writes to the host, in the order of their answers; those of its status, or the others.
fn writes(stage: &Stage, to_status: bool) -> Vec<Entry> {
    let mut entries = stage.site.audit_log_where(|line| line.contains(HOST)).unwrap();
    entries.retain(|entry| {
        let object = entry.object_ref.clone().unwrap_or_default();
        object.resource == "baremetalhosts"
            && object.name == HOST
            && ["patch", "update"].contains(&&*entry.verb)
            && (object.subresource == "status") == to_status
    });
    entries
}

#[tokio::test]
async fn labels_outlive_every_state_of_a_host() {
    let (stage, _tasks) = start(OPERATED, OPERATED, &["a"]).await;
    let note = json!({"metadata": {"annotations": {"example.org/note": "kept"}}});
    stage
        .hosts()
        .patch(HOST, &PatchParams::default(), &Patch::Merge(note))
        .await
        .unwrap();
    let shop = cluster(OPERATED, "shop").role(Role::Worker, 1);
    stage.create(&shop).await;
    stage.ready(&shop).await;
    let before = stage.hosts().get(HOST).await.unwrap();
    assert_eq!(sip_labels(&before).len(), 3);
    let user = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
    let by_others = || {
        let writes = writes(&stage, false).into_iter();
        writes.filter(|entry| entry.user.username != user).count()
    };
    let written = by_others();

    make_set(&stage, &shop, 1).await;
    until_running(&stage, 1).await;
    scale(&stage, 0).await;
    let back = wait::until(
        stage.hosts(),
        HOST,
        "be available without a consumer",
        PATIENCE,
        |host| {
            host.data["spec"]["consumerRef"].is_null()
                && host.data["status"]["provisioning"]["state"] == "available"
        },
    );
    let back = back.await.unwrap();
    assert_eq!(
        (back.labels(), back.annotations()),
        (before.labels(), before.annotations())
    );
    assert_eq!(by_others(), written, "nobody has put anything back");
    let states: Vec<Value> = writes(&stage, true)
        .into_iter()
        .filter(|entry| entry.user.username == user)
        .map(|entry| entry.request_object["status"]["provisioning"]["state"].clone())
        .collect();
    assert_eq!(
        states,
        ["provisioning", "provisioned", "deprovisioning", "available"]
    );
    let by_agents = stage.asked_by_agents().into_iter().filter(|entry| {
        let object = entry.object_ref.clone().unwrap_or_default();
        (&*object.resource, &*object.subresource) == ("baremetalhosts", "status")
    });
    assert_eq!(
        by_agents.count(),
        0,
        "only the baremetal-operator writes a status"
    );
    stage.nothing_was_forbidden();
}

#[test]
fn a_fault_of_a_bmc_is_reported_and_replaces_nobody() {
    on_shared_site("faulty", async |stage| {
        stage
            .load(&["a", "b"].map(|name| host("faulty", "worker", name, name)))
            .await;
        let shop = cluster("faulty", "shop").role(Role::Worker, 1);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let held = stage.labelled("faulty", &shop).await;
        let (name, _) = held.first_key_value().unwrap();
        let client = account(&stage.site).await;
        let asked = json!({"site": stage.site.name(), "namespace": HOSTS_NAMESPACE, "name": name});
        let fault = "condition Healthy is False";
        for (reported, reason) in [
            ("Critical", Some("CriticalError")),
            ("OK", None),
            ("Warning", Some("Warning")),
            ("Unheard-of", None),
        ] {
            health::report(client.clone(), HOSTS_NAMESPACE, name, reported)
                .await
                .unwrap();
            let expected = reason.map(|reason| format!("{fault}: {reason}"));
            stage
                .until_answer(
                    "sip.inventory.v1.InventoryService/GetHost",
                    asked.clone(),
                    |answer| {
                        let text = answer.to_string();
                        expected
                            .as_ref()
                            .map_or_else(|| !text.contains(fault), |expected| text.contains(expected))
                    },
                )
                .await;
        }
        stage.ready(&shop).await;
        assert_eq!(stage.labelled("faulty", &shop).await, held);
    });
}
