//! Hosts that are to be released and are in use: the Machine of Cluster API on each is asked to go, and no other.
//!
//! Cluster API does not run here; what it would do to Machines and consumers the scenario does.

use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use sandbox::{region::Agent, repository, wait};
use serde_json::{Value, json};

use crate::capm3::CLUSTER;
use crate::faults::{Call, Fault, Faulty, Injected};
use crate::fixtures::{
    AGENTS, Cluster, PATIENCE, Role, Stage, cluster, fleet, given_back, members, set_consumer, sip_labels,
};

const DELETE: &str = "cluster.x-k8s.io/delete-machine";
/// Its value where the cluster agent has set it for `SIPCluster` `machines/shop`.
const MARK: &str = "sip.airshipit.org/machines/shop";
/// On a Machine: the `MachineDeployment` that it is one of.
const DEPLOYMENT: &str = "cluster.x-k8s.io/deployment-name";
const TENANT: &str = "machines";

fn resource(group: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1beta1", kind))
}

fn machines(stage: &Stage) -> Api<DynamicObject> {
    Api::namespaced_with(
        stage.site.client(),
        TENANT,
        &resource("cluster.x-k8s.io", "Machine"),
    )
}

/// What Cluster API and its provider make of a host: a Machine, the `Metal3Machine` that it owns, and the host's consumer.
async fn uses(stage: &Stage, host: &str) {
    let kind = resource("cluster.x-k8s.io", "Machine");
    let mut machine = DynamicObject::new(&format!("{host}-machine"), &kind);
    let labels = [(DEPLOYMENT, "shop-md"), (CLUSTER, "shop")];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    machine.metadata.labels = Some(labels.into());
    let machine = machines(stage)
        .create(&PostParams::default(), &machine)
        .await
        .unwrap();
    let kind = resource("infrastructure.cluster.x-k8s.io", "Metal3Machine");
    let mut metal3 = DynamicObject::new(&format!("{host}-m3m"), &kind);
    metal3.metadata.owner_references = Some(
        serde_json::from_value(json!([{
            "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine", "controller": true,
            "name": machine.name_any(), "uid": machine.uid(),
        }]))
        .unwrap(),
    );
    let all: Api<DynamicObject> = Api::namespaced_with(stage.site.client(), TENANT, &kind);
    all.create(&PostParams::default(), &metal3).await.unwrap();
    let consumer = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Machine",
        "namespace": TENANT, "name": metal3.name_any(),
    });
    set_consumer(stage, host, consumer).await;
}

/// Value of the annotation on the Machine of a host.
async fn requested(stage: &Stage, host: &str) -> Option<String> {
    let machine = machines(stage).get(&format!("{host}-machine")).await.unwrap();
    machine.annotations().get(DELETE).cloned()
}

async fn until_asked(stage: &Stage, host: &str, expected: Option<&str>) {
    let name = format!("{host}-machine");
    let what = format!("{DELETE} of {name} to be {expected:?}");
    wait::until(machines(stage), &name, &what, PATIENCE, |machine| {
        machine.annotations().get(DELETE).map(String::as_str) == expected
    })
    .await
    .unwrap();
}

/// The one host that is releasing, once its Machine is named.
async fn victim(stage: &Stage, shop: &Cluster, but_not: &str) -> String {
    let releasing = |object: &DynamicObject| {
        let all = object
            .data
            .pointer("/status/placement/members")?
            .as_array()?
            .clone();
        let mut going = all.into_iter().filter(|member| member["state"] == "Releasing");
        let member = going.next().filter(|member| member["name"] != but_not)?;
        let name = member["name"].as_str()?.to_owned();
        let machine = json!(format!("{TENANT}/{name}-machine"));
        (member["machine"] == machine && going.next().is_none()).then_some(name)
    };
    let object = stage
        .until(shop, "have one member go, with its Machine named", |object| {
            releasing(object).is_some()
        })
        .await;
    releasing(&object).unwrap()
}

/// Its kinds, and the namespace of their tenant.
async fn install_cluster_api(stage: &Stage) {
    stage.site.create_tenant_namespace(TENANT).await.unwrap();
    let crds = repository::root().join("tests/metal3/crds.yaml");
    stage.kubectl(&["apply", "-f", &crds.display().to_string()]).await;
    stage
        .kubectl(&[
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            "crd",
            "--all",
        ])
        .await;
}

