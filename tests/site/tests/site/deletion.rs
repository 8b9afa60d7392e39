//! A cluster that is deleted releases everything, and waits for whoever still uses a host.

use std::sync::Arc;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Namespace, Service},
    rbac::v1::RoleBinding,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use sandbox::{
    region::{HOSTS_NAMESPACE, Region},
    sip_clusters::{CLUSTER_NAME, CLUSTER_NAMESPACE, NODE_TYPE},
    wait,
};
use serde_json::{Value, json};

use crate::fixtures::{
    AGENTS, Cluster, Role, Stage, cluster, fleet, given_back, members, on_shared_site, set_consumer,
};

const FINALIZER: &str = "sip.airship.airshipit.org/finalizer";

async fn children_are_gone(stage: &Stage, cluster: &Cluster) {
    let (client, namespace) = (stage.site.client(), &cluster.namespace);
    for kind in ["controlplane", "worker"] {
        let name = format!("loadbalancer-{kind}-{}", cluster.name);
        let deployment = Api::<Deployment>::namespaced(client.clone(), namespace)
            .get_opt(&name)
            .await;
        assert!(deployment.unwrap().is_none(), "the Deployment {name} is left");
        let service = Api::<Service>::namespaced(client.clone(), namespace)
            .get_opt(&name)
            .await;
        assert!(service.unwrap().is_none(), "the Service {name} is left");
        let config_map = Api::<ConfigMap>::namespaced(client.clone(), namespace)
            .get_opt(&name)
            .await;
        assert!(config_map.unwrap().is_none(), "the ConfigMap {name} is left");
    }
}

#[test]
fn a_deleted_cluster_leaves_its_hosts_to_the_next() {
    on_shared_site("deletion", async |stage| {
        stage.load(&fleet("deletion", 3, 1, 1)).await;
        let first = cluster("deletion", "first")
            .role(Role::ControlPlane, 3)
            .role(Role::Worker, 3)
            .balanced(30_240);
        stage.create(&first).await;
        let ready = stage.ready(&first).await;
        assert!(ready.finalizers().iter().any(|finalizer| finalizer == FINALIZER));
        assert_eq!(stage.labelled("deletion", &first).await.len(), 6);

        stage.delete(&first).await;
        stage.gone(&first).await;
        // Once the object is gone nothing is left to be done.
        children_are_gone(stage, &first).await;
        for host in stage.hosts_of("deletion").await {
            assert!(given_back(&host), "{:?}", host.metadata);
        }

        // The same node ports, the same hosts.
        let next = cluster("deletion", "next")
            .role(Role::ControlPlane, 3)
            .role(Role::Worker, 3)
            .balanced(30_240);
        stage.create(&next).await;
        stage.ready(&next).await;
        assert_eq!(stage.labelled("deletion", &next).await.len(), 6);
    });
}

#[test]
fn a_host_in_use_is_waited_for_and_its_user_is_named() {
    on_shared_site("in-use", async |stage| {
        stage.load(&fleet("in-use", 2, 1, 0)).await;
        let shop = cluster("in-use", "shop").role(Role::ControlPlane, 2);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let (used, unused) = ("in-use-r1-cp1", "in-use-r2-cp1");
        let machine = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Machine",
            "namespace": "in-use", "name": "shop-controlplane-0",
        });
        set_consumer(stage, used, machine.clone()).await;

        stage.delete(&shop).await;
        let expected = format!("metal/{used}: it is still used by Metal3Machine in-use/shop-controlplane-0");
        stage
            .condition_mentions(&shop, "Ready", "False", "Progressing", &expected)
            .await;
        stage
            .until_hosts("in-use", "be released but for the one in use", |hosts| {
                hosts
                    .iter()
                    .all(|host| given_back(host) == (host.name_any() == unused))
            })
            .await;
        let waiting = stage
            .until(&shop, "hold only the host in use", |object| {
                members(object).len() == 1
            })
            .await;
        assert_eq!(members(&waiting)[0].state, "Releasing");
        let host = stage.hosts().get(used).await.unwrap();
        assert_eq!(host.data["spec"]["consumerRef"], machine);

        set_consumer(stage, used, Value::Null).await;
        stage.gone(&shop).await;
        assert!(given_back(&stage.hosts().get(used).await.unwrap()));
    });
}

