//! A key or an authority that was removed no longer logs in, also while something else of its entry is refused.

use std::time::Duration;

use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration,
    core::v1::{ConfigMap, Service},
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use sandbox::{inventory::NETWORK, wait};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::{BEN, CONDITION, KEY, NAME, api, files, on_site, with_jump_host};
use crate::fixtures::{Cluster, PATIENCE, Stage};

/// Within this time a key that was removed is gone.
const REMOVED: Duration = Duration::from_secs(10);
/// A key that no entry had before.
const EVE: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINooIBCvzGOCZWwwtw1HpusZ9KMM5DP9s+Ynying1oSV eve@shop.example";

/// A cluster with a jump host that admits Ana and Ben.
async fn with_two_keys(stage: &Stage, scenario: &str) -> Cluster {
    let shop = with_jump_host(
        scenario,
        &json!({"sshAuthorizedKeys": [KEY, BEN], "sshUserCA": [KEY, BEN]}),
    );
    stage.create(&shop).await;
    stage.ready(&shop).await;
    let files = files(stage, scenario).await;
    assert_eq!(files["authorized_keys"], format!("{KEY}\n{BEN}\n"));
    shop
}

/// Removes Ana's key, the authority, and adds Eve's, by an edit that is not applied for `reason`.
async fn is_revoked(stage: &Stage, shop: &Cluster, fields: Value, reason: &str) {
    let scenario = &*shop.namespace;
    let before = files(stage, scenario).await;
    let mut entry = json!({
        "image": "jump-host:1", "nodeInterfaceId": NETWORK, "sshAuthorizedKeys": [BEN, EVE], "sshUserCA": [BEN],
    });
    let fields = fields.as_object().unwrap().clone();
    entry.as_object_mut().unwrap().extend(fields);
    stage.edit(shop, json!({"services": {"jumpHost": [entry]}})).await;
    wait::until(
        api::<ConfigMap>(stage, scenario),
        NAME,
        "ConfigMap to lack what was removed",
        REMOVED,
        |map: &ConfigMap| {
            let files = map.data.as_ref();
            files.is_some_and(|files| {
                !files["authorized_keys"].contains(KEY) && !files["user_ca"].contains(KEY)
            })
        },
    )
    .await
    .unwrap();
    stage.condition_is(shop, CONDITION, "False", reason).await;
    let after = files(stage, scenario).await;
    let only_ben = format!("{BEN}\n");
    assert_eq!(
        (&after["authorized_keys"], &after["user_ca"]),
        (&only_ben, &only_ben),
        "an entry that is not applied lets nobody else in"
    );
    for file in ["sshd_config", "ssh_config", "principals"] {
        assert_eq!(after[file], before[file], "{file}");
    }
}

/// The same without what was refused: all of it is applied.
async fn is_applied(stage: &Stage, scenario: &str, shop: &Cluster) {
    let entry = json!({
        "image": "jump-host:1", "nodeInterfaceId": NETWORK, "sshAuthorizedKeys": [BEN, EVE], "sshUserCA": [],
    });
    stage.edit(shop, json!({"services": {"jumpHost": [entry]}})).await;
    stage.ready(shop).await;
    let files = files(stage, scenario).await;
    assert_eq!(files["authorized_keys"], format!("{BEN}\n{EVE}\n"));
    assert_eq!(files["user_ca"], "");
}

#[test]
fn a_removed_key_is_gone_though_an_override_is_refused() {
    on_site("jump-override", async |stage| {
        let shop = with_two_keys(stage, "jump-override").await;
        let refused = json!({"override": {"service": {"metadata": {"annotations": {"example.org/x": "y"}}}}});
        is_revoked(stage, &shop, refused, "OverrideNotAllowed").await;
        is_applied(stage, "jump-override", &shop).await;
    });
}

#[test]
fn a_removed_key_is_gone_though_a_port_is_taken() {
    on_site("jump-port", async |stage| {
        let shop = with_two_keys(stage, "jump-port").await;
        let metadata = json!({"name": "other", "namespace": "jump-port"});
        let ports = json!([{"port": 80, "nodePort": 31_531}]);
        let other: Service = serde_json::from_value(
            json!({"metadata": metadata, "spec": {"type": "NodePort", "ports": ports}}),
        )
        .unwrap();
        let services = api::<Service>(stage, "jump-port");
        services.create(&PostParams::default(), &other).await.unwrap();
        is_revoked(stage, &shop, json!({"nodePort": 31_531}), "PortConflict").await;
        is_applied(stage, "jump-port", &shop).await;
    });
}

#[test]
fn a_removed_key_is_gone_though_a_network_is_undefined() {
    on_site("jump-network", async |stage| {
        let shop = with_two_keys(stage, "jump-network").await;
        let refused = json!({"networkAttachments": ["nowhere"]});
        is_revoked(stage, &shop, refused, "NetworkAttachmentMissing").await;
        is_applied(stage, "jump-network", &shop).await;
    });
}

/// Waits until the API server calls the webhook, which it learns of by a watch.
async fn fails(services: &Api<Service>) {
    let tried = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let change = Patch::Merge(json!({"metadata": {"annotations": {"example.org/tried": "x"}}}));
    let failing = async {
        while services.patch(NAME, &tried, &change).await.is_ok() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, failing).await.unwrap();
}

/// The API server does not refuse the Service: it fails, since it cannot reach the webhook.
#[test]
fn a_removed_key_is_gone_though_its_service_fails() {
    on_site("jump-failing", async |stage| {
        let shop = with_two_keys(stage, "jump-failing").await;
        let webhook = json!({
            "name": "services.example.org", "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 1,
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "jump-failing"}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["services"], "operations": ["UPDATE"]}],
        });
        let webhook: ValidatingWebhookConfiguration =
            serde_json::from_value(json!({"metadata": {"name": "jump-failing"}, "webhooks": [webhook]}))
                .unwrap();
        let webhooks = Api::<ValidatingWebhookConfiguration>::all(stage.site.client());
        webhooks.create(&PostParams::default(), &webhook).await.unwrap();
        fails(&api::<Service>(stage, "jump-failing")).await;
        is_revoked(stage, &shop, json!({"nodePort": 31_533}), "Progressing").await;
        webhooks
            .delete("jump-failing", &DeleteParams::default())
            .await
            .unwrap();
        is_applied(stage, "jump-failing", &shop).await;
    });
}
