//! The ways in which a host moves from one tenant to the other, and back.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use sandbox::inventory::{Host, NETWORK};
use serde_json::{Value, json};

use super::ground::{BANK, SCENARIO, SHOP, TAKEN, shops};
use crate::{
    balancers::releases::may_list_pods,
    fixtures::{Cluster, Stage, make_again, members, set_consumer},
};

/// A host that waits for pods stays for so long at least.
const STAYS: Duration = Duration::from_secs(3);

pub(super) fn entries(ports: &[u16]) -> Value {
    let entry = |port: &u16| {
        json!({
            "image": "haproxy:2.8", "nodeInterfaceId": NETWORK, "replicas": 1,
            "nodePortRange": {"start": port, "end": port},
        })
    };
    ports.iter().map(entry).collect()
}

/// The ways in which a host leaves a tenant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Move {
    /// It wants one less.
    Shrink,
    /// The same edit drops a load balancer.
    Drop,
    /// The same edit asks for a port that is taken, and the port becomes free later.
    Refuse,
    /// The same edit asks for a port that is taken, and a later one drops that load balancer.
    RefuseThenDrop,
    /// It is deleted while one of its hosts is in use.
    Delete,
    /// It wants one less while the load-balancer agent may not list pods.
    Unlisted,
    /// The `BareMetalHost` is deleted and made again, and does not fit the tenant any more; only then it wants one less.
    MadeAgain,
}

pub(super) const MOVES: [Move; 7] = [
    Move::Delete,
    Move::Shrink,
    Move::Drop,
    Move::Refuse,
    Move::RefuseThenDrop,
    Move::Unlisted,
    Move::MadeAgain,
];

async fn wants(stage: &Stage, of: &Cluster, workers: u32, ports: &[u16]) {
    let edit = json!({
        "nodes": {"Worker": {"count": {"active": workers}}},
        "services": {"loadBalancerWorker": entries(ports)},
    });
    stage.edit(of, edit).await;
}

async fn holds(stage: &Stage, of: &Cluster, wanted: usize) {
    let bound = |object: &DynamicObject| {
        let members = members(object);
        members.len() == wanted && members.iter().all(|member| member.state == "Bound")
    };
    stage.until(of, &format!("hold {wanted} hosts"), bound).await;
}

/// Somebody has the port that the shop asks for; it is told so, and its hosts stay.
async fn refuse(stage: &Stage, shop: &Cluster) {
    let services: Api<Service> = Api::namespaced(stage.site.client(), SCENARIO);
    let theirs = json!({
        "metadata": {"name": "theirs"},
        "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": TAKEN}]},
    });
    let theirs = serde_json::from_value(theirs).unwrap();
    services.create(&PostParams::default(), &theirs).await.unwrap();
    wants(stage, shop, 1, &[SHOP[0], TAKEN]).await;
    stage
        .condition_is(shop, "LoadBalancerReady", "False", "PortConflict")
        .await;
    stays(stage, "the refused load balancer still routes there").await;
}

/// The shop has both hosts, and has them after a while.
async fn stays(stage: &Stage, why: &str) {
    tokio::time::sleep(STAYS).await;
    let held = stage.clusters(SCENARIO).get("shop").await.unwrap();
    assert_eq!(members(&held).len(), 2, "{why}");
}

/// Moves one host from the shop, which has two, to the bank.
pub(super) async fn depart(stage: &Stage, (shop, bank): (&Cluster, &Cluster), hosts: &[Host], how: Move) {
    wants(stage, bank, 2, &[BANK]).await;
    match how {
        Move::Shrink => {
            wants(stage, shop, 1, &SHOP).await;
        }
        Move::Drop => {
            wants(stage, shop, 1, &SHOP[..1]).await;
        }
        Move::Refuse | Move::RefuseThenDrop => {
            refuse(stage, shop).await;
            let services: Api<Service> = Api::namespaced(stage.site.client(), SCENARIO);
            if matches!(how, Move::RefuseThenDrop) {
                wants(stage, shop, 1, &SHOP[..1]).await;
                holds(stage, bank, 2).await;
            }
            services.delete("theirs", &DeleteParams::default()).await.unwrap();
        }
        Move::Delete => {
            let held = stage.clusters(SCENARIO).get("shop").await.unwrap();
            let used = members(&held)[0].name.clone();
            let machine =
                json!({"apiVersion": "v1", "kind": "Metal3Machine", "namespace": SCENARIO, "name": "m-0"});
            set_consumer(stage, &used, machine).await;
            stage.delete(shop).await;
            holds(stage, bank, 2).await;
            tokio::time::sleep(STAYS).await;
            set_consumer(stage, &used, Value::Null).await;
            stage.gone(shop).await;
            return;
        }
        Move::Unlisted => {
            may_list_pods(stage, false).await;
            wants(stage, shop, 1, &SHOP).await;
            stays(stage, "what is not listed may route there").await;
            may_list_pods(stage, true).await;
        }
        Move::MadeAgain => {
            let held = stage.clusters(SCENARIO).get("shop").await.unwrap();
            let again = members(&held)[0].name.clone();
            let host = hosts.iter().find(|host| host.name == again).unwrap();
            make_again(stage, host).await;
            stays(stage, "its load balancers still route to the machine").await;
            wants(stage, shop, 1, &SHOP).await;
        }
    }
    holds(stage, bank, 2).await;
    holds(stage, shop, 1).await;
}

/// Moves it back.
pub(super) async fn come_back(stage: &Stage, (shop, bank): (&Cluster, &Cluster), how: Move) {
    match how {
        Move::Delete => {
            stage.create(shop).await;
        }
        Move::MadeAgain => {
            for host in &stage.hosts_of(SCENARIO).await {
                let patch = Patch::Merge(shops(Some("yes")));
                let name = host.metadata.name.as_deref().unwrap();
                let patched = stage.hosts().patch(name, &PatchParams::default(), &patch).await;
                patched.unwrap();
            }
            wants(stage, shop, 2, &SHOP).await;
        }
        Move::Shrink | Move::Drop | Move::Refuse | Move::RefuseThenDrop | Move::Unlisted => {
            wants(stage, shop, 2, &SHOP).await;
        }
    }
    wants(stage, bank, 1, &[BANK]).await;
    holds(stage, bank, 1).await;
    holds(stage, shop, 2).await;
    stage.ready(shop).await;
    stage.ready(bank).await;
}
