//! Replicas of Cluster API's objects that follow the hosts of a role. Cluster API does not run: what it would do to Machines and
//! consumers the scenario does.

mod admitted;

use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use sandbox::{audit::Entry, repository, site::Site, wait};
use serde_json::{Value, json};

use crate::fixtures::{
    AGENTS, Cluster, PATIENCE, Role, Stage, cluster, fleet, given_back, members, set_consumer,
};

const HOSTS: &str = "metal";
const TENANT: &str = "scaled";
const STRANGER: &str = "scaled-too";
const DELETE: &str = "cluster.x-k8s.io/delete-machine";
/// Group, version and kind.
type Kind = (&'static str, &'static str, &'static str);
const DEPLOYMENT: Kind = ("cluster.x-k8s.io", "v1beta2", "MachineDeployment");
const CONTROL_PLANE: Kind = ("controlplane.cluster.x-k8s.io", "v1beta1", "KubeadmControlPlane");
const TEMPLATE: Kind = (
    "infrastructure.cluster.x-k8s.io",
    "v1beta1",
    "Metal3MachineTemplate",
);
const MACHINE: Kind = ("cluster.x-k8s.io", "v1beta1", "Machine");
const METAL3_MACHINE: Kind = ("infrastructure.cluster.x-k8s.io", "v1beta1", "Metal3Machine");

/// Installs the kinds of Cluster API.
pub(crate) async fn install(site: &Site) {
    let path = repository::root().join("tests/metal3/crds.yaml");
    let apply = ["apply", "-f", &path.display().to_string()];
    site.kubectl_ok(&apply).await.unwrap();
    let established = [
        "wait",
        "--for=condition=Established",
        "--timeout=60s",
        "crd",
        "--all",
    ];
    site.kubectl_ok(&established).await.unwrap();
}

fn api(stage: &Stage, (group, version, kind): Kind) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(stage.site.client(), HOSTS, &resource)
}

async fn create(stage: &Stage, of: Kind, name: &str, rest: Value) -> DynamicObject {
    let (group, version, kind) = of;
    let mut object = rest;
    object["apiVersion"] = format!("{group}/{version}").into();
    object["kind"] = kind.into();
    object["metadata"]["name"] = name.into();
    let object = serde_json::from_value(object).unwrap();
    api(stage, of)
        .create(&PostParams::default(), &object)
        .await
        .unwrap()
}

/// What a person writes for one role of a cluster.
async fn templates(stage: &Stage, shop: &Cluster) {
    for role in ["Worker", "ControlPlane"] {
        let selector = json!({"matchLabels": {
            "sip.airshipit.org/cluster-namespace": shop.namespace, "sip.airshipit.org/cluster-name": shop.name,
            "sip.airshipit.org/node-type": role,
        }});
        let spec = json!({"spec": {"template": {"spec": {"hostSelector": selector}}}});
        create(stage, TEMPLATE, &format!("shop-{}", role.to_lowercase()), spec).await;
    }
    let reference =
        |role: &str| json!({"apiGroup": TEMPLATE.0, "kind": TEMPLATE.2, "name": format!("shop-{role}")});
    let workers = json!({"clusterName": "shop", "replicas": 1, "selector": {"a": "b"},
        "template": {"spec": {"version": "v1.36.0", "infrastructureRef": reference("worker")}}});
    create(stage, DEPLOYMENT, "shop-md", json!({"spec": workers})).await;
    let mut old = reference("controlplane");
    old["apiVersion"] = format!("{}/{}", TEMPLATE.0, TEMPLATE.1).into();
    old.as_object_mut().unwrap().remove("apiGroup");
    let control_plane =
        json!({"replicas": 1, "version": "v1.36.0", "machineTemplate": {"infrastructureRef": old}});
    let labels = json!({"labels": {"cluster.x-k8s.io/cluster-name": "shop"}});
    create(
        stage,
        CONTROL_PLANE,
        "shop",
        json!({"metadata": labels, "spec": control_plane}),
    )
    .await;
}

/// A Machine of the workers on a host, as Cluster API and its provider make it.
async fn uses(stage: &Stage, host: &str) {
    let labels = json!({"labels": {
        "cluster.x-k8s.io/deployment-name": "shop-md", "cluster.x-k8s.io/cluster-name": "shop"}});
    let machine = create(
        stage,
        MACHINE,
        &format!("{host}-machine"),
        json!({"metadata": labels}),
    )
    .await;
    let owner = json!({"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine", "controller": true,
        "name": machine.name_any(), "uid": machine.uid()});
    let owned = json!({"metadata": {"ownerReferences": [owner]}});
    let metal3 = create(stage, METAL3_MACHINE, &format!("{host}-m3m"), owned).await;
    let consumer = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": METAL3_MACHINE.2,
        "namespace": HOSTS, "name": metal3.name_any()});
    set_consumer(stage, host, consumer).await;
}

async fn until_replicas(stage: &Stage, of: Kind, name: &str, replicas: u32) -> DynamicObject {
    let what = format!("{} {name} to have {replicas} replicas", of.2);
    wait::until(api(stage, of), name, &what, PATIENCE, |object| {
        object.data["spec"]["replicas"] == replicas
    })
    .await
    .unwrap()
}

