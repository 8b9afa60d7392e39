//! What SIP made before is taken over under its name, without its passwords and with the host key that users know.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DynamicObject, PostParams},
};
use serde_json::{Value, json};

use super::{NAME, api, deployment, files, key, on_site, secret, with_jump_host};
use crate::fixtures::Stage;

fn labels() -> Value {
    json!({
        "app.kubernetes.io/component": "jumphost", "app.kubernetes.io/instance": NAME,
        "app.kubernetes.io/name": "jumphost", "app.kubernetes.io/part-of": "sip",
    })
}

/// SIP's objects, with a host key that an operator has saved from its image.
fn made_by_sip(host_key: &str) -> [(Value, &'static str); 4] {
    let pod = json!({
        "securityContext": {"fsGroup": 1000},
        "hostAliases": [{"ip": "10.0.0.30", "hostnames": ["host-000030"]}],
        "initContainers": [{
            "name": "ssh-perms", "image": "jump-host:0", "command": ["/bin/sh", "-c"],
            "args": ["mkdir -m700 /home/ubuntu/.ssh"],
        }],
        "containers": [{
            "name": "jumphost", "image": "jump-host:0", "imagePullPolicy": "IfNotPresent",
            "ports": [{"name": "ssh", "containerPort": 22}],
            "volumeMounts": [
                {"name": "data", "mountPath": "/etc/opt/sip/hosts", "subPath": "hosts"},
                {"name": "scripts", "mountPath": "/opt/sip/bin"},
                {"name": "authorized-keys", "mountPath": "/home/ubuntu/.ssh/authorized_keys", "subPath": "authorized_keys"},
            ],
        }],
        "volumes": [
            {"name": "data", "secret": {"secretName": NAME}},
            {"name": "scripts", "configMap": {"name": NAME, "defaultMode": 511}},
            {"name": "authorized-keys", "configMap": {"name": NAME}},
        ],
    });
    let password =
        r#"[{"name":"host-000030","bmc":{"ip":"10.200.0.30","username":"admin","password":"password"}}]"#;
    [
        (
            json!({"apiVersion": "v1", "kind": "Secret", "stringData": {
                "hosts": password, "ssh_config": "Host *\n", "ssh_host_ed25519_key": host_key,
            }}),
            "secrets",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"authorized-keys": "old", "host": "#!/bin/sh\n"}}),
            "configmaps",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Service", "spec": {
                "type": "NodePort", "selector": labels(),
                "ports": [{"name": "ssh", "port": 22, "targetPort": 22, "nodePort": 31_520}],
            }}),
            "services",
        ),
        (
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {
                "replicas": 1, "selector": {"matchLabels": labels()},
                "template": {"metadata": {"labels": labels()}, "spec": pod},
            }}),
            "deployments",
        ),
    ]
}

/// Makes an object under the name by which SIP's process is known to the API server.
async fn make(stage: &Stage, namespace: &str, mut object: Value, plural: &str) {
    object["metadata"] = json!({"name": NAME, "namespace": namespace, "labels": labels()});
    if plural == "services" {
        object["metadata"]["labels"] = json!({});
    }
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let types = object.types.clone().unwrap();
    let kind = kube::api::GroupVersionKind::try_from(&types).unwrap();
    let resource = kube::api::ApiResource::from_gvk_with_plural(&kind, plural);
    let api: Api<DynamicObject> = Api::namespaced_with(stage.site.client(), namespace, &resource);
    let sip = PostParams {
        field_manager: Some("manager".to_owned()),
        ..PostParams::default()
    };
    api.create(&sip, &object).await.unwrap();
}

#[test]
fn defect_28_no_password_is_left_where_jump_hosts_are() {
    on_site("jump-sip", async |stage| {
        let (host_key, fingerprint) = key("ed25519");
        let host_key = String::from_utf8(host_key).unwrap();
        for (object, plural) in made_by_sip(&host_key) {
            make(stage, "jump-sip", object, plural).await;
        }
        let before = deployment(stage, "jump-sip").await;
        let shop = with_jump_host("jump-sip", &json!({"nodePort": 31_520}));
        stage.create(&shop).await;
        let ready = stage.ready(&shop).await;

        // The host key is kept byte for byte, and everything else of the Secret is gone.
        let data = secret(stage, "jump-sip").await;
        assert_eq!(data.keys().collect::<Vec<_>>(), ["ssh_host_ed25519_key"]);
        assert_eq!(data["ssh_host_ed25519_key"].0, host_key.as_bytes());
        let endpoint = &ready.data["status"]["endpoints"][0];
        assert_eq!(endpoint["hostKeyFingerprints"]["ssh-ed25519"], fingerprint);
        assert_eq!(endpoint["port"], 31_520);

        let after = deployment(stage, "jump-sip").await;
        assert_eq!(
            (&after.metadata.uid, &after.spec.selector),
            (&before.metadata.uid, &before.spec.selector)
        );
        let pod = after.spec.template.spec.unwrap();
        let init: Vec<_> = pod
            .init_containers
            .iter()
            .flatten()
            .map(|container| container.name.as_str())
            .collect();
        assert_eq!(init, ["tools", "follow-keys"]);
        assert_eq!(pod.host_aliases, None);
        let mounts = pod.containers[0].volume_mounts.iter().flatten();
        assert!(
            mounts.clone().all(|mount| mount.sub_path.is_none()),
            "{:?}",
            mounts.collect::<Vec<_>>()
        );
        let text = serde_json::to_string(&pod.volumes).unwrap();
        assert!(!text.contains("scripts") && !text.contains("\"hosts\""), "{text}");
        let map = api::<ConfigMap>(stage, "jump-sip").get(NAME).await.unwrap();
        assert_eq!(map.metadata.owner_references.unwrap()[0].name, "shop");
        let files = files(stage, "jump-sip").await;
        assert!(
            !files.contains_key("host") && !files.contains_key("authorized-keys"),
            "{files:?}"
        );
    });
}
