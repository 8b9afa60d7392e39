//! Load balancers whose configuration cannot be written: a pod that starts later would route to hosts that have left.

use k8s_openapi::api::core::v1::Service;
use kube::api::PostParams;
use sandbox::wait;
use serde_json::json;

use super::{
    objects,
    releases::{FIRST, behind, nothing_is_given_back, until_held},
    workers,
};
use crate::fixtures::{PATIENCE, fleet, on_shared_site};

#[test]
fn hosts_wait_for_a_refused_entry_without_a_running_pod() {
    on_shared_site("frozen", async |stage| {
        stage.load(&fleet("frozen", 3, 0, 1)).await;
        let of = objects(stage, "frozen");
        let theirs: Service = serde_json::from_value(json!({
            "metadata": {"name": "theirs", "namespace": "frozen"},
            "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 31_381}]},
        }))
        .unwrap();
        of.services.create(&PostParams::default(), &theirs).await.unwrap();
        // No node is as it asks for.
        let nowhere = json!({"nodeLabels": {"absent": "yes"}});
        let entry = |port: u16| json!([workers(port, port, &nowhere)]);
        let shop = behind("frozen", &[]).with("/services/loadBalancerWorker", entry(31_380));
        stage.create(&shop).await;
        stage
            .until(&shop, "have its hosts labelled", |object| {
                wait::is_true(object, "HostsLabeled")
            })
            .await;
        stage
            .condition_mentions(&shop, "LoadBalancerReady", "False", "Progressing", "pods")
            .await;

        let one_edit = json!({
            "nodes": {"Worker": {"count": {"active": 2}}}, "services": {"loadBalancerWorker": entry(31_381)},
        });
        stage.edit(&shop, one_edit).await;
        stage
            .condition_is(&shop, "LoadBalancerReady", "False", "PortConflict")
            .await;
        nothing_is_given_back(stage, "frozen", 3).await;

        stage
            .edit(&shop, json!({"services": {"loadBalancerWorker": null}}))
            .await;
        wait::until_gone(of.services, FIRST, PATIENCE).await.unwrap();
        until_held(stage, "frozen", 2).await;
        stage.ready(&shop).await;
    });
}
