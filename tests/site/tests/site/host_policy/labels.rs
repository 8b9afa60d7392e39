//! The policies on labels of hosts: what the cluster agent may write of a host, and what nobody else may.

use k8s_openapi::api::{core::v1::ServiceAccount, rbac::v1::ClusterRoleBinding};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use sandbox::inventory;
use serde_json::{Value, json};

use super::{patched, placed, site, until_refused};

const AGENT: (&str, &str) = ("sip-system", "sip-cluster-agent");
const OTHER: (&str, &str) = ("metal", "operator");

/// A `ServiceAccount` that RBAC lets do everything.
pub(super) async fn account(site: &sandbox::site::Site, (namespace, name): (&str, &str)) -> Client {
    let accounts: Api<ServiceAccount> = Api::namespaced(site.client(), namespace);
    let object = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    // Those of controllers exist.
    let (apply, object) = (PatchParams::apply("test"), Patch::Apply(object));
    accounts.patch(name, &apply, &object).await.unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(site.client());
    let binding = json!({
        "metadata": {"name": format!("test-{name}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": name}],
    });
    let binding = serde_json::from_value(binding).unwrap();
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    let kubeconfig = site.service_account_kubeconfig(namespace, name).await.unwrap();
    site.client_from(&kubeconfig).await.unwrap()
}

/// A host of `tenant/shop` that Cluster API has used before.
fn object(name: &str) -> DynamicObject {
    let mut labels = placed();
    labels["infrastructure.cluster.x-k8s.io/node-reuse"] = json!("kcp-shop");
    labels["rack"] = json!("r1");
    let mut object = DynamicObject::new(name, &inventory::resource());
    object.metadata.labels = serde_json::from_value(labels).unwrap();
    object.metadata.annotations =
        serde_json::from_value(json!({"note": "kept", "sip.airshipit.org/placement-revision": "7"})).unwrap();
    object.data = json!({"spec": {"online": true}});
    object
}

fn labels(value: &Value) -> Value {
    json!({"metadata": {"labels": value}})
}

fn annotations(value: &Value) -> Value {
    json!({"metadata": {"annotations": value}})
}

/// A write, and what of its refusal names; empty if it passes.
type Row = (Value, &'static str);

fn others() -> Vec<Row> {
    let name = "sip.airshipit.org/cluster-name";
    let revision = "sip.airshipit.org/placement-revision";
    vec![
        (labels(&json!({name: "mine"})), name),
        (labels(&json!({name: null})), name),
        (
            labels(&json!({"sip.airshipit.org/node-type": "ControlPlane"})),
            "node-type",
        ),
        (
            labels(&json!({"sip.airshipit.org/cluster-namespace": null})),
            "cluster-namespace",
        ),
        (annotations(&json!({revision: "4611686018427387904"})), revision),
        (annotations(&json!({revision: null})), revision),
        (
            annotations(&json!({"sip.airshipit.org/cluster-api-cluster": "mine"})),
            "cluster-api-cluster",
        ),
        (
            annotations(&json!({"sip.airshipit.org/network-data": "mine"})),
            "network-data",
        ),
        (labels(&json!({name: "shop"})), ""),
        (
            labels(&json!({"rack": "r2", "cluster.x-k8s.io/cluster-name": "shop"})),
            "",
        ),
        (
            annotations(&json!({"sip.airshipit.org/failed": "", "sip.airshipit.org/replace": ""})),
            "",
        ),
        (json!({"spec": {"online": false}}), ""),
    ]
}

fn agents() -> Vec<Row> {
    vec![
        (labels(&json!({"sip.airshipit.org/cluster-name": "other"})), ""),
        (
            json!({"metadata": {
                "labels": {
                    "sip.airshipit.org/cluster-namespace": null,
                    "sip.airshipit.org/cluster-name": null,
                    "sip.airshipit.org/node-type": null,
                    "infrastructure.cluster.x-k8s.io/node-reuse": null,
                },
                "annotations": {"sip.airshipit.org/placement-revision": "8"},
            }}),
            "",
        ),
        (
            annotations(&json!({
                "sip.airshipit.org/cluster-api-cluster": "tenant/shop",
                "sip.airshipit.org/network-data": "h1-network-data",
            })),
            "",
        ),
        (
            labels(&json!({"infrastructure.cluster.x-k8s.io/node-reuse": "kcp-mine"})),
            "no other label",
        ),
        (labels(&json!({"rack": "r2"})), "no other label"),
        (labels(&json!({"rack": null})), "no other label"),
        (labels(&json!({"new": ""})), "no other label"),
        (annotations(&json!({"note": "changed"})), "no other annotation"),
        (annotations(&json!({"note": null})), "no other annotation"),
        (
            annotations(&json!({"sip.airshipit.org/failed": ""})),
            "no other annotation",
        ),
        (json!({"spec": {"online": false}}), "no spec"),
        (
            json!({"metadata": {"finalizers": ["example.com/mine"]}}),
            "finalizer",
        ),
        (
            json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "b"}]}}),
            "owner",
        ),
    ]
}

#[tokio::test]
async fn only_the_cluster_agent_writes_labels_of_sip_and_nothing_else() {
    let site = site().await;
    let administrator = inventory::api(site.client(), "metal");
    let rows = [(OTHER, others()), (AGENT, agents())];
    administrator
        .create(&PostParams::default(), &object("probe"))
        .await
        .unwrap();
    let mut wrong = Vec::new();
    for (account_name, rows) in rows {
        let hosts = inventory::api(account(&site, account_name).await, "metal");
        until_refused(
            &hosts,
            "probe",
            &rows.iter().find(|(_, refused)| !refused.is_empty()).unwrap().0,
        )
        .await;
        for (index, (patch, refused)) in rows.iter().enumerate() {
            let name = format!("{}-{index}", account_name.1);
            administrator
                .create(&PostParams::default(), &object(&name))
                .await
                .unwrap();
            let came = patched(&hosts, &name, patch).await;
            let expected = match &came {
                Ok(()) => refused.is_empty(),
                Err(message) => {
                    println!("{}: {message}", account_name.1);
                    !refused.is_empty() && message.contains(refused)
                }
            };
            if !expected {
                wrong.push(format!("{} {patch}: {came:?}", account_name.1));
            }
        }
        // Neither gives itself a host by creating one; the agent creates and deletes none at all.
        let created = hosts.create(&PostParams::default(), &object("created")).await;
        assert!(
            matches!(&created, Err(kube::Error::Api(status)) if status.code == 403),
            "{created:?}"
        );
        let mut plain = object("plain");
        plain.metadata.labels = None;
        plain.metadata.annotations = None;
        let is_agent = account_name == AGENT;
        assert_eq!(
            hosts.create(&PostParams::default(), &plain).await.is_err(),
            is_agent
        );
        if is_agent {
            assert!(hosts.delete("probe", &DeleteParams::default()).await.is_err());
            let status = json!({"status": {"poweredOn": true}});
            let written = hosts
                .patch_status("probe", &PatchParams::default(), &Patch::Merge(&status))
                .await;
            assert!(written.is_err());
        } else {
            hosts.delete("plain", &DeleteParams::default()).await.unwrap();
        }
    }
    assert_eq!(wrong, [""; 0]);
}
