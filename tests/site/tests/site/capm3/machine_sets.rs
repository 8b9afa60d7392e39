//! `MachineSet`s on hosts of a SIPCluster: the stand-in's controllers make and delete Machines, and Kubernetes' garbage collector runs.

use std::{sync::Arc, time::Duration};

use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use metal3::{
    controller::{Controller, Settings},
    names::{CLUSTER_API_VERSION, HOST, UNHEALTHY},
};
use sandbox::{
    region::{HOSTS_NAMESPACE, Region},
    repository,
    sip_clusters::{CLUSTER_NAME, CLUSTER_NAMESPACE, NODE_TYPE},
    site::{Nodes, Site},
    wait,
};
use serde_json::json;
use tokio::task::JoinSet;

use super::{Pauses, account};
use crate::fixtures::{AGENTS, Cluster, PATIENCE, Role, Stage, cluster, given_back, host};

const SCENARIO: &str = "sets";
const SET: &str = "shop-ms";

/// A site with Cluster API's kinds from the start: the garbage collector learns of later ones once in 30 s.
pub(super) async fn start(name: &str, scenario: &str, hosts: &[&str]) -> (Stage, JoinSet<()>) {
    let region = Arc::new(Region::start("north").await.unwrap());
    let builder = Site::builder(name)
        .nodes(Nodes::Kwok(2))
        .crds([repository::root().join("tests/metal3/crds.yaml")]);
    let stage = Stage::start_with(region, builder, &[HOSTS_NAMESPACE], &AGENTS).await;
    stage.site.create_tenant_namespace(scenario).await.unwrap();
    for name in hosts {
        stage.load(&[host(scenario, "worker", name, name)]).await;
    }
    let settings = Settings {
        pauses: Pauses::default(),
        period: Duration::from_millis(100),
        seed: 1,
        operates_hosts: true,
    };
    let controller = Controller::new(account(&stage.site).await, HOSTS_NAMESPACE, settings);
    let mut tasks = JoinSet::new();
    tasks.spawn(controller.run(|error| println!("the stand-in tries again: {error}")));
    (stage, tasks)
}

fn objects(stage: &Stage, group: &str, kind: &str) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1beta1", kind));
    Api::namespaced_with(stage.site.client(), HOSTS_NAMESPACE, &kind)
}

fn metal3_machines(stage: &Stage) -> Api<DynamicObject> {
    objects(stage, "infrastructure.cluster.x-k8s.io", "Metal3Machine")
}

fn machines(stage: &Stage) -> Api<DynamicObject> {
    objects(stage, "cluster.x-k8s.io", "Machine")
}

/// A template for the workers of a cluster, and a `MachineSet` of it.
pub(super) async fn make_set(stage: &Stage, shop: &Cluster, replicas: u32) {
    let selector = json!({"matchLabels": {
        CLUSTER_NAMESPACE: shop.namespace, CLUSTER_NAME: shop.name, NODE_TYPE: Role::Worker.name(),
    }});
    let template = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3MachineTemplate",
        "metadata": {"name": "shop-workers"},
        "spec": {"template": {"spec": {"hostSelector": selector}}},
    });
    let set = json!({
        "apiVersion": CLUSTER_API_VERSION, "kind": "MachineSet", "metadata": {"name": SET},
        "spec": {
            "clusterName": shop.name, "replicas": replicas,
            "template": {"spec": {"infrastructureRef": {"name": "shop-workers"}}},
        },
    });
    let templates = objects(stage, "infrastructure.cluster.x-k8s.io", "Metal3MachineTemplate");
    for (api, object) in [
        (templates, template),
        (objects(stage, "cluster.x-k8s.io", "MachineSet"), set),
    ] {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }
}

pub(super) async fn scale(stage: &Stage, replicas: u32) {
    let sets = objects(stage, "cluster.x-k8s.io", "MachineSet");
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    sets.patch(SET, &PatchParams::default(), &patch).await.unwrap();
}

pub(super) async fn until_running(stage: &Stage, count: u64) {
    let sets = objects(stage, "cluster.x-k8s.io", "MachineSet");
    wait::until(sets, SET, "have its Machines running", PATIENCE, |set| {
        set.data["status"]["readyReplicas"] == count && set.data["status"]["replicas"] == count
    })
    .await
    .unwrap();
}

/// The `Metal3Machine` on a host.
async fn on(stage: &Stage, host: &str) -> DynamicObject {
    let all = metal3_machines(stage)
        .list(&ListParams::default())
        .await
        .unwrap()
        .items;
    let name = format!("{HOSTS_NAMESPACE}/{host}");
    let mut found = all
        .into_iter()
        .filter(|machine| machine.annotations().get(HOST) == Some(&name));
    found.next().unwrap()
}

