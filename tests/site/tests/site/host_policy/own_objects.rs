//! Objects that agents may create, and that RBAC cannot limit by name or content, as a stolen token of an agent writes them: the accounts of this
//! test may do everything.

use std::fmt::Debug;

use k8s_openapi::{
    NamespaceResourceScope,
    api::{coordination::v1::Lease, core::v1::ConfigMap, events::v1::Event},
};
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{labels::account, refusal, site, until};

const AGENTS: [&str; 4] = [
    "sip-cluster-agent",
    "sip-load-balancer-agent",
    "sip-jump-host-agent",
    "sip-dex-agent",
];
const TEMPLATES: &str = "sip-load-balancer-templates";

async fn created<K>(client: &Client, namespace: &str, object: &Value, dry_run: bool) -> Result<(), String>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize,
{
    let api = Api::<K>::namespaced(client.clone(), namespace);
    let params = PostParams {
        dry_run,
        ..PostParams::default()
    };
    let object: K = serde_json::from_value(object.clone()).unwrap();
    refusal(api.create(&params, &object).await)
}

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

/// An Event on a pod in the namespace `other`, as this controller reports it.
fn event(name: &str, controller: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": controller, "reportingInstance": controller,
        "action": "Test", "reason": "Test", "type": "Normal", "note": "text",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "other", "name": "pod"},
    })
}

async fn labelled(client: &Client, name: &str) -> Result<(), String> {
    let events = Api::<Event>::namespaced(client.clone(), "other");
    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    refusal(events.patch(name, &PatchParams::default(), &patch).await)
}

#[tokio::test]
async fn agents_create_no_lease_map_or_event_of_others() {
    let site = site().await;
    let administrator = site.client();
    let of_kubelet = event("of-kubelet", "kubelet");
    let first = created::<Event>(&administrator, "other", &of_kubelet, false).await;
    first.unwrap();
    let mut wrong = Vec::new();
    for agent in AGENTS {
        let client = account(&site, ("sip-system", agent)).await;
        until(async || {
            created::<Lease>(&client, "sip-system", &named("lock"), true)
                .await
                .is_err()
        })
        .await;
        let has_templates = agent == "sip-load-balancer-agent";
        let (own, forged) = (format!("of-{agent}"), format!("forged-by-{agent}"));
        for (what, outcome, passes) in [
            (
                "its own Lease",
                created::<Lease>(&client, "sip-system", &named(agent), false).await,
                true,
            ),
            (
                "a Lease",
                created::<Lease>(&client, "sip-system", &named("lock"), false).await,
                false,
            ),
            (
                "the Lease of a node",
                created::<Lease>(&client, "other", &named("node"), false).await,
                false,
            ),
            (
                "the templates",
                created::<ConfigMap>(&client, "sip-system", &named(TEMPLATES), false).await,
                has_templates,
            ),
            (
                "a ConfigMap of the agents",
                created::<ConfigMap>(&client, "sip-system", &named("sip-site"), false).await,
                false,
            ),
            (
                "a ConfigMap of a tenant",
                created::<ConfigMap>(&client, "other", &named(agent), false).await,
                true,
            ),
            (
                "its own Event",
                created::<Event>(&client, "other", &event(&own, agent), false).await,
                true,
            ),
            ("its own Event again", labelled(&client, &own).await, true),
            (
                "an Event of the kubelet",
                created::<Event>(&client, "other", &event(&forged, "kubelet"), false).await,
                false,
            ),
            (
                "the Event that the kubelet has written",
                labelled(&client, "of-kubelet").await,
                false,
            ),
        ] {
            if outcome.is_ok() != passes {
                wrong.push(format!("{agent}: {what}: {outcome:?}"));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
}