#[test]
fn a_namespace_with_a_cluster_can_be_deleted() {
    on_shared_site("ending-tenant", async |stage| {
        stage.load(&fleet("ending-tenant", 2, 1, 1)).await;
        let shop = cluster("ending-tenant", "shop")
            .role(Role::ControlPlane, 2)
            .role(Role::Worker, 2)
            .balanced(30_250);
        stage.create(&shop).await;
        stage.ready(&shop).await;

        let namespaces: Api<Namespace> = Api::all(stage.site.client());
        namespaces
            .delete("ending-tenant", &DeleteParams::default())
            .await
            .unwrap();
        stage.namespace_gone("ending-tenant").await;

        for host in stage.hosts_of("ending-tenant").await {
            assert!(given_back(&host), "{:?}", host.metadata);
        }
    });
}

/// Kubernetes deletes the `RoleBinding`s and the `SIPCluster`s of a namespace in any order.
#[test]
fn a_namespace_whose_role_bindings_go_first_can_be_deleted() {
    on_shared_site("bare-tenant", async |stage| {
        stage.load(&fleet("bare-tenant", 1, 1, 0)).await;
        let shop = cluster("bare-tenant", "shop")
            .role(Role::ControlPlane, 1)
            .balanced(30_251);
        stage.create(&shop).await;
        stage.ready(&shop).await;

        let bindings: Api<RoleBinding> = Api::namespaced(stage.site.client(), "bare-tenant");
        bindings
            .delete_collection(&DeleteParams::default(), &ListParams::default())
            .await
            .unwrap();
        let namespaces: Api<Namespace> = Api::all(stage.site.client());
        namespaces
            .delete("bare-tenant", &DeleteParams::default())
            .await
            .unwrap();
        stage.namespace_gone("bare-tenant").await;

        for host in stage.hosts_of("bare-tenant").await {
            assert!(given_back(&host), "{:?}", host.metadata);
        }
    });
}

#[test]
fn a_cluster_that_was_never_placed_can_be_deleted() {
    on_shared_site("never-placed", async |stage| {
        let impossible = cluster("never-placed", "impossible")
            .role(Role::ControlPlane, 3)
            .balanced(30_260);
        let nonsense = cluster("never-placed", "nonsense")
            .role(Role::Worker, 1)
            .with("/nodes/Worker/count/active", json!(-1));
        stage.create(&impossible).await;
        stage.create(&nonsense).await;
        stage
            .condition_is(&impossible, "Ready", "False", "Unschedulable")
            .await;
        let refused = stage
            .until(&nonsense, "be refused", |object| {
                wait::condition(object, "Ready").is_some()
            })
            .await;
        assert!(members(&refused).is_empty());
        for one in [&impossible, &nonsense] {
            stage.delete(one).await;
            stage.gone(one).await;
        }
    });
}

#[tokio::test]
async fn without_scheduler_and_agents_a_person_releases_hosts() {
    let mut stage = Stage::start("site-a", &AGENTS).await;
    stage.load(&fleet("by-hand", 2, 0, 1)).await;
    stage.site.create_tenant_namespace("by-hand").await.unwrap();
    let shop = cluster("by-hand", "shop").role(Role::Worker, 2);
    stage.create(&shop).await;
    stage.ready(&shop).await;
    stage.region_mut().scheduler().kill9().await.unwrap();
    for agent in AGENTS {
        stage.agent(agent).kill9().await.unwrap();
    }
    stage.delete(&shop).await;

    // As docs/force-deletion.md says.
    let labels: serde_json::Map<String, Value> = [CLUSTER_NAMESPACE, CLUSTER_NAME, NODE_TYPE]
        .map(|label| (label.to_owned(), Value::Null))
        .into_iter()
        .collect();
    let unlabelled = Patch::Merge(json!({"metadata": {"labels": labels}}));
    for host in stage.hosts_of("by-hand").await {
        let patched = stage
            .hosts()
            .patch(&host.name_any(), &PatchParams::default(), &unlabelled)
            .await;
        patched.unwrap();
    }
    let stripped = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let patched = stage
        .clusters("by-hand")
        .patch("shop", &PatchParams::default(), &stripped)
        .await;
    patched.unwrap();
    stage.gone(&shop).await;

    // One with an empty ledger.
    stage.region = Arc::new(Region::start("north").await.unwrap());
    stage.site.prepare_for_agents().await.unwrap();
    for agent in AGENTS {
        stage.start_agent(agent, &[HOSTS_NAMESPACE]).await;
    }
    let next = cluster("by-hand", "next").role(Role::Worker, 2);
    stage.create(&next).await;
    stage.ready(&next).await;
    assert_eq!(stage.labelled("by-hand", &next).await.len(), 2);
}