/// Position of the first request of the agents from this position on that fits.
fn first(all: &[Entry], from: usize, what: &str, fits: impl Fn(&Entry) -> bool) -> usize {
    let found = all.iter().enumerate().skip(from).find(|(_, entry)| fits(entry));
    found.unwrap_or_else(|| panic!("the agents did not {what}")).0
}

fn sets_replicas(entry: &Entry, replicas: u32) -> bool {
    let object = entry.object_ref.clone().unwrap_or_default();
    let asked = entry.request_object.pointer("/spec/replicas");
    object.resource == "machinedeployments" && entry.verb == "patch" && asked == Some(&json!(replicas))
}

fn patches(entry: &Entry, resource: &str, name: &str) -> bool {
    let object = entry.object_ref.clone().unwrap_or_default();
    entry.verb == "patch" && object.resource == resource && object.name == name
}

const SYNCED: &str = "ClusterAPISynced";

#[tokio::test]
async fn replicas_follow_hosts_and_nobody_elses_do() {
    let stage = Stage::start("scaled", &AGENTS).await;
    install(&stage.site).await;
    for tenant in [TENANT, STRANGER] {
        stage.site.create_tenant_namespace(tenant).await.unwrap();
    }
    stage.load(&fleet(TENANT, 3, 1, 1)).await;
    stage.load(&fleet(STRANGER, 1, 0, 1)).await;
    let section = json!({"replicas": {
        "Worker": {"machineDeployment": "shop-md"}, "ControlPlane": {"kubeadmControlPlane": "shop"},
    }});
    let shop = cluster(TENANT, "shop")
        .role(Role::ControlPlane, 3)
        .role(Role::Worker, 2)
        .with("/clusterAPI", section);
    templates(&stage, &shop).await;
    follows_once_it_may(&stage, &shop).await;
    goes_up_behind_labels(&stage, &shop).await;
    goes_down_behind_marks(&stage, &shop).await;
    not_for_a_stranger(&stage).await;
    not_for_ever_against_who_sets_them_back(&stage, &shop).await;
    not_against_who_applies(&stage, &shop).await;
}

/// A site grants the rights for it, or does not; and nothing of an object changes but its replicas.
async fn follows_once_it_may(stage: &Stage, shop: &Cluster) {
    let before = api(stage, DEPLOYMENT).get("shop-md").await.unwrap();
    stage.create(shop).await;
    let what = "apply the component deploy/agents/cluster-api there";
    stage
        .condition_mentions(shop, SYNCED, "False", "NamespaceNotGranted", what)
        .await;
    stage.ready(shop).await;
    let binding = repository::deploy().join("agents/cluster-api/rolebinding.yaml");
    let apply = ["apply", "-n", HOSTS, "-f", &binding.display().to_string()];
    stage.kubectl(&apply).await;

    let grown = until_replicas(stage, DEPLOYMENT, "shop-md", 2).await;
    until_replicas(stage, CONTROL_PLANE, "shop", 3).await;
    stage.condition_is(shop, SYNCED, "True", "Synced").await;
    let mut expected = before.data.clone();
    expected["spec"]["replicas"] = json!(2);
    assert_eq!(grown.data, expected);
    let mut owners = grown.managed_fields().iter();
    let owned = owners.find(|entry| entry.manager.as_deref() == Some("sip-cluster-agent-replicas"));
    let fields = owned.unwrap().fields_v1.as_ref().unwrap();
    assert_eq!(fields.0, json!({"f:spec": {"f:replicas": {}}}));
}

/// Not before the host has its labels.
async fn goes_up_behind_labels(stage: &Stage, shop: &Cluster) {
    stage
        .edit(shop, json!({"nodes": {"Worker": {"count": {"active": 3}}}}))
        .await;
    until_replicas(stage, DEPLOYMENT, "shop-md", 3).await;
    stage.condition_is(shop, SYNCED, "True", "Synced").await;
    let asked = stage.asked_by_agents();
    let raised = first(&asked, 0, "raise replicas", |entry| sets_replicas(entry, 3));
    for host in workers() {
        let labels = |entry: &Entry| patches(entry, "baremetalhosts", &host);
        assert!(first(&asked, 0, "label a host", labels) < raised, "{host}");
    }
}

fn workers() -> [String; 3] {
    ["r1", "r2", "r3"].map(|rack| format!("{TENANT}-{rack}-w1"))
}