#[tokio::test]
async fn a_shrink_deletes_the_machine_that_was_annotated() {
    let (stage, _tasks) = start("annotated", SCENARIO, &["a", "b", "c"]).await;
    let shop = cluster(SCENARIO, "shop").role(Role::Worker, 3);
    stage.create(&shop).await;
    stage.ready(&shop).await;
    make_set(&stage, &shop, 3).await;
    until_running(&stage, 3).await;

    // Without the annotation the first by name would go.
    stage
        .edit(&shop, json!({"nodes": {"Worker": {"count": {"active": 2}}}}))
        .await;
    let text = format!("scale MachineSet {SET} down");
    let why = stage
        .condition_mentions(&shop, "HostsLabeled", "False", "Waiting", &text)
        .await;
    let victim = why
        .split(": to be released")
        .next()
        .unwrap()
        .rsplit('/')
        .next()
        .unwrap()
        .to_owned();
    let machine = on(&stage, &victim).await.name_any();
    scale(&stage, 2).await;
    wait::until_gone(machines(&stage), &machine, PATIENCE)
        .await
        .unwrap();
    wait::until(stage.hosts(), &victim, "be released", PATIENCE, given_back)
        .await
        .unwrap();
    stage.ready(&shop).await;
    until_running(&stage, 2).await;

    // Remediation gives up on a host: its member is replaced, a person deletes the Machine, and its successor takes the replacement.
    let left = ["a", "b", "c"].map(|name| format!("{SCENARIO}-{name}"));
    let broken = left.iter().find(|name| **name != victim).unwrap();
    let broken_machine = on(&stage, broken).await.name_any();
    let remediation = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Remediation",
        "metadata": {"name": broken_machine}, "spec": {"strategy": {"type": "Reboot", "retryLimit": 1, "timeout": "0s"}},
    });
    let remediation: DynamicObject = serde_json::from_value(remediation).unwrap();
    let remediations = objects(&stage, "infrastructure.cluster.x-k8s.io", "Metal3Remediation");
    remediations
        .create(&PostParams::default(), &remediation)
        .await
        .unwrap();
    wait::until(
        stage.hosts(),
        broken,
        "be marked as unhealthy",
        PATIENCE,
        |host| host.annotations().contains_key(UNHEALTHY),
    )
    .await
    .unwrap();
    let given_up = machines(&stage).get(&broken_machine).await.unwrap();
    let remediated = wait::condition(&given_up, "OwnerRemediated");
    assert_eq!(remediated.map(|(status, ..)| status), Some("False"));
    let advice =
        format!("delete Machine metal/{broken_machine} of this host, and do not scale MachineSet {SET} down");
    stage
        .condition_mentions(&shop, "HostsLabeled", "False", "Waiting", &advice)
        .await;
    machines(&stage)
        .delete(&broken_machine, &DeleteParams::default())
        .await
        .unwrap();
    wait::until(stage.hosts(), broken, "be released", PATIENCE, given_back)
        .await
        .unwrap();
    until_running(&stage, 2).await;
    assert!(
        on(&stage, &victim).await.annotations().contains_key(HOST),
        "it has the replacement"
    );
    stage.ready(&shop).await;
    stage.nothing_was_forbidden();
}

#[tokio::test]
async fn a_collected_host_is_reported_apart_from_a_deleted_one() {
    let (stage, _tasks) = start("collected", SCENARIO, &["a", "b"]).await;
    let shop = cluster(SCENARIO, "shop").role(Role::Worker, 2);
    stage.create(&shop).await;
    stage.ready(&shop).await;
    make_set(&stage, &shop, 2).await;
    until_running(&stage, 2).await;

    // A person deletes a host: its Machine goes on.
    let [first, second] = ["a", "b"].map(|name| format!("{SCENARIO}-{name}"));
    let machine = on(&stage, &first).await.name_any();
    stage
        .hosts()
        .delete(&first, &DeleteParams::default())
        .await
        .unwrap();
    let gone = format!("{first} (Worker): its BareMetalHost is gone");
    let advice = format!(
        "{gone}; its Machine no longer has a host: delete Machine metal/{machine} of this host, and do not scale MachineSet {SET} down"
    );
    stage.event(&shop, "HostFailed", &advice).await;
    let found = machines(&stage).get(&machine).await.unwrap();
    assert_eq!(
        found.data["status"]["phase"], "Running",
        "Cluster API does not notice"
    );

    // The person does so: why the host is gone stays what it was, though its owner is gone as well now.
    machines(&stage)
        .delete(&machine, &DeleteParams::default())
        .await
        .unwrap();
    wait::until_gone(machines(&stage), &machine, PATIENCE)
        .await
        .unwrap();
    let touch = Patch::Merge(json!({"metadata": {"annotations": {"touched": "1"}}}));
    let clusters = stage.clusters(SCENARIO);
    clusters
        .patch(&shop.name, &PatchParams::default(), &touch)
        .await
        .unwrap();
    let labelled = |object: &DynamicObject| {
        let (_, _, message) = wait::condition(object, "HostsLabeled")?;
        Some(message.to_owned()).filter(|message| message.contains("its BareMetalHost is gone"))
    };
    let object = stage
        .until(&shop, "advise nothing any more", |object| {
            labelled(object).is_some_and(|why| !why.contains("delete Machine"))
        })
        .await;
    let why = labelled(&object).unwrap();
    assert!(!why.contains("garbage collector"), "{why}");

    // The Metal3Machine of the other goes without letting its host go, as when somebody removes its finalizer.
    let metal3_machine = on(&stage, &second).await;
    let owners = stage
        .hosts()
        .get(&second)
        .await
        .unwrap()
        .metadata
        .owner_references
        .unwrap();
    assert_eq!(
        owners.iter().map(|owner| &*owner.uid).collect::<Vec<_>>(),
        [metal3_machine.uid().unwrap()]
    );
    let (name, params) = (metal3_machine.name_any(), PatchParams::default());
    let all = metal3_machines(&stage);
    let finalizers = Patch::Merge(json!({"metadata": {"finalizers": []}}));
    all.patch(&name, &params, &finalizers).await.unwrap();
    all.delete(&name, &DeleteParams::default()).await.unwrap();
    wait::until_gone(stage.hosts(), &second, PATIENCE).await.unwrap();
    let collected = format!(
        "the garbage collector of Kubernetes deleted the host, because the owner of the host, Metal3Machine metal/{name}, was gone"
    );
    // Its Event counts in that of the first host.
    stage
        .condition_mentions(&shop, "HostsLabeled", "False", "Waiting", &collected)
        .await;
    stage.nothing_was_forbidden();
}