#[tokio::test]
async fn only_a_surplus_members_machine_is_marked_for_deletion() {
    let mut stage = Stage::start("machines", &AGENTS).await;
    install_cluster_api(&stage).await;
    stage.load(&fleet(TENANT, 4, 0, 1)).await;
    let shop = cluster(TENANT, "shop").role(Role::Worker, 4).balanced(30_660);
    stage.create(&shop).await;
    stage.ready(&shop).await;
    let hosts = ["r1", "r2", "r3", "r4"].map(|rack| format!("{TENANT}-{rack}-w1"));
    for host in &hosts {
        uses(&stage, host).await;
    }

    stage
        .edit(&shop, json!({"nodes": {"Worker": {"count": {"active": 3}}}}))
        .await;
    let first = victim(&stage, &shop, "").await;
    until_asked(&stage, &first, Some(MARK)).await;
    let why = stage
        .condition_mentions(&shop, "HostsLabeled", "False", "Waiting", &first)
        .await;
    assert!(
        why.contains(&format!(
            "scale MachineDeployment shop-md down: Cluster API deletes its Machine {TENANT}/{first}-machine first"
        )),
        "{why}"
    );
    // Later Events of the reason are counted in this one.
    let advice = "scale MachineDeployment shop-md down";
    stage.event(&shop, "Releasing", advice).await;
    let host = stage.hosts().get(&first).await.unwrap();
    assert_eq!(
        sip_labels(&host).len(),
        3,
        "nothing is taken from it while it is in use"
    );

    // A person has marked another Machine, for reasons of their own.
    let others: Vec<&String> = hosts.iter().filter(|host| **host != first).collect();
    let [second, third, fourth] = others[..] else {
        panic!("{others:?}")
    };
    let own = Patch::Merge(json!({"metadata": {"annotations": {DELETE: "mine"}}}));
    machines(&stage)
        .patch(&format!("{third}-machine"), &PatchParams::default(), &own)
        .await
        .unwrap();

    // Cluster API deletes another Machine all the same: that host goes, and the first is asked no more. Nor does it
    // matter that the agent has been started again meanwhile.
    stage.agent(Agent::Cluster).kill9().await.unwrap();
    set_consumer(&stage, second, Value::Null).await;
    stage.start_agent(Agent::Cluster, &["metal"]).await;
    let back = wait::until(stage.hosts(), second, "be released", PATIENCE, given_back).await;
    back.unwrap();
    stage
        .until(&shop, "hold the other three", |object| {
            let members = members(object);
            members.len() == 3
                && members
                    .iter()
                    .all(|member| member.state == "Bound" && member.name != **second)
        })
        .await;
    until_asked(&stage, &first, None).await;
    assert_eq!(requested(&stage, third).await.as_deref(), Some("mine"));
    assert_eq!(requested(&stage, fourth).await, None);
    stage.ready(&shop).await;

    // The next one goes as it should: its Machine is deleted, and it is let go.
    stage
        .edit(&shop, json!({"nodes": {"Worker": {"count": {"active": 2}}}}))
        .await;
    let next = victim(&stage, &shop, second).await;
    set_consumer(&stage, &next, Value::Null).await;
    let back = wait::until(stage.hosts(), &next, "be released", PATIENCE, given_back).await;
    back.unwrap();
    stage.ready(&shop).await;
    assert_eq!(requested(&stage, third).await.as_deref(), Some("mine"));

    // One that fails is replaced: its owner is to make another Machine, so it must not be scaled down.
    let mut left = hosts.iter().filter(|host| ![second, third, &next].contains(host));
    let failed = left.next().unwrap();
    let mark = Patch::Merge(json!({"metadata": {"annotations": {"sip.airshipit.org/failed": ""}}}));
    let params = PatchParams::default();
    stage.hosts().patch(failed, &params, &mark).await.unwrap();
    let advice = format!(
        "delete Machine {TENANT}/{failed}-machine of this host, and do not scale MachineDeployment shop-md down"
    );
    stage
        .condition_mentions(&shop, "HostsLabeled", "False", "Waiting", &advice)
        .await;
    assert_eq!(requested(&stage, failed).await, None);

    // Of a SIPCluster that is deleted all go: no Machine is asked.
    stage.delete(&shop).await;
    let held = format!("{third}: it is still used by Metal3Machine");
    stage
        .condition_mentions(&shop, "HostsLabeled", "False", "Waiting", &held)
        .await;
    assert_eq!(requested(&stage, failed).await, None);
    assert_eq!(requested(&stage, third).await.as_deref(), Some("mine"));
    for host in [failed, third] {
        set_consumer(&stage, host, Value::Null).await;
    }
    stage.gone(&shop).await;
    stage.nothing_was_forbidden();
    only_machines_that_were_named_were_written(&stage, &shop);
}

#[tokio::test]
async fn a_machine_that_changes_meanwhile_is_marked_quietly() {
    let site = Faulty::start(&[Agent::Cluster]).await;
    let stage = &site.stage;
    install_cluster_api(stage).await;
    stage.load(&fleet(TENANT, 1, 0, 1)).await;
    let shop = cluster(TENANT, "shop").role(Role::Worker, 1);
    stage.create(&shop).await;
    stage.ready(&shop).await;
    let host = format!("{TENANT}-r1-w1");
    uses(stage, &host).await;
    // More than one pass retries.
    let conflicts: Vec<Injected> = (0..4)
        .map(|_| {
            let matches = |call: &Call| call.verb == "patch" && call.resource == "machines";
            site.proxy().inject(matches, 0, Fault::Refused(409))
        })
        .collect();
    stage
        .edit(&shop, json!({"nodes": {"Worker": {"count": {"active": 0}}}}))
        .await;
    until_asked(stage, &host, Some(MARK)).await;
    for conflict in &conflicts {
        assert_eq!(conflict.times(), 1);
    }
    let events = stage
        .kubectl(&["get", "events", "-n", TENANT, "-o", "jsonpath={.items[*].reason}"])
        .await;
    assert!(!events.contains("MachineNotAnnotated"), "{events}");
}

/// Every Machine that the agent has written was named by the status before, and was not written twice for one change.
fn only_machines_that_were_named_were_written(stage: &Stage, shop: &Cluster) {
    let mut named = std::collections::BTreeSet::new();
    let mut written = 0;
    for entry in stage.asked_by_agents() {
        let object = entry.object_ref.clone().unwrap_or_default();
        if (&*object.resource, &*object.name) == ("sipclusters", &*shop.name) {
            let members = entry.request_object.pointer("/status/placement/members");
            let members = members.and_then(Value::as_array).cloned().unwrap_or_default();
            named.extend(
                members
                    .iter()
                    .filter_map(|member| member["machine"].as_str().map(str::to_owned)),
            );
        }
        if object.resource == "machines" && entry.verb == "patch" {
            let name = format!("{}/{}", object.namespace, object.name);
            assert!(named.contains(&name), "{name} was written before it was named");
            written += 1;
        }
    }
    assert!((2..=4).contains(&written), "{written} writes");
}