/// Once the Machine is marked that is to go.
async fn goes_down_behind_marks(stage: &Stage, shop: &Cluster) {
    for host in workers() {
        uses(stage, &host).await;
    }
    let raised = stage.asked_by_agents().len();
    stage
        .edit(shop, json!({"nodes": {"Worker": {"count": {"active": 2}}}}))
        .await;
    until_replicas(stage, DEPLOYMENT, "shop-md", 2).await;
    let object = stage.clusters(TENANT).get("shop").await.unwrap();
    let mut going = members(&object)
        .into_iter()
        .filter(|member| member.state == "Releasing");
    let (victim, none) = (going.next().unwrap().name, going.next());
    assert_eq!(none, None);
    let machine = format!("{victim}-machine");
    let machines = api(stage, MACHINE);
    let marked = machines.get(&machine).await.unwrap();
    assert!(marked.annotations().contains_key(DELETE));
    let asked = stage.asked_by_agents();
    let lowered = first(&asked, raised, "lower replicas", |entry| sets_replicas(entry, 2));
    let marks = |entry: &Entry| patches(entry, "machines", &machine);
    assert!(first(&asked, raised, "mark the Machine", marks) < lowered);

    machines.delete(&machine, &DeleteParams::default()).await.unwrap();
    set_consumer(stage, &victim, Value::Null).await;
    let back = wait::until(stage.hosts(), &victim, "be released", PATIENCE, given_back).await;
    back.unwrap();
    stage.ready(shop).await;
    stage.condition_is(shop, SYNCED, "True", "Synced").await;
}

/// Another tenant claims the Cluster, by name and namespace, and names its object.
async fn not_for_a_stranger(stage: &Stage) {
    let before = api(stage, DEPLOYMENT).get("shop-md").await.unwrap();
    let section = json!({"replicas": {"Worker": {"machineDeployment": "shop-md"}}});
    let stranger = cluster(STRANGER, "shop")
        .role(Role::Worker, 1)
        .with("/clusterAPI", section);
    let mut object = stranger.object();
    let annotation = "sip.airshipit.org/cluster-api-cluster".to_owned();
    object
        .annotations_mut()
        .insert(annotation, "metal/shop".to_owned());
    let clusters = stage.clusters(STRANGER);
    clusters.create(&PostParams::default(), &object).await.unwrap();
    stage.ready(&stranger).await;
    let refused =
        |name: &'static str| stage.condition_mentions(&stranger, SYNCED, "False", "NotOfCluster", name);
    let why = refused("metal/shop-md").await;
    assert!(
        why.starts_with("there is no MachineDeployment metal/shop-md whose"),
        "{why}"
    );
    // It is told the same of one that does not exist.
    let none = json!({"replicas": {"Worker": {"machineDeployment": "none"}}});
    stage.edit(&stranger, json!({ "clusterAPI": none })).await;
    let missing = refused("metal/none").await;
    assert_eq!(missing.replace("metal/none", "metal/shop-md"), why);
    let after = api(stage, DEPLOYMENT).get("shop-md").await.unwrap();
    assert_eq!(after.resource_version(), before.resource_version());
}

/// Has the agent make a pass.
async fn touch(stage: &Stage, shop: &Cluster, value: &str) {
    let touch = Patch::Merge(json!({"metadata": {"annotations": {"touched": value}}}));
    let clusters = stage.clusters(TENANT);
    let params = PatchParams::default();
    clusters.patch(&shop.name, &params, &touch).await.unwrap();
}

/// The third time the number of somebody else stays.
async fn not_for_ever_against_who_sets_them_back(stage: &Stage, shop: &Cluster) {
    let (back, params) = (
        Patch::Merge(json!({"spec": {"replicas": 1}})),
        PatchParams {
            field_manager: Some("hpa".to_owned()),
            ..PatchParams::default()
        },
    );
    for time in ["first", "second", "third"] {
        let objects = api(stage, DEPLOYMENT);
        let changed = objects.patch("shop-md", &params, &back).await.unwrap();
        touch(stage, shop, time).await;
        if time != "third" {
            // A watch may begin before that change.
            wait::until(objects, "shop-md", "be set again", PATIENCE, |object| {
                object.data["spec"]["replicas"] == 2
                    && object.metadata.generation > changed.metadata.generation
            })
            .await
            .unwrap();
        }
    }
    let why = "field manager hpa changed it 3 times within 10 minutes";
    stage
        .condition_mentions(shop, SYNCED, "False", "OwnedByOthers", why)
        .await;
    let kept = api(stage, DEPLOYMENT).get("shop-md").await.unwrap();
    assert_eq!(kept.data["spec"]["replicas"], 1);
}

/// Whoever applies replicas keeps them.
async fn not_against_who_applies(stage: &Stage, shop: &Cluster) {
    let other = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
        "metadata": {"name": "shop-md"}, "spec": {"replicas": 1}});
    let (params, patch) = (PatchParams::apply("flux").force(), Patch::Apply(other));
    api(stage, DEPLOYMENT)
        .patch("shop-md", &params, &patch)
        .await
        .unwrap();
    touch(stage, shop, "1").await;
    stage
        .condition_mentions(shop, SYNCED, "False", "OwnedByOthers", "field manager flux")
        .await;
    let kept = api(stage, DEPLOYMENT).get("shop-md").await.unwrap();
    assert_eq!(kept.data["spec"]["replicas"], 1);
    let asked = stage.asked_by_agents();
    let writes = asked.iter().filter(|entry| sets_replicas(entry, 2)).count();
    assert_eq!(writes, 4, "one for each change, and two against the manager hpa");
}
