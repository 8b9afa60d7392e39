//! A site that the Airship SIP operator has served: checked first, then taken over, and nobody notices.

use std::{path::Path, sync::Arc};

use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
    discovery,
};
use sandbox::{
    programs,
    region::{AGENTS_NAMESPACE, Region},
    repository,
    sip_clusters::{CLUSTER_NAME, CLUSTER_NAMESPACE, NODE_TYPE},
    wait,
};
use serde_json::{Value, json};

use crate::fixtures::{AGENTS, Cluster, Role, Stage, cluster, fleet, members, user};

async fn check(stage: &Stage, more: &[&str]) -> (i32, String) {
    let output = tokio::process::Command::new(programs::path("sipctl").unwrap())
        .args(["adopt", "--dry-run"])
        .args(more)
        .env("KUBECONFIG", stage.site.admin_kubeconfig())
        .output()
        .await
        .unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (output.status.code().unwrap(), text)
}

/// What SIP says when it is done.
async fn sip_says_ready(stage: &Stage, cluster: &Cluster) {
    let object = stage
        .clusters(&cluster.namespace)
        .get(&cluster.name)
        .await
        .unwrap();
    let ready = json!({"status": {"conditions": [{
        "type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "message": "",
        "observedGeneration": object.metadata.generation, "lastTransitionTime": "2021-07-01T00:00:00Z",
    }]}});
    stage
        .clusters(&cluster.namespace)
        .patch_status(&cluster.name, &PatchParams::default(), &Patch::Merge(ready))
        .await
        .unwrap();
}

/// The agents take over: every labelled host is a member, no host was written, and `Ready` never was anything but True.
pub(crate) async fn is_taken_over(stage: &mut Stage, shop: &Cluster, hosts: &[&str], namespaces: &[&str]) {
    for agent in AGENTS {
        stage.start_agent(agent, namespaces).await;
    }
    stage.agents_are_ready().await;
    let done = stage
        .until(shop, "be taken over", |object| {
            let own =
                wait::condition(object, "Ready").is_some_and(|(is, _, why)| is == "True" && why.is_empty());
            let bound = members(object)
                .iter()
                .filter(|member| member.state == "Bound")
                .count();
            own && bound == hosts.len() && wait::is_true(object, "LoadBalancerReady")
        })
        .await;
    let names: Vec<String> = members(&done).into_iter().map(|member| member.name).collect();
    assert_eq!(names, hosts);
    let ready = done.data["status"]["conditions"].as_array().unwrap();
    let ready = ready
        .iter()
        .find(|condition| condition["type"] == "Ready")
        .unwrap();
    assert!(
        ready["lastTransitionTime"].as_str().unwrap() < "2026-11-21T03",
        "it has been True since SIP said so: {ready}"
    );
    for entry in stage.asked_by_agents() {
        let object = entry.object_ref.clone().unwrap_or_default();
        let writes = ["create", "update", "patch", "delete"].contains(&&*entry.verb);
        assert!(!(writes && object.resource == "baremetalhosts"), "{entry:#?}");
        let conditions = entry.request_object.pointer("/status/conditions");
        for condition in conditions.and_then(Value::as_array).into_iter().flatten() {
            let is_ready = condition["type"] == "Ready" && entry.user.username == user(AGENTS[0]);
            assert!(!is_ready || condition["status"] == "True", "{condition}");
        }
    }
    stage.nothing_was_forbidden();
}

