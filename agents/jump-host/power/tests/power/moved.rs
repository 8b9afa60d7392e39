//! A jump host whose entry comes before others that are gone: it keeps its name, and what its pods may do.

use k8s_openapi::api::core::v1::Service;
use kube::{
    Api, Resource as _,
    api::{DeleteParams, Patch, PatchParams},
};
use proto::power::v1::GetHostRequest;
use serde_json::json;

use crate::{
    stage::{Stage, with_token},
    tenants::reason,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_jump_host_is_known_by_its_port_and_not_by_its_index() {
    let stage = Stage::start("power-moved", &["a"]).await;
    let orders = stage.cluster("shop", "orders").await;
    let host = stage.host("own", &stage.emulator.bmc_address("a")).await;
    stage.ledger.hold(&orders, &host, false);
    let kept = stage.jump_host(&orders, "jumphost-orders-1").await;
    let gone = stage.jump_host(&orders, "jumphost-orders").await;
    let (kept, gone) = (stage.token(&kept).await, stage.token(&gone).await);
    let mut client = stage.grpc();
    let mut ask = async |token: &str| {
        let request = GetHostRequest {
            host: "own".to_owned(),
        };
        let answer = client.get_host(with_token(request, token)).await;
        answer.map(drop).map_err(|status| reason(&status))
    };
    assert_eq!(ask(&kept).await, Err("NOT_A_JUMP_HOST".to_owned()));

    // The one entry of the cluster has the port of what was made for it when there was another one before it.
    let labels = json!({"app.kubernetes.io/part-of": "sip", "app.kubernetes.io/component": "jumphost"});
    let service = json!({
        "metadata": {
            "name": "jumphost-orders-1", "labels": labels,
            "ownerReferences": [orders.controller_owner_ref(&()).unwrap()],
        },
        "spec": {"type": "NodePort", "ports": [{"port": 22, "nodePort": 30_000}]},
    });
    stage.create::<Service>("shop", service).await;
    assert_eq!(ask(&kept).await, Ok(()));
    assert_eq!(ask(&gone).await, Err("NOT_A_JUMP_HOST".to_owned()));

    // Without the Service by what the status has recorded.
    let services = Api::<Service>::namespaced(stage.client(), "shop");
    let now = DeleteParams::default();
    services.delete("jumphost-orders-1", &now).await.unwrap();
    let recorded = json!({"status": {"endpoints": [{"name": "jumphost-orders-1", "port": 30_000}]}});
    let clusters = Api::<api::SIPCluster>::namespaced(stage.client(), "shop");
    clusters
        .patch_status("orders", &PatchParams::default(), &Patch::Merge(recorded))
        .await
        .unwrap();
    assert_eq!(ask(&kept).await, Ok(()));
    assert_eq!(ask(&gone).await, Err("NOT_A_JUMP_HOST".to_owned()));
}
