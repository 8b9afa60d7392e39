//! What a stolen token of an agent can write, whatever RBAC allows: the accounts of this test may do everything.

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use sandbox::{sip_clusters, site::Site};
use serde_json::{Value, json};

use super::{labels::account, refusal, site, until_refused};

const CLUSTER_AGENT: &str = "sip-cluster-agent";
const SERVICE_AGENTS: [(&str, &str, &str); 3] = [
    (
        "sip-load-balancer-agent",
        "LoadBalancerReady",
        "loadbalancer-worker-shop",
    ),
    ("sip-jump-host-agent", "JumpHostReady", "jumphost-shop"),
    ("sip-dex-agent", "AuthReady", "auth-shop"),
];
const FINALIZER: &str = "sip.airship.airshipit.org/finalizer";
const DELETE: &str = "cluster.x-k8s.io/delete-machine";
const SOME_TIME: &str = "2026-01-01T00:00:00Z";

/// A write, and what of its refusal names; empty if it passes.
type Row = (Value, &'static str);

fn condition(kind: &str, reason: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": SOME_TIME})
}

/// What all agents have written.
fn status() -> Value {
    let conditions: Vec<Value> = [
        "Ready",
        "Scheduled",
        "LoadBalancerReady",
        "JumpHostReady",
        "AuthReady",
    ]
    .into_iter()
    .map(|kind| condition(kind, "Before"))
    .collect();
    let names = ["loadbalancer-worker-shop", "jumphost-shop", "auth-shop"];
    json!({
        "observedGeneration": 1, "observedSince": SOME_TIME,
        "conditions": conditions,
        "placement": {"epoch": 1, "revision": 2, "generation": 1, "members": [
            {"namespace": "metal", "name": "a", "uid": "u", "role": "Worker", "state": "Bound", "revision": 2},
        ]},
        "applied": names.map(|name| json!({"service": name, "epoch": 1, "revision": 2, "generation": 1})),
        "endpoints": names.map(|name| json!({"name": name, "port": 1})),
        "tenantNodes": {"problem": "it does not answer"},
        "counts": {"workers": "1/1"},
        "roles": [{"role": "Worker", "wanted": 1, "claimed": 0, "bound": 1, "releasing": 0}],
        "state": "Progressing",
    })
}

/// The status with one value changed, as a merge patch.
fn changed(pointer: &str, value: Value) -> Value {
    let mut changed = status();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    changed.pointer_mut(parent).unwrap()[field] = value;
    json!({ "status": changed })
}

/// The status in which entries of this type or name differ.
fn entries(list: &str, key: &str, name: &str, field: &str, value: &Value) -> Value {
    let mut changed = status();
    for entry in changed[list].as_array_mut().unwrap() {
        if entry[key] == name {
            entry[field] = value.clone();
        }
    }
    json!({ "status": changed })
}

async fn outcome(api: &Api<DynamicObject>, name: &str, status: bool, patch: &Value) -> Result<(), String> {
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    let patched = if status {
        api.patch_status(name, &params, &patch).await
    } else {
        api.patch(name, &params, &patch).await
    };
    refusal(patched)
}

fn machines(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta1", "Machine");
    Api::namespaced_with(client.clone(), "other", &ApiResource::from_gvk(&kind))
}

/// Of objects with replicas the cluster agent writes these alone.
async fn scaled(site: &Site, client: &Client, wrong: &mut Vec<String>) {
    crate::scaled_machines::install(site).await;
    for (group, version, kind) in [
        ("cluster.x-k8s.io", "v1beta2", "MachineDeployment"),
        ("controlplane.cluster.x-k8s.io", "v1beta1", "KubeadmControlPlane"),
    ] {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let object = json!({
            "apiVersion": format!("{group}/{version}"), "kind": kind,
            "metadata": {"name": "scaled", "namespace": "other"},
            "spec": {"clusterName": "shop", "replicas": 1, "template": {"a": 1}},
        });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let all: Api<DynamicObject> = Api::namespaced_with(site.client(), "other", &resource);
        all.create(&PostParams::default(), &object).await.unwrap();
        let all: Api<DynamicObject> = Api::namespaced_with(client.clone(), "other", &resource);
        let rows: [Row; 8] = [
            (json!({"spec": {"replicas": 3}}), ""),
            (json!({"spec": {"clusterName": "mine"}}), "only spec.replicas"),
            (json!({"spec": {"template": {"a": 2}}}), "only spec.replicas"),
            (json!({"spec": {"template": null}}), "only spec.replicas"),
            (json!({"spec": {"more": 1}}), "only spec.replicas"),
            (json!({"metadata": {"labels": {"a": "b"}}}), "no label"),
            (
                json!({"metadata": {"annotations": {DELETE: "sip"}}}),
                "no annotation",
            ),
            (json!({"metadata": {"finalizers": [FINALIZER]}}), "no finalizer"),
        ];
        for row in &rows {
            let came = outcome(&all, "scaled", false, &row.0).await;
            check(wrong, CLUSTER_AGENT, row, &came);
        }
        let params = kube::api::DeleteParams::default();
        assert!(all.delete("scaled", &params).await.is_err(), "{kind}");
    }
}

fn check(wrong: &mut Vec<String>, who: &str, (patch, refused): &Row, came: &Result<(), String>) {
    let expected = match came {
        Ok(()) => refused.is_empty(),
        Err(message) => {
            println!("{who}: {message}");
            !refused.is_empty() && message.contains(refused)
        }
    };
    if !expected {
        wrong.push(format!("{who} {patch}: {came:?}"));
    }
}

#[expect(clippy::too_many_lines, reason = "tables of writes")]
#[tokio::test]
async fn agents_write_their_own_part_of_objects_only() {
    let site = site().await;
    let crds = sandbox::repository::root().join("tests/metal3/crds.yaml");
    site.kubectl_ok(&["apply", "-f", &crds.display().to_string()])
        .await
        .unwrap();
    let established = [
        "wait",
        "--for=condition=Established",
        "crd/machines.cluster.x-k8s.io",
    ];
    site.kubectl_ok(&established).await.unwrap();
    let administrator = sip_clusters::api(site.client(), "other");
    let shop = json!({
        "apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster",
        "metadata": {"name": "shop", "namespace": "other", "annotations": {"note": "kept"}, "finalizers": ["example.com/backup"]},
        "spec": {"nodes": {}},
    });
    let shop: DynamicObject = serde_json::from_value(shop).unwrap();
    administrator.create(&PostParams::default(), &shop).await.unwrap();
    let whole = json!({ "status": status() });
    outcome(&administrator, "shop", true, &whole).await.unwrap();
    let machine = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine",
        "metadata": {"name": "m-0", "namespace": "other", "annotations": {"note": "kept"}},
        "spec": {"clusterName": "shop", "bootstrap": {}, "infrastructureRef": {}},
    });
    let machine: DynamicObject = serde_json::from_value(machine).unwrap();
    machines(&site.client())
        .create(&PostParams::default(), &machine)
        .await
        .unwrap();
    let mut wrong = Vec::new();

    let client = account(&site, ("sip-system", CLUSTER_AGENT)).await;
    let clusters = sip_clusters::api(client.clone(), "other");
    let annotation = json!({"metadata": {"annotations": {"note": "mine"}}});
    until_refused(&clusters, "shop", &annotation).await;
    let rows: [Row; 6] = [
        (
            json!({"spec": {"nodes": {"Worker": {"count": {"active": 5}}}}}),
            "no spec",
        ),
        (json!({"metadata": {"labels": {"a": "b"}}}), "no label"),
        (annotation, "no annotation"),
        (json!({"metadata": {"finalizers": []}}), "no finalizer"),
        (
            json!({"metadata": {"finalizers": ["example.com/backup", FINALIZER]}}),
            "",
        ),
        (json!({"metadata": {"finalizers": ["example.com/backup"]}}), ""),
    ];
    for row in &rows {
        check(
            &mut wrong,
            CLUSTER_AGENT,
            row,
            &outcome(&clusters, "shop", false, &row.0).await,
        );
    }
    assert!(
        clusters
            .delete("shop", &kube::api::DeleteParams::default())
            .await
            .is_err()
    );
    let counted = changed("/counts", json!({"workers": "2/2"}));
    outcome(&clusters, "shop", true, &counted).await.unwrap();
    outcome(&administrator, "shop", true, &whole).await.unwrap();
    let rows: [Row; 5] = [
        (json!({"metadata": {"annotations": {DELETE: "sip"}}}), ""),
        (json!({"metadata": {"annotations": {DELETE: null}}}), ""),
        (
            json!({"metadata": {"annotations": {"note": null}}}),
            "no annotation",
        ),
        (json!({"metadata": {"finalizers": [FINALIZER]}}), "no finalizer"),
        (json!({"spec": {"clusterName": "mine"}}), "no spec"),
    ];
    for row in &rows {
        let came = outcome(&machines(&client), "m-0", false, &row.0).await;
        check(&mut wrong, CLUSTER_AGENT, row, &came);
    }

    scaled(&site, &client, &mut wrong).await;

    for (name, own, instance) in SERVICE_AGENTS {
        let client = account(&site, ("sip-system", name)).await;
        let clusters = sip_clusters::api(client, "other");
        until_refused(&clusters, "shop", &json!({"metadata": {"labels": {"a": "b"}}})).await;
        let drained = json!({"epoch": 1, "revision": 2});
        let other = if own == "AuthReady" {
            "jumphost-shop"
        } else {
            "auth-shop"
        };
        let rows: [Row; 17] = [
            (changed("/placement/members", json!([])), "only the cluster agent"),
            (changed("/placement", Value::Null), "only the cluster agent"),
            (
                changed("/counts", json!({"workers": "9/9"})),
                "only the cluster agent",
            ),
            (changed("/observedGeneration", json!(9)), "only the cluster agent"),
            (changed("/observedSince", Value::Null), "only the cluster agent"),
            (changed("/tenantNodes", Value::Null), "only the cluster agent"),
            (changed("/state", json!("Ready")), "only the cluster agent"),
            (changed("/state", Value::Null), "only the cluster agent"),
            (changed("/roles/0/bound", json!(9)), "only the cluster agent"),
            (
                entries("conditions", "type", "Ready", "reason", &json!("Mine")),
                "no condition but its own",
            ),
            (
                entries("conditions", "type", "Scheduled", "status", &json!("False")),
                "no condition but its own",
            ),
            (entries("conditions", "type", own, "reason", &json!("Mine")), ""),
            (
                entries("applied", "service", other, "revision", &json!(9)),
                "of its own services only",
            ),
            (
                entries("endpoints", "name", other, "port", &json!(9)),
                "of its own services only",
            ),
            (entries("applied", "service", instance, "revision", &json!(9)), ""),
            (entries("endpoints", "name", instance, "port", &json!(9)), ""),
            (
                changed("/drained", drained),
                if own == "LoadBalancerReady" {
                    ""
                } else {
                    "status.drained"
                },
            ),
        ];
        for row in &rows {
            check(
                &mut wrong,
                name,
                row,
                &outcome(&clusters, "shop", true, &row.0).await,
            );
            let mut again = whole.clone();
            again["status"]["drained"] = Value::Null;
            outcome(&administrator, "shop", true, &again).await.unwrap();
        }
        let spec: Row = (
            json!({"spec": {"nodes": {}, "services": {}}}),
            "nothing of a SIPCluster but its status",
        );
        check(
            &mut wrong,
            name,
            &spec,
            &outcome(&clusters, "shop", false, &spec.0).await,
        );
        let nulled = [
            "patch",
            "sipcluster",
            "shop",
            "--namespace=other",
            "--subresource=status",
            "--type=json",
            r#"--patch=[{"op": "replace", "path": "/status", "value": null}]"#,
        ];
        site.kubectl_ok(&nulled).await.unwrap();
        let first: Row = (json!({"status": {"conditions": [condition(own, "Mine")]}}), "");
        check(
            &mut wrong,
            name,
            &first,
            &outcome(&clusters, "shop", true, &first.0).await,
        );
        outcome(&administrator, "shop", true, &whole).await.unwrap();
    }
    assert_eq!(wrong, [""; 0]);
}
