//! `HostClaim`s on hosts of a `SIPCluster`: the baremetal-operator of the stand-in gives a tenant exactly the hosts of its clusters.

use std::fs;

use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, PostParams},
    core::GroupVersionKind,
};
use metal3::{
    host_claim::HostClaim,
    host_claims::HostClaims,
    names::{CLUSTER, CLUSTER_API_VERSION, DELETE_MACHINE, INFRASTRUCTURE_VERSION},
};
use sandbox::{region::HOSTS_NAMESPACE, repository, wait};
use serde_json::{Value, json};

use super::{Claim, account, machine_sets};
use crate::fixtures::{PATIENCE, Role, Stage, cluster, given_back, host, on_shared_site};

/// The tenant, and the cluster that its example is for.
const TENANT: &str = "shop";
const ORDERS: &str = "orders";
/// The `HostClaim` of the example, and the Machine that this test makes for it.
const CLAIM: &str = "orders-worker-0";

/// The objects of the example in `docs/cluster-api.md`.
fn example() -> String {
    let page = fs::read_to_string(repository::root().join("docs/cluster-api.md")).unwrap();
    let mut blocks = page.split("```yaml\n").skip(1);
    let block = blocks.find(|block| block.contains("kind: HostClaim")).unwrap();
    block.split("```").next().unwrap().to_owned()
}

fn objects(stage: &Stage, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(stage.site.client(), TENANT, &kind)
}

fn machines(stage: &Stage) -> Api<DynamicObject> {
    objects(stage, "cluster.x-k8s.io", "v1beta1", "Machine")
}

fn metal3_machines(stage: &Stage) -> Api<DynamicObject> {
    objects(
        stage,
        "infrastructure.cluster.x-k8s.io",
        "v1beta1",
        "Metal3Machine",
    )
}

fn host_claims(stage: &Stage) -> Api<DynamicObject> {
    objects(stage, "metal3.io", "v1alpha1", "HostClaim")
}

async fn make(api: &Api<DynamicObject>, object: Value) -> DynamicObject {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap()
}

/// A Machine of the Cluster, and the `Metal3Machine` that uses a `HostClaim`, as a provider would make them.
async fn make_machine(stage: &Stage) {
    let machine = json!({
        "apiVersion": CLUSTER_API_VERSION, "kind": "Machine",
        "metadata": {"name": CLAIM, "labels": {CLUSTER: ORDERS}}, "spec": {"clusterName": ORDERS},
    });
    let machine = make(&machines(stage), machine).await;
    let owner = json!({
        "apiVersion": CLUSTER_API_VERSION, "kind": "Machine", "name": CLAIM, "uid": machine.uid(), "controller": true,
    });
    let metal3_machine = json!({
        "apiVersion": INFRASTRUCTURE_VERSION, "kind": "Metal3Machine",
        "metadata": {"name": CLAIM, "labels": {CLUSTER: ORDERS}, "ownerReferences": [owner]}, "spec": {},
    });
    make(&metal3_machines(stage), metal3_machine).await;
}

async fn until_host(stage: &Stage, host: &str, what: &str, is_true: impl Fn(&DynamicObject) -> bool) {
    wait::until(stage.hosts(), host, what, PATIENCE, is_true)
        .await
        .unwrap();
}

#[tokio::test]
async fn the_documented_host_claim_gets_the_host_of_its_cluster() {
    let (stage, _tasks) = machine_sets::start("host-claims", TENANT, &["a", "b"]).await;
    let orders = cluster(TENANT, ORDERS).role(Role::Worker, 1);
    stage.create(&orders).await;
    stage.ready(&orders).await;
    let held = stage.labelled(TENANT, &orders).await;
    let (held, _) = held.first_key_value().unwrap();
    make_machine(&stage).await;
    stage.site.apply_yaml(&example()).await.unwrap();
    wait::until(host_claims(&stage), CLAIM, "have its host", PATIENCE, |claim| {
        claim.data["status"]["bareMetalHost"]["name"] == **held
    })
    .await
    .unwrap();
    until_host(&stage, held, "be provisioned", |host| {
        host.data["spec"]["consumerRef"]["kind"] == "HostClaim"
            && host.data["status"]["provisioning"]["state"] == "provisioned"
    })
    .await;
    stage
        .until(&orders, "count it as bound", |object| {
            object.data["status"]["roles"][0]["bound"] == 1
        })
        .await;
    stage.ready(&orders).await;

    // The cluster shrinks: the Machine behind the claim is asked to go, and named.
    stage
        .edit(&orders, json!({"nodes": {"Worker": {"count": {"active": 0}}}}))
        .await;
    let machine = format!("Machine {TENANT}/{CLAIM}");
    stage
        .condition_mentions(&orders, "HostsLabeled", "False", "Waiting", &machine)
        .await;
    wait::until(machines(&stage), CLAIM, "be marked", PATIENCE, |machine| {
        machine.annotations().contains_key(DELETE_MACHINE)
    })
    .await
    .unwrap();
    let still = stage.hosts().get(held).await.unwrap();
    assert!(!given_back(&still), "it is used: {:?}", still.metadata);

    // Its provider deletes the claim with the Machine.
    let params = DeleteParams::default();
    host_claims(&stage).delete(CLAIM, &params).await.unwrap();
    machines(&stage).delete(CLAIM, &params).await.unwrap();
    wait::until_gone(host_claims(&stage), CLAIM, PATIENCE)
        .await
        .unwrap();
    until_host(&stage, held, "be released", given_back).await;
    stage.ready(&orders).await;
    stage.nothing_was_forbidden();
}

#[test]
fn a_host_claim_gets_no_host_of_others() {
    on_shared_site("claims", async |stage| {
        stage
            .load(&["a", "b"].map(|name| host("claims", "worker", name, name)))
            .await;
        let shop = cluster("claims", "shop").role(Role::Worker, 1);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let held = stage.labelled("claims", &shop).await;
        let (held, _) = held.first_key_value().unwrap();
        let free = ["claims-a", "claims-b"]
            .into_iter()
            .find(|name| name != held)
            .unwrap();
        let provider = HostClaims::new(account(&stage.site).await, HOSTS_NAMESPACE, 1);
        let claim_in = |namespace: &str| HostClaim {
            namespace: namespace.to_owned(),
            name: "c-0".to_owned(),
            in_namespace: None,
            selector: String::new(),
            failure_domain: None,
            powered_on: true,
        };
        for (tenant, name, rule) in [
            ("claims", free, "it belongs to no SIPCluster"),
            ("thief", &**held, "whose consumers are in namespace claims"),
        ] {
            let chosen = stage.hosts().get(name).await.unwrap();
            let came = provider.claim(&claim_in(tenant), &chosen).await.unwrap();
            let Some(Claim::Refused { host, words }) = came else {
                panic!("{came:?}");
            };
            assert_eq!(host, name);
            assert!(words.contains(rule), "{words}");
        }

        // It is chosen while it is the cluster's, and written after it was released.
        let chosen = stage.hosts().get(held).await.unwrap();
        stage
            .edit(&shop, json!({"nodes": {"Worker": {"count": {"active": 0}}}}))
            .await;
        until_host(stage, held, "be released", given_back).await;
        let late = provider.claim(&claim_in("claims"), &chosen).await.unwrap();
        assert_eq!(late, None);
        let host = stage.hosts().get(held).await.unwrap();
        assert!(host.data["spec"]["consumerRef"].is_null(), "{:?}", host.data);
    });
}
