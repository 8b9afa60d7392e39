//! A `KubeadmControlPlane` of Cluster API's newest version, and what its webhooks refuse: the agent writes nothing of that.

use std::time::Duration;

use tokio::time::{interval, timeout};

use super::{
    AGENTS, Api, CONTROL_PLANE, Cluster, DEPLOYMENT, DynamicObject, HOSTS, Kind, PATIENCE, Patch,
    PatchParams, Role, SYNCED, Stage, TEMPLATE, Value, api, cluster, create, fleet, json, patches,
    repository, until_replicas,
};

const ADMITTED: &str = "admitted";
const NEWEST: Kind = (CONTROL_PLANE.0, "v1beta2", CONTROL_PLANE.2);

/// Installs the kinds, with control planes of the newest version, and the webhooks.
async fn install(stage: &Stage) {
    let kinds = metal3::CRDS.split("---\n");
    let others = kinds.filter(|kind| !kind.contains("name: kubeadmcontrolplanes"));
    let all: Vec<&str> = others.chain([metal3::CONTROL_PLANES_V1BETA2]).collect();
    stage.site.apply_yaml(&all.join("---\n")).await.unwrap();
    stage.site.crds_are_served(PATIENCE).await.unwrap();
    stage.site.apply_yaml(metal3::WEBHOOKS).await.unwrap();
}

/// A control plane, its template, and a `MachineDeployment`, as a person writes them.
async fn write(stage: &Stage, shop: &Cluster) {
    let selector = json!({"matchLabels": {
        "sip.airshipit.org/cluster-namespace": shop.namespace, "sip.airshipit.org/cluster-name": shop.name,
        "sip.airshipit.org/node-type": "ControlPlane",
    }});
    let spec = json!({"spec": {"template": {"spec": {"hostSelector": selector}}}});
    create(stage, TEMPLATE, "shop-controlplane", spec).await;
    let reference = json!({"apiGroup": TEMPLATE.0, "kind": TEMPLATE.2, "name": "shop-controlplane"});
    let spec = json!({
        "replicas": 1, "version": "v1.36.0", "machineTemplate": {"spec": {"infrastructureRef": reference}},
    });
    let labels = json!({"labels": {"cluster.x-k8s.io/cluster-name": "shop"}});
    create(stage, NEWEST, "shop", json!({"metadata": labels, "spec": spec})).await;
    let spec = json!({"clusterName": "shop", "replicas": 1});
    create(stage, DEPLOYMENT, "shop-md", json!({"spec": spec})).await;
}

/// The refusal of a change, which is not made; the API server loads policies a moment after they are written.
async fn refusal(stage: &Stage, of: Kind, name: &str, spec: Value) -> String {
    let objects: Api<DynamicObject> = api(stage, of);
    let (patch, params) = (
        Patch::Merge(json!({ "spec": spec })),
        PatchParams {
            dry_run: true,
            ..PatchParams::default()
        },
    );
    let refused = async {
        let mut pace = interval(Duration::from_millis(50));
        loop {
            pace.tick().await;
            if let Err(error) = objects.patch(name, &params, &patch).await {
                return error.to_string();
            }
        }
    };
    timeout(PATIENCE, refused).await.unwrap()
}

#[tokio::test]
async fn replicas_are_numbers_that_cluster_api_admits() {
    let stage = Stage::start(ADMITTED, &AGENTS).await;
    install(&stage).await;
    stage.site.create_tenant_namespace(ADMITTED).await.unwrap();
    let binding = repository::deploy().join("agents/cluster-api/rolebinding.yaml");
    let apply = ["apply", "-n", HOSTS, "-f", &binding.display().to_string()];
    stage.kubectl(&apply).await;
    let section = json!({"replicas": {"ControlPlane": {"kubeadmControlPlane": "shop"}}});
    let shop = cluster(ADMITTED, "shop")
        .role(Role::ControlPlane, 4)
        .with("/clusterAPI", section);
    write(&stage, &shop).await;
    for (of, name, spec, rule) in [
        (
            NEWEST,
            "shop",
            json!({"replicas": 0}),
            "cannot be less than or equal to 0",
        ),
        (NEWEST, "shop", json!({"replicas": 2}), "cannot be an even number"),
        (
            DEPLOYMENT,
            "shop-md",
            json!({"clusterName": "bank"}),
            "field is immutable",
        ),
    ] {
        let words = refusal(&stage, of, name, spec).await;
        assert!(words.contains(rule), "{name}: {words}");
    }

    // Four hosts make a control plane of three, found by the reference that this version has.
    stage.load(&fleet(ADMITTED, 4, 1, 0)).await;
    stage.create(&shop).await;
    until_replicas(&stage, NEWEST, "shop", 3).await;
    stage
        .condition_is(&shop, SYNCED, "False", "EvenControlPlane")
        .await;
    let two = json!({"nodes": {"ControlPlane": {"count": {"active": 2}}}});
    stage.edit(&shop, two).await;
    until_replicas(&stage, NEWEST, "shop", 1).await;
    stage
        .condition_is(&shop, SYNCED, "False", "EvenControlPlane")
        .await;
    let asked = stage.asked_by_agents();
    let refused = asked
        .iter()
        .filter(|entry| patches(entry, "kubeadmcontrolplanes", "shop") && entry.response_status.code != 200);
    assert_eq!(refused.count(), 0, "no write was refused");
    stage.nothing_was_forbidden();
}