#[tokio::test]
async fn labelled_hosts_are_adopted_without_a_write() {
    let region = Arc::new(Region::start("north").await.unwrap());
    let mut stage = Stage::start_in(region, "adopted", &["metal"], &[]).await;
    stage.site.create_tenant_namespace("sip").await.unwrap();
    let shop = cluster("sip", "shop")
        .role(Role::ControlPlane, 2)
        .role(Role::Worker, 1)
        .balanced(30_670);
    let labelled = |mut host: sandbox::inventory::Host, role: &str| {
        host = host.label(CLUSTER_NAMESPACE, "sip").label(CLUSTER_NAME, "shop");
        host.label(NODE_TYPE, role).state("provisioned")
    };
    let hosts: Vec<_> = fleet("sip", 4, 1, 1)
        .into_iter()
        .map(|host| match &*host.name {
            // Not those that come first by name: what is there decides, not what would be chosen.
            "sip-r3-cp1" | "sip-r4-cp1" => labelled(host, "ControlPlane"),
            "sip-r4-w1" => labelled(host, "Worker"),
            _ => host,
        })
        .collect();
    stage.load(&hosts).await;
    stage.create(&shop).await;
    sip_says_ready(&stage, &shop).await;

    let (code, said) = check(&stage, &[]).await;
    assert_eq!(code, 0, "{said}");
    for words in [
        "SIPCluster sip/shop",
        "kept      metal/sip-r3-cp1 (ControlPlane)",
        "3 hosts of 1 SIPClusters are kept as they are; nothing is in conflict.",
    ] {
        assert!(said.contains(words), "{said}");
    }
    // One more than it asks for: that host would go.
    stage
        .edit(
            &shop,
            json!({"nodes": {"ControlPlane": {"count": {"active": 1}}}}),
        )
        .await;
    let (code, said) = check(&stage, &[]).await;
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("would be released (ControlPlane): surplus"),
        "{said}"
    );
    stage
        .edit(
            &shop,
            json!({"nodes": {"ControlPlane": {"count": {"active": 2}}}}),
        )
        .await;
    sip_says_ready(&stage, &shop).await;

    is_taken_over(
        &mut stage,
        &shop,
        &["sip-r3-cp1", "sip-r4-cp1", "sip-r4-w1"],
        &["metal"],
    )
    .await;
    let (code, _) = check(&stage, &["--context", "nobody"]).await;
    assert_eq!(code, 1);
}

/// Makes what SIP left, as it left it.
pub(crate) async fn restore(stage: &Stage, object: &Value) {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (group, version) = text("/apiVersion")
        .split_once('/')
        .unwrap_or(("", text("/apiVersion")));
    let kind = GroupVersionKind::gvk(group, version, text("/kind"));
    let (resource, _): (ApiResource, _) = discovery::pinned_kind(&stage.site.client(), &kind).await.unwrap();
    let mut made: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    made.metadata = kube::core::ObjectMeta {
        name: made.metadata.name,
        namespace: made.metadata.namespace,
        labels: made.metadata.labels,
        annotations: made.metadata.annotations,
        finalizers: made.metadata.finalizers,
        ..kube::core::ObjectMeta::default()
    };
    let api: Api<DynamicObject> =
        Api::namespaced_with(stage.site.client(), text("/metadata/namespace"), &resource);
    // The fields are SIP's, by the name under which it wrote them.
    let sip = PostParams {
        field_manager: Some("manager".to_owned()),
        ..PostParams::default()
    };
    api.create(&sip, &made).await.unwrap();
    if ["SIPCluster", "BareMetalHost"].contains(&&*kind.kind) && object.get("status").is_some() {
        let status = Patch::Merge(json!({"status": object["status"]}));
        api.patch_status(&made.name_any(), &PatchParams::default(), &status)
            .await
            .unwrap();
    }
}

/// The objects of a file, as kubectl reads them.
pub(crate) async fn objects(stage: &Stage, file: &str) -> Vec<Value> {
    let read = stage
        .kubectl(&[
            "create",
            "--dry-run=client",
            "--validate=false",
            "-o",
            "json",
            "-f",
            file,
        ])
        .await;
    // kubectl prints one object after the other.
    let printed: Vec<Value> = serde_json::Deserializer::from_str(&read)
        .into_iter()
        .collect::<Result<_, _>>()
        .unwrap();
    printed
        .into_iter()
        .flat_map(|object| match object.get("items").and_then(Value::as_array) {
            Some(items) => items.clone(),
            None => vec![object],
        })
        .collect()
}

