//! Services follow the spec, and hosts that a service cannot use are not taken for it.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Secret, Service},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use metal3::provisioning::STATES;
use sandbox::{inventory::NETWORK, wait};
use serde_json::{Value, json};

use crate::fixtures::{PATIENCE, Role, cluster, fleet, host, in_role, on_shared_site};

#[test]
fn changed_and_dropped_spec_fields_are_applied() {
    on_shared_site("changes", async |stage| {
        stage.load(&fleet("changes", 2, 1, 1)).await;
        let shop = cluster("changes", "shop")
            .role(Role::ControlPlane, 2)
            .role(Role::Worker, 2)
            .balanced(30_310);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let deployments: Api<Deployment> = Api::namespaced(stage.site.client(), "changes");
        let services: Api<Service> = Api::namespaced(stage.site.client(), "changes");

        let control_plane = json!([{"image": "haproxy:3.0", "nodeInterfaceId": NETWORK, "nodePort": 30_314}]);
        stage
            .edit(
                &shop,
                json!({"services": {"loadBalancerControlPlane": control_plane}}),
            )
            .await;
        let ready = stage.ready(&shop).await;
        let deployment = deployments.get("loadbalancer-controlplane-shop").await.unwrap();
        let pod = deployment.spec.template.spec.unwrap();
        assert_eq!(pod.containers[0].image.as_deref(), Some("haproxy:3.0"));
        let service = services.get("loadbalancer-controlplane-shop").await.unwrap();
        let ports = service.spec.unwrap().ports.unwrap_or_default();
        assert_eq!(
            ports
                .iter()
                .map(|port| (port.port, port.node_port))
                .collect::<Vec<_>>(),
            [(6443, Some(30_314))]
        );
        let endpoints = ready.data["status"]["endpoints"].as_array().unwrap();
        assert!(
            endpoints.iter().any(|endpoint| endpoint["port"] == 30_314),
            "{endpoints:?}"
        );

        stage
            .edit(&shop, json!({"services": {"loadBalancerWorker": null}}))
            .await;
        let ready = stage.ready(&shop).await;
        let name = "loadbalancer-worker-shop";
        wait::until_gone(services, name, PATIENCE).await.unwrap();
        wait::until_gone(deployments, name, PATIENCE).await.unwrap();
        assert!(!ready.data["status"]["endpoints"].to_string().contains(name));
        assert_eq!(stage.labelled("changes", &shop).await.len(), 4);
    });
}

#[test]
fn a_host_without_an_address_is_not_taken_until_it_has_one() {
    on_shared_site("address", async |stage| {
        let (good, late) = (host("address", "cp", "r1", "a"), host("address", "cp", "r2", "b"));
        stage.load(&[good, late.clone()]).await;
        let secrets: Api<Secret> = Api::namespaced(stage.site.client(), "metal");
        let secret = format!("{}-network-data", late.name);
        let network_data = secrets.get(&secret).await.unwrap().data.unwrap();
        secrets.delete(&secret, &DeleteParams::default()).await.unwrap();
        let of_late = json!({"site": "shared", "namespace": "metal", "name": late.name});
        stage
            .until_answer("sip.inventory.v1.InventoryService/GetHost", of_late, |answer| {
                let known = &answer["host"]["host"];
                known.is_object() && known["addresses"][NETWORK].is_null()
            })
            .await;
        let shop = cluster("address", "shop")
            .role(Role::ControlPlane, 2)
            .balanced(30_320);
        stage.create(&shop).await;
        let why = stage.condition_is(&shop, "Ready", "False", "Unschedulable").await;
        assert!(why.contains("ControlPlane: 2 wanted"), "{why}");
        assert!(
            stage.labelled("address", &shop).await.is_empty(),
            "all or nothing"
        );

        // As ViNO leaves it to be: the namespace of the Secret is the host's own.
        let unnamed = Patch::Merge(json!({"spec": {"networkData": {"namespace": Value::Null}}}));
        stage
            .hosts()
            .patch(&late.name, &PatchParams::default(), &unnamed)
            .await
            .unwrap();
        let again = Secret {
            metadata: kube::api::ObjectMeta {
                name: Some(secret),
                ..kube::api::ObjectMeta::default()
            },
            data: Some(network_data),
            ..Secret::default()
        };
        secrets.create(&PostParams::default(), &again).await.unwrap();
        stage.ready(&shop).await;
        let held = stage.labelled("address", &shop).await;
        assert_eq!(in_role(&held, "ControlPlane"), ["address-a", "address-b"]);
    });
}

#[test]
fn hosts_in_states_that_no_tenant_can_use_are_not_taken() {
    on_shared_site("states", async |stage| {
        // Every state that the baremetal-operator writes.
        let hosts = STATES.map(|state| {
            let name = match state {
                "" => "none".to_owned(),
                state => state.replace(' ', "-"),
            };
            host("states", "cp", &name, &name).state(state)
        });
        stage.load(&hosts).await;
        let shop = cluster("states", "shop").role(Role::ControlPlane, 3);
        stage.create(&shop).await;
        stage.condition_is(&shop, "Ready", "False", "Unschedulable").await;
        stage
            .edit(
                &shop,
                json!({"nodes": {"ControlPlane": {"count": {"active": 2}}}}),
            )
            .await;
        stage.ready(&shop).await;
        let held = stage.labelled("states", &shop).await;
        assert_eq!(
            in_role(&held, "ControlPlane"),
            ["states-available", "states-ready"]
        );
        let unused = stage
            .hosts_of("states")
            .await
            .into_iter()
            .filter(|host| !held.contains_key(&host.name_any()));
        for host in unused {
            assert!(
                host.annotations().is_empty(),
                "{:?} was written to",
                host.metadata
            );
        }
    });
}
