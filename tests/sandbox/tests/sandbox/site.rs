//! A site is a real control plane: RBAC holds, controllers work, and it survives crashes of its parts.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, Pod, Secret},
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    runtime::watcher,
};
use sandbox::{
    audit, crds, inventory,
    site::{Nodes, Site},
    wait,
};
use serde_json::json;

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: 'example/web:1'}]
";

/// Applies it, and waits until both pods are available.
async fn deploy(site: &Site) {
    site.apply_yaml(DEPLOYMENT).await.unwrap();
    let api: Api<Deployment> = Api::namespaced(site.client(), "default");
    wait::until(
        api,
        "web",
        "the Deployment to be available",
        Duration::from_secs(30),
        |deployment| {
            deployment
                .status
                .as_ref()
                .is_some_and(|status| status.available_replicas == Some(2))
        },
    )
    .await
    .unwrap();
}

fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| &status.conditions).flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[tokio::test]
async fn pods_of_a_deployment_become_ready_on_fake_nodes() {
    let site = Site::builder("pods").nodes(Nodes::Kwok(2)).start().await.unwrap();

    deploy(&site).await;
}

#[tokio::test]
async fn pods_on_fake_nodes_become_ready_again() {
    let site = Site::builder("again")
        .nodes(Nodes::Kwok(1))
        .start()
        .await
        .unwrap();
    deploy(&site).await;
    let pods: Api<Pod> = Api::namespaced(site.client(), "default");

    // What the node controller does when the node's Lease is not renewed in time.
    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let not_ready = Patch::Strategic(not_ready);
    for pod in pods.list(&ListParams::default()).await.unwrap() {
        let marked = pods
            .patch_status(&pod.name_any(), &PatchParams::default(), &not_ready)
            .await
            .unwrap();
        assert!(!is_ready(&marked), "{:?}", marked.status);
    }

    wait::until_all(
        pods,
        watcher::Config::default(),
        "both pods to be Ready again",
        Duration::from_secs(30),
        |pods| pods.len() == 2 && pods.iter().all(|pod| is_ready(pod)),
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn a_service_account_has_its_rights_and_is_audited() {
    const RIGHTS: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: robot, namespace: default}
rules: [{apiGroups: [apps], resources: [deployments], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: robot, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: robot}
subjects: [{kind: ServiceAccount, name: robot, namespace: default}]
";
    let site = Site::builder("rights").start().await.unwrap();
    site.apply_yaml(RIGHTS).await.unwrap();

    let kubeconfig = site.service_account_kubeconfig("default", "robot").await.unwrap();
    let robot = site.client_from(&kubeconfig).await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(robot.clone(), "default");
    let secrets: Api<Secret> = Api::namespaced(robot, "default");
    let allowed = deployments.list(&ListParams::default()).await;
    let refused = secrets.list(&ListParams::default()).await;

    assert!(allowed.is_ok(), "{allowed:?}");
    assert!(
        matches!(&refused, Err(kube::Error::Api(status)) if status.is_forbidden()),
        "{refused:?}"
    );
    let entries = site.audit_log_where(audit::may_be_forbidden).unwrap();
    let forbidden: Vec<_> = entries
        .iter()
        .filter(|entry| entry.is_forbidden() && entry.user.username == "system:serviceaccount:default:robot")
        .map(|entry| entry.object_ref.as_ref().unwrap().resource.as_str())
        .collect();
    assert_eq!(forbidden, ["secrets"]);
}

#[tokio::test]
async fn hosts_are_loaded_with_their_state_and_their_network_data() {
    let site = Site::builder("hosts")
        .crds([crds::bare_metal_host()])
        .namespace("metal")
        .start()
        .await
        .unwrap();

    let started = Instant::now();
    inventory::load(&site.client(), "metal", &inventory::fleet(200, 5))
        .await
        .unwrap();
    println!("200 hosts took {:?}", started.elapsed());

    let hosts = inventory::api(site.client(), "metal")
        .list(&ListParams::default())
        .await
        .unwrap()
        .items;
    assert_eq!(hosts.len(), 200);
    for host in hosts {
        assert_eq!(host.data["status"]["provisioning"]["state"], "available");
        let secret = host.data["spec"]["networkData"]["name"].as_str().unwrap();
        let secrets: Api<Secret> = Api::namespaced(site.client(), "metal");
        let data = secrets.get(secret).await.unwrap().data.unwrap();
        let network_data: serde_json::Value = serde_json::from_slice(&data["networkData"].0).unwrap();
        assert_eq!(network_data["networks"][0]["id"], inventory::NETWORK);
    }
}

#[tokio::test]
async fn a_restarted_api_server_keeps_its_objects() {
    let mut site = Site::builder("restart").start().await.unwrap();
    site.create_namespace("kept").await.unwrap();
    let api: Api<Secret> = Api::namespaced(site.client(), "kept");
    let waiting = tokio::spawn(wait::until(
        api,
        "late",
        "the Secret",
        Duration::from_mins(1),
        |_: &Secret| true,
    ));

    site.restart_api_server().await.unwrap();
    site.kubectl_ok(&["create", "secret", "generic", "late", "--namespace=kept"])
        .await
        .unwrap();

    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn sites_start_with_the_objects_of_another() {
    let first = Site::builder("first").crds(crds::all()).start().await.unwrap();
    first.create_namespace("metal").await.unwrap();
    let store = Arc::new(first.into_store().await.unwrap());

    let start = async |name, fake| {
        let site = Site::builder(name).stored(Arc::clone(&store));
        site.nodes(Nodes::Kwok(fake)).start().await.unwrap()
    };
    let (second, third) = tokio::join!(start("second", 0), start("third", 2));
    drop(store);

    // They share no object from then on.
    for (site, name) in [(&second, "only-second"), (&third, "only-third")] {
        inventory::load(&site.client(), "metal", &inventory::fleet(6, 2))
            .await
            .unwrap();
        site.create_namespace(name).await.unwrap();
    }
    let namespaces: Api<Namespace> = Api::all(third.client());
    let names = namespaces.list(&ListParams::default()).await.unwrap();
    let names: Vec<String> = names.iter().map(ResourceExt::name_any).collect();
    assert!(names.contains(&"only-third".to_owned()), "{names:?}");
    assert!(!names.contains(&"only-second".to_owned()), "{names:?}");
    third.apply_yaml(DEPLOYMENT).await.unwrap();
}

#[tokio::test]
async fn what_is_waited_for_in_vain_is_named_with_what_was_seen() {
    let site = Site::builder("vain").start().await.unwrap();
    let api: Api<Secret> = Api::namespaced(site.client(), "default");

    let error = wait::until(
        api,
        "none",
        "the Secret",
        Duration::from_millis(300),
        |_: &Secret| true,
    )
    .await
    .unwrap_err()
    .to_string();

    assert_eq!(
        error,
        "after 0 s still waiting for the Secret; last seen:\nno object"
    );
}

#[tokio::test]
async fn a_crashed_process_is_seen() {
    let mut site = Site::builder("crash").start().await.unwrap();
    let etcd = &mut site.control_plane().etcd;
    etcd.check().unwrap();

    etcd.kill9().await.unwrap();

    let error = etcd.check().unwrap_err().to_string();
    assert!(
        error.starts_with("etcd has ended: signal: 9 (SIGKILL)"),
        "{error}"
    );
}
