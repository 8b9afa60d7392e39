//! Keys that can be used log in while others are named, and Secrets of the tenant that lack something are, too.

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use sandbox::wait;
use serde_json::json;

use super::{BEN, CONDITION, KEY, NAME, api, deployment, files, key, on_site, secret, with_jump_host};

#[test]
fn a_bad_key_is_named_by_its_index_and_the_others_work() {
    on_site("jump-keys", async |stage| {
        let keys = json!([
            // As a block of YAML ends.
            format!("{KEY}\n"),
            "ssh-ed25519 nonsense",
            BEN,
            format!("command=\"sh\" {KEY}"),
            format!("{BEN}\n{KEY}"),
        ]);
        let shop = with_jump_host(
            "jump-keys",
            &json!({"sshAuthorizedKeys": keys, "sshUserCA": ["hello", format!("{BEN}\n"), format!("{KEY}\u{7}")]}),
        );
        stage.create(&shop).await;
        let why = stage
            .condition_mentions(&shop, CONDITION, "False", "InvalidKey", "sshAuthorizedKeys[1]")
            .await;
        for expected in [
            "sshAuthorizedKeys[1]: must be a public key",
            "sshAuthorizedKeys[3]: option \"command\" is not allowed",
            "sshAuthorizedKeys[4]: must have no control characters",
            "sshUserCA[0]: must be a public key",
            "sshUserCA[2]: must have no control characters",
        ] {
            assert!(why.contains(expected), "{why}");
        }
        let files_now = files(stage, "jump-keys").await;
        assert_eq!(files_now["authorized_keys"], format!("{KEY}\n{BEN}\n"));
        assert_eq!(files_now["user_ca"], format!("{BEN}\n"));
        stage
            .condition_is(&shop, "Ready", "False", "InfraServiceFailure")
            .await;

        let mended = json!({"services": {"jumpHost": [{
            "image": "jump-host:1", "nodeInterfaceId": sandbox::inventory::NETWORK, "sshAuthorizedKeys": [BEN],
        }]}});
        stage.edit(&shop, mended).await;
        stage.ready(&shop).await;
        let files_now = files(stage, "jump-keys").await;
        assert_eq!(files_now["authorized_keys"], format!("{BEN}\n"));
        assert!(!files_now["sshd_config"].contains("TrustedUserCAKeys"));
    });
}

#[test]
fn without_any_key_it_is_ready_and_says_so() {
    on_site("jump-nobody", async |stage| {
        let shop = with_jump_host("jump-nobody", &json!({"sshAuthorizedKeys": []}));
        stage.create(&shop).await;
        let ready = stage.ready(&shop).await;
        let (status, reason, _) = wait::condition(&ready, CONDITION).unwrap();
        assert_eq!((status, reason), ("True", "NoKeys"));
    });
}

#[test]
fn without_power_control_it_is_ready_and_says_so() {
    on_site("jump-no-power", async |stage| {
        let shop = with_jump_host("jump-no-power", &json!({}));
        stage.create(&shop).await;
        let ready = stage.ready(&shop).await;
        let (status, reason, message) = wait::condition(&ready, CONDITION).unwrap();
        assert_eq!((status, reason), ("True", "PowerServiceUnavailable"));
        assert!(message.starts_with("jumphost-shop: "), "{message}");
    });
}

#[test]
fn secrets_of_the_tenant_that_lack_something_are_named() {
    on_site("jump-secrets", async |stage| {
        let shop = with_jump_host(
            "jump-secrets",
            &json!({"nodeSSHPrivateKeys": "node-keys", "kubeconfigSecret": "shop-kubeconfig"}),
        );
        stage.create(&shop).await;
        let why = stage
            .condition_is(&shop, CONDITION, "False", "KeySecretMissing")
            .await;
        assert_eq!(
            why,
            "jumphost-shop: nodeSSHPrivateKeys: the Secret node-keys does not exist"
        );
        let secrets: Api<Secret> = api(stage, "jump-secrets");
        let (private, _) = key("ed25519");
        let node_keys = Secret {
            metadata: kube::core::ObjectMeta {
                name: Some("node-keys".to_owned()),
                ..kube::core::ObjectMeta::default()
            },
            data: Some(
                [
                    ("good".to_owned(), ByteString(private)),
                    ("bad".to_owned(), ByteString(b"DUMMY".to_vec())),
                ]
                .into(),
            ),
            ..Secret::default()
        };
        secrets.create(&PostParams::default(), &node_keys).await.unwrap();
        let why = stage
            .condition_is(&shop, CONDITION, "False", "KeySecretInvalid")
            .await;
        assert_eq!(
            why,
            "jumphost-shop: nodeSSHPrivateKeys: the Secret node-keys has values that are no private keys: bad"
        );
        let mended = Patch::Merge(json!({"data": {"bad": null}}));
        secrets
            .patch("node-keys", &PatchParams::default(), &mended)
            .await
            .unwrap();
        let why = stage
            .condition_is(&shop, CONDITION, "False", "KubeconfigMissing")
            .await;
        assert!(why.contains("the Secret shop-kubeconfig does not exist"), "{why}");
        let kubeconfig: Secret = serde_json::from_value(
            json!({"metadata": {"name": "shop-kubeconfig"}, "stringData": {"value": "apiVersion: v1"}}),
        )
        .unwrap();
        secrets.create(&PostParams::default(), &kubeconfig).await.unwrap();
        stage.ready(&shop).await;
        // The pods may read the one Secret, and mount the other.
        let pod = deployment(stage, "jump-secrets")
            .await
            .spec
            .template
            .spec
            .unwrap();
        let pod = serde_json::to_string(&pod).unwrap();
        assert!(
            pod.contains("--node-keys=node-keys") && pod.contains("/home/ubuntu/.kube"),
            "{pod}"
        );
    });
}

#[test]
fn a_given_host_key_is_used_and_a_broken_one_is_named() {
    on_site("jump-host-key", async |stage| {
        let shop = with_jump_host("jump-host-key", &json!({}));
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let before = deployment(stage, "jump-host-key").await;
        let (private, fingerprint) = key("ed25519");
        let secrets: Api<Secret> = api(stage, "jump-host-key");
        let put = json!({"data": {"ssh_host_ed25519_key": ByteString(private.clone())}});
        secrets
            .patch(NAME, &PatchParams::default(), &Patch::Merge(put))
            .await
            .unwrap();
        stage
            .until(&shop, "show the new host key", |object| {
                object.data["status"]["endpoints"][0]["hostKeyFingerprints"]["ssh-ed25519"] == fingerprint
            })
            .await;
        let after = deployment(stage, "jump-host-key").await;
        assert!(
            after.metadata.generation > before.metadata.generation,
            "sshd reads host keys once"
        );

        let broken = json!({"data": {"ssh_host_ed25519_key": ByteString(b"broken".to_vec())}});
        secrets
            .patch(NAME, &PatchParams::default(), &Patch::Merge(broken))
            .await
            .unwrap();
        let why = stage
            .condition_is(&shop, CONDITION, "False", "HostKeyInvalid")
            .await;
        assert!(why.contains("ssh_host_ed25519_key"), "{why}");
        assert_eq!(
            secret(stage, "jump-host-key").await["ssh_host_ed25519_key"].0,
            b"broken"
        );
    });
}
