//! The policy on what the Dex agent keeps of identity providers: the accounts of this test may do everything else.

use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{labels::account, refusal, site, until};

const KEYS: &str = "auth-shop.keys";

fn secret(name: &str) -> Secret {
    let object = json!({
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "sip"}},
        "data": {"ca.key": "QQ==", "tls.crt": "QQ=="},
    });
    serde_json::from_value(object).unwrap()
}

fn secrets(client: &Client) -> Api<Secret> {
    Api::namespaced(client.clone(), "other")
}

async fn created(api: &Api<Secret>, name: &str, dry_run: bool) -> Result<(), String> {
    let params = PostParams {
        dry_run,
        ..PostParams::default()
    };
    refusal(api.create(&params, &secret(name)).await)
}

async fn patched(api: &Api<Secret>, patch: &Value) -> Result<(), String> {
    refusal(
        api.patch(KEYS, &PatchParams::default(), &Patch::Merge(patch))
            .await,
    )
}

#[tokio::test]
async fn only_the_dex_agent_fills_the_keys_of_a_provider() {
    let site = site().await;
    let agent = secrets(&account(&site, ("sip-system", "sip-dex-agent")).await);
    let others = secrets(&account(&site, ("other", "tenant")).await);
    until(async || created(&others, KEYS, true).await.is_err()).await;

    // A user who could create it before the agent would choose the CA that everybody who logs in trusts.
    let refused = created(&others, KEYS, false).await.unwrap_err();
    assert!(
        refused.contains("Secret other/auth-shop.keys: only the Dex agent creates"),
        "{refused}"
    );
    for name in ["auth-shop", "auth-shop.tls", "shop.keys", "auth-shop.keys2"] {
        assert_eq!(created(&others, name, false).await, Ok(()), "{name}");
    }
    assert_eq!(created(&agent, KEYS, false).await, Ok(()));

    let passes = [
        json!({"metadata": {"annotations": {"note": "of a backup"}}}),
        json!({"data": {"tls.crt": null}}),
    ];
    let refused = [
        json!({"data": {"ca.key": "Qg=="}}),
        json!({"stringData": {"ca.key": "B"}}),
        json!({"data": {"tls.crt": "QQ=="}}),
        json!({"data": {"storage-password": "Qg=="}}),
        json!({"metadata": {"labels": {"app.kubernetes.io/part-of": null}}}),
        json!({"immutable": true}),
    ];
    for patch in &passes {
        assert_eq!(patched(&others, patch).await, Ok(()), "{patch}");
    }
    for patch in &refused {
        let message = patched(&others, patch).await.expect_err(&patch.to_string());
        assert!(
            message.contains("remove a key to have the agent make it anew"),
            "{message}"
        );
    }
    // The last one would make the object immutable for the agent too.
    for patch in &refused[..refused.len() - 1] {
        assert_eq!(patched(&agent, patch).await, Ok(()), "{patch}");
    }

    // Who is the owner gets the keys; the garbage collector removes owners where a deletion orphans.
    let namespaces: Api<Namespace> = Api::all(site.client());
    let namespace = namespaces.get("other").await.unwrap();
    let owner =
        json!({"apiVersion": "v1", "kind": "Namespace", "name": "other", "uid": namespace.metadata.uid});
    let own = json!({"metadata": {"ownerReferences": [owner]}});
    let message = patched(&others, &own).await.unwrap_err();
    assert!(
        message.contains("sets their keys, labels and owners"),
        "{message}"
    );
    let collector = secrets(&account(&site, ("kube-system", "generic-garbage-collector")).await);
    assert_eq!(patched(&collector, &own).await, Ok(()));
    others
        .delete(KEYS, &kube::api::DeleteParams::default())
        .await
        .unwrap();
}