/// The templates of load balancers that a site has changed are in conflict until they are translated.
async fn changed_templates_are_found(stage: &Stage, namespace: &str) {
    let templates = [
        ("loadbalancercontrolplane", "loadBalancerControlPlane.cfg"),
        ("loadbalancerworker", "loadBalancerWorker.cfg"),
    ];
    let of_agents = ["-n", AGENTS_NAMESPACE];
    let (code, said) = check(stage, &[]).await;
    assert_eq!(code, 2, "{said}");
    for (name, key) in templates {
        let line = format!("  CONFLICT  ConfigMap {namespace}/{name}, key {key}: differs");
        assert!(said.contains(&line), "{said}");
        let text = format!("--from-literal={key}=# translated");
        let create = ["create", "configmap", name, &text];
        stage.kubectl(&[&create[..], &of_agents].concat()).await;
    }
    let (code, said) = check(stage, &[]).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("the agents use ConfigMap sip-system/"), "{said}");
    for (name, _) in templates {
        let delete = ["delete", "configmap", name];
        stage.kubectl(&[&delete[..], &of_agents].concat()).await;
    }
}

/// Makes the objects of the file, and has the agents take over the cluster and the hosts in it, which are in this namespace.
/// `code_before`: exit code of the check before.
async fn what_sip_left_is_taken_over(site: &str, file: &Path, yard: &str, code_before: i32) {
    let region = Arc::new(Region::start("north").await.unwrap());
    let mut stage = Stage::start_in(region, site, &[yard], &[]).await;
    let file = file.display().to_string();
    let objects = objects(&stage, &file).await;
    let of_kind = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind);
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    let namespace = |object: &Value| object["metadata"]["namespace"].as_str().unwrap().to_owned();
    let sip_cluster = of_kind("SIPCluster").next().unwrap();
    stage
        .site
        .create_tenant_namespace(&namespace(sip_cluster))
        .await
        .unwrap();
    // SIP pins its pods to such nodes.
    stage
        .kubectl(&["label", "nodes", "--all", "node-role.kubernetes.io/master="])
        .await;
    let mut address = 0;
    for object in &objects {
        restore(&stage, object).await;
        // The hosts' networkData is not among what SIP left: it is the host maker's.
        if let Some(reference) = object
            .pointer("/spec/networkData")
            .filter(|_| object["kind"] == "BareMetalHost")
        {
            address += 1;
            let data = json!({"networks": [{
                "id": "oam-ipv4", "type": "ipv4", "link": "eno1", "ip_address": format!("10.23.0.{address}"),
            }]});
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret", "stringData": {"networkData": data.to_string()},
                "metadata": {"namespace": reference["namespace"], "name": reference["name"]},
            });
            restore(&stage, &secret).await;
        }
    }
    let (code, said) = check(&stage, &[]).await;
    assert_eq!(code, code_before, "{said}");
    assert!(said.contains("5 hosts of 1 SIPClusters are kept"), "{said}");
    assert_eq!(check(&stage, &["-f", &file]).await.0, code_before);
    if code_before != 0 {
        changed_templates_are_found(&stage, &namespace(sip_cluster)).await;
    }

    let left = cluster(&namespace(sip_cluster), &name(sip_cluster));
    let mut hosts: Vec<String> = of_kind("BareMetalHost").map(name).collect();
    hosts.sort();
    assert_eq!(hosts.len(), 5);
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    is_taken_over(&mut stage, &left, &hosts, &[yard]).await;
}

#[tokio::test]
async fn what_sip_itself_left_is_adopted_and_ready_stays_true() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples/left-by-sip.yaml");
    // Its templates of load balancers are not those that SIP comes with.
    what_sip_left_is_taken_over("left-by-sip", &own, "yard", 2).await;
    // What a real SIP left, where a copy lies beside this checkout.
    let real = repository::root().join("../shared/data/sip/leftovers.yaml");
    if real.is_file() {
        what_sip_left_is_taken_over("left-by-real-sip", &real, "lab", 0).await;
    }
}
