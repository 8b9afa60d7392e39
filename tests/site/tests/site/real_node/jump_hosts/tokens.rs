//! Tokens that prove no jump host, shown by the command `host` of a real pod: those that the kubelet and the API server have made.

use std::time::{Duration, Instant, SystemTime};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, PostParams},
};
use sandbox::service_account_token::expiring;
use serde_json::json;

use super::{NAME, Scene, client::Key, client::Login, on_site, shop};
use crate::fixtures::Role;

/// A deleted pod's token is refused within this time.
const REFUSED_WITHIN: Duration = Duration::from_secs(10);

/// A token of a `ServiceAccount`, bound to a pod or not.
async fn token(scene: &Scene, namespace: &str, account: &str, audience: &str, pod: Option<&str>) -> String {
    let mut arguments = vec![
        "create",
        "token",
        account,
        "-n",
        namespace,
        "--audience",
        audience,
    ];
    let bound = ["--bound-object-kind", "Pod", "--bound-object-name"];
    arguments.extend(pod.into_iter().flat_map(|pod| bound.into_iter().chain([pod])));
    scene.stage.kubectl(&arguments).await.trim().to_owned()
}

/// What `host` says to a command with this token.
async fn host(login: &Login, token: &str, command: &str) -> Result<String, String> {
    let printed = login
        .run(&format!(
            "umask 77; echo {token} >/tmp/token; host --token /tmp/token {command}"
        ))
        .await;
    if printed.success {
        Ok(printed.stdout)
    } else {
        Err(printed.stderr)
    }
}

/// Another pod of the namespace, under the account `default`.
async fn start_sleeper(pods: &Api<Pod>, scene: &Scene) {
    let sleeper: Pod = serde_json::from_value(json!({
        "metadata": {"name": "sleeper"},
        "spec": {"containers": [{
            "name": "sleeper", "image": super::OURS, "command": ["/usr/bin/sleep", "3600"],
            "securityContext": {
                "allowPrivilegeEscalation": false, "runAsNonRoot": true, "runAsUser": 1000,
                "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
            },
        }]},
    }))
    .unwrap();
    pods.create(&PostParams::default(), &sleeper).await.unwrap();
    scene
        .stage
        .kubectl(&[
            "wait",
            "-n",
            "jump-tokens",
            "pod/sleeper",
            "--for=condition=Ready",
            "--timeout=120s",
        ])
        .await;
}

#[test]
fn tokens_that_prove_no_jump_host_are_refused_in_the_pod() {
    on_site("jump-tokens", async |scene| {
        let (ana, stage) = (Key::new("ana"), &scene.stage);
        stage
            .site
            .create_tenant_namespace("jump-tokens-bank")
            .await
            .unwrap();
        let hosts = [
            scene.host("jump-tokens", "a", "worker"),
            scene.host("jump-tokens-bank", "b", "worker"),
        ];
        stage.load(&hosts).await;
        let wanted = shop("jump-tokens", &ana, &json!({"nodePort": 31_535})).role(Role::Worker, 1);
        let other = shop("jump-tokens-bank", &ana, &json!({"nodePort": 31_536})).role(Role::Worker, 1);
        let login = scene.jump_host(&wanted, &ana).await;
        scene.jump_host(&other, &ana).await;
        let (own, of_bank) = (
            scene.pod("jump-tokens").await,
            scene.pod("jump-tokens-bank").await,
        );
        let (own, of_bank) = (own.name_any(), of_bank.name_any());

        let good = token(scene, "jump-tokens", NAME, "sip-power", Some(&own)).await;
        let list = host(&login, &good, "list").await.unwrap();
        assert!(
            list.contains("jump-tokens-a") && !list.contains("jump-tokens-bank-b"),
            "{list}"
        );

        let pods: Api<Pod> = Api::namespaced(stage.site.client(), "jump-tokens");
        start_sleeper(&pods, scene).await;
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_secs();
        let key = stage.site.directory().join("pki/service-accounts.key");
        let expired = expiring(&good, i64::try_from(now).unwrap() - 60, &key).unwrap();
        for (what, token, expected) in [
            (
                "another audience",
                token(
                    scene,
                    "jump-tokens",
                    NAME,
                    "https://kubernetes.default.svc",
                    Some(&own),
                )
                .await,
                "the ServiceAccount token is refused",
            ),
            (
                "no pod",
                token(scene, "jump-tokens", NAME, "sip-power", None).await,
                "it is not bound to a pod",
            ),
            ("expired", expired, "the ServiceAccount token is refused"),
            (
                "another pod",
                token(scene, "jump-tokens", "default", "sip-power", Some("sleeper")).await,
                "is not that of a jump host",
            ),
        ] {
            for command in ["list", "off --force jump-tokens-a"] {
                let refused = host(&login, &token, command).await.unwrap_err();
                assert!(refused.contains(expected), "{what}, {command}: {refused}");
            }
        }

        // A token of another tenant leads to that tenant's hosts, wherever it is shown, and to no others.
        let foreign = token(scene, "jump-tokens-bank", NAME, "sip-power", Some(&of_bank)).await;
        let list = host(&login, &foreign, "list").await.unwrap();
        assert!(
            list.contains("jump-tokens-bank-b") && !list.contains("jump-tokens-a"),
            "{list}"
        );
        for (token, host_of_other) in [(&foreign, "jump-tokens-a"), (&good, "jump-tokens-bank-b")] {
            let command = format!("off --force {host_of_other}");
            let refused = host(&login, token, &command).await.unwrap_err();
            assert!(
                refused.contains(&format!("holds no host {host_of_other:?}")),
                "{refused}"
            );
        }

        // The token that the kubelet has given to the pod outlives it nowhere.
        let kept = login.prints("cat /var/run/secrets/sip/power/token").await;
        pods.delete(&own, &DeleteParams::default().grace_period(0))
            .await
            .unwrap();
        let deleted = Instant::now();
        let bank = scene.login(&other, &ana).await;
        let refused = loop {
            match host(&bank, &kept, "list").await {
                Err(refused) => break refused,
                Ok(list) => assert!(deleted.elapsed() < REFUSED_WITHIN, "{list}"),
            }
        };
        assert!(
            refused.contains("the ServiceAccount token is refused"),
            "{refused}"
        );
    });
}
