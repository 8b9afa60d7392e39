//! The objects of a jump host: made, reported, brought back and removed.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret, Service},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
    rbac::v1::Role,
};
use kube::{Api, ResourceExt as _, api::PostParams};
use sandbox::wait;
use serde_json::json;

use super::{
    CONDITION, NAME, api, deployment, files, fingerprint_of, on_site, secret, service, with_jump_host,
};
use crate::fixtures::PATIENCE;

#[test]
fn a_jump_hosts_key_is_in_the_status_and_stays() {
    on_site("jump-made", async |stage| {
        let shop = with_jump_host(
            "jump-made",
            &json!({"nodePort": 31_501, "replicas": 2, "clusterIP": "192.0.2.7"}),
        );
        stage.create(&shop).await;
        let ready = stage.ready(&shop).await;

        let private = secret(stage, "jump-made").await["ssh_host_ed25519_key"].clone();
        let endpoint = ready.data["status"]["endpoints"][0].clone();
        assert_eq!(endpoint["name"], NAME);
        assert_eq!(endpoint["address"], "192.0.2.7");
        assert_eq!(endpoint["port"], 31_501);
        assert_eq!(endpoint["protocol"], "ssh");
        assert_eq!(
            endpoint["hostKeyFingerprints"]["ssh-ed25519"],
            fingerprint_of(&private)
        );
        let public = endpoint["hostKeys"]["ssh-ed25519"].as_str().unwrap();
        assert!(public.starts_with("AAAAC3NzaC1lZDI1NTE5AAAA"), "{public}");

        // Both members are reached, and nothing else.
        let files = files(stage, "jump-made").await;
        let config = &files["sshd_config"];
        let open = config
            .lines()
            .find(|line| line.starts_with("PermitOpen"))
            .unwrap();
        let members = ready.data["status"]["placement"]["members"]
            .as_array()
            .unwrap()
            .len();
        assert_eq!(
            (open.split(' ').count(), members),
            (4, 2),
            "{open}: two nodes, one with an API server"
        );
        assert!(files["ssh_config"].contains("Host jump-made-one jump-made-one.metal controlplane-0"));
        assert!(
            files["ssh_config"].contains("worker-0"),
            "{}",
            files["ssh_config"]
        );
        let service = service(stage, "jump-made").await.spec.unwrap().ports.unwrap();
        assert_eq!((service[0].port, service[0].node_port), (22, Some(31_501)));
        let role: Role = api(stage, "jump-made").get(NAME).await.unwrap();
        assert_eq!(
            role.rules.unwrap().len(),
            1,
            "the pods may read their ConfigMap, and nothing else"
        );

        // What somebody deletes comes back, and the host key is the one that users know.
        stage
            .deleted_comes_back(&api::<Secret>(stage, "jump-made"), NAME)
            .await;
        assert_eq!(secret(stage, "jump-made").await["ssh_host_ed25519_key"], private);
        stage
            .deleted_comes_back(&api::<Deployment>(stage, "jump-made"), NAME)
            .await;
        stage
            .deleted_comes_back(&api::<ConfigMap>(stage, "jump-made"), NAME)
            .await;
        stage
            .deleted_comes_back(&api::<PodDisruptionBudget>(stage, "jump-made"), NAME)
            .await;
        stage
            .deleted_comes_back(&api::<NetworkPolicy>(stage, "jump-made"), NAME)
            .await;

        // No longer asked for: nothing is left, and the status says nothing of it.
        stage.edit(&shop, json!({"services": {"jumpHost": null}})).await;
        wait::until_gone(api::<Service>(stage, "jump-made"), NAME, PATIENCE)
            .await
            .unwrap();
        for gone in [
            api::<Deployment>(stage, "jump-made")
                .get_opt(NAME)
                .await
                .unwrap()
                .is_none(),
            api::<Secret>(stage, "jump-made")
                .get_opt(NAME)
                .await
                .unwrap()
                .is_none(),
            api::<ConfigMap>(stage, "jump-made")
                .get_opt(NAME)
                .await
                .unwrap()
                .is_none(),
        ] {
            assert!(gone);
        }
        stage
            .until(&shop, "have no jump host", |object| {
                wait::condition(object, CONDITION).is_none()
                    && object.data["status"]["endpoints"]
                        .as_array()
                        .is_none_or(Vec::is_empty)
            })
            .await;
    });
}

#[test]
fn members_and_keys_change_without_new_pods() {
    on_site("jump-members", async |stage| {
        let shop = with_jump_host("jump-members", &json!({}));
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let before = deployment(stage, "jump-members").await;
        stage
            .load(&[crate::fixtures::host("jump-members", "worker", "r3", "three")])
            .await;
        stage
            .edit(&shop, json!({"nodes": {"Worker": {"count": {"active": 2}}}}))
            .await;
        let maps = api::<ConfigMap>(stage, "jump-members");
        wait::until(
            maps,
            NAME,
            "ConfigMap to have the new member",
            PATIENCE,
            |map: &ConfigMap| {
                let files = map.data.as_ref();
                files.is_some_and(|files| files["ssh_config"].contains("Host jump-members-three "))
            },
        )
        .await
        .unwrap();
        let after = deployment(stage, "jump-members").await;
        assert_eq!(before.metadata.generation, after.metadata.generation);
    });
}

#[test]
fn a_foreign_service_of_the_name_is_left_alone() {
    on_site("jump-foreign", async |stage| {
        let metadata = json!({"name": NAME, "namespace": "jump-foreign"});
        let foreign: Service =
            serde_json::from_value(json!({"metadata": metadata, "spec": {"ports": [{"port": 1}]}})).unwrap();
        let services: Api<Service> = api(stage, "jump-foreign");
        services.create(&PostParams::default(), &foreign).await.unwrap();
        let beside: Secret =
            serde_json::from_value(json!({"metadata": metadata, "stringData": {"hosts": "mine"}})).unwrap();
        let secrets: Api<Secret> = api(stage, "jump-foreign");
        let beside = secrets.create(&PostParams::default(), &beside).await.unwrap();
        let shop = with_jump_host("jump-foreign", &json!({}));
        stage.create(&shop).await;
        let why = stage
            .condition_is(&shop, CONDITION, "False", "NameConflict")
            .await;
        assert_eq!(
            why,
            "Service jump-foreign/jumphost-shop was not made for a SIPCluster"
        );
        let untouched = secrets.get(NAME).await.unwrap();
        assert_eq!(untouched.resource_version(), beside.resource_version());
    });
}
