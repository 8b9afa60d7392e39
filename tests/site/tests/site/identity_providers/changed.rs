//! What an entry changes in its objects besides the configuration of Dex, and what the agent tells whoever scrapes it.

use api::conditions::AUTH_READY;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service, networking::v1::NetworkPolicy};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use sandbox::wait;
use serde_json::{Value, json};

use super::{BIND_PASSWORD, NAMESPACE, Scene};
use crate::{
    fixtures::{PATIENCE, metrics_at},
    scraped::samples,
};

const PORT: u16 = 31_660;
const NAME: &str = "auth-shop";

#[tokio::test]
async fn an_entry_changes_its_service_and_is_measured() {
    let scene = Scene::start().await;
    let stage = &scene.stage;
    let condition = AUTH_READY.as_str();
    scene.set_bind_password(BIND_PASSWORD).await;
    let (services, deployments): (Api<Service>, Api<Deployment>) = (scene.api(), scene.api());
    let resources = json!({"requests": {"cpu": "20m"}, "limits": {"memory": "200Mi"}});
    let service = |label: &str| {
        json!({"service": {
            "metadata": {
                "labels": {label: "blue"},
                "annotations": {"metallb.universe.tf/address-pool": "tenants"},
            },
            "spec": {"type": "LoadBalancer", "loadBalancerClass": "example.org/metallb"},
        }})
    };
    let shop = scene
        .cluster("shop", PORT)
        .with("/services/auth/0/resources", resources.clone())
        .with("/services/auth/0/networkAttachments", json!(["storage"]))
        .with("/services/auth/0/override", service("exposed-by"));

    // Nothing is applied that the site does not allow, or cannot do.
    stage.create(&shop).await;
    let why = stage
        .condition_is(&shop, condition, "False", "OverrideNotAllowed")
        .await;
    assert!(why.contains("metadata.labels[exposed-by]"), "{why}");
    let shop = shop.with("/services/auth/0/override", service("team"));
    stage.edit(&shop, shop.spec().clone()).await;
    stage
        .condition_mentions(
            &shop,
            condition,
            "False",
            "NetworkAttachmentMissing",
            "Multus is not installed",
        )
        .await;
    assert!(services.get_opt(NAME).await.unwrap().is_none());

    let shop = shop.with("/services/auth/0/networkAttachments", json!([]));
    stage.edit(&shop, shop.spec().clone()).await;
    stage
        .condition_is(&shop, condition, "False", "IssuerUnreachable")
        .await;
    let service = services.get(NAME).await.unwrap();
    assert_eq!(service.metadata.labels.unwrap()["team"], "blue");
    let pool = &service.metadata.annotations.unwrap()["metallb.universe.tf/address-pool"];
    assert_eq!(pool, "tenants");
    let spec = service.spec.unwrap();
    assert_eq!(spec.type_.as_deref(), Some("LoadBalancer"));
    assert_eq!(spec.load_balancer_class.as_deref(), Some("example.org/metallb"));
    let pod = deployments.get(NAME).await.unwrap().spec.template.spec.unwrap();
    let limited = serde_json::to_value(&pod.containers[0].resources).unwrap();
    assert_eq!(limited, resources);
    let policies: Api<NetworkPolicy> = scene.api();
    stage.deleted_comes_back(&policies, NAME).await;
    admits_only_scrapers_to_metrics(&policies.get(NAME).await.unwrap());

    pods_outlast_an_address(&scene).await;
    is_measured(&scene).await;
    stage.nothing_was_forbidden();
}

/// The certificate has the address that the load balancer gives. While the load balancer takes it back the pods stay as they are.
async fn pods_outlast_an_address(scene: &Scene) {
    let (services, deployments): (Api<Service>, Api<Deployment>) = (scene.api(), scene.api());
    let before = deployments.get(NAME).await.unwrap();
    let given = async |ingress: Value| {
        let status = Patch::Merge(json!({"status": {"loadBalancer": {"ingress": ingress}}}));
        let params = PatchParams::default();
        services.patch_status(NAME, &params, &status).await.unwrap();
    };
    given(json!([{"ip": "192.0.2.77"}])).await;
    let with_address = wait::until(
        deployments.clone(),
        NAME,
        "get other pods",
        PATIENCE,
        |next: &Deployment| next.spec != before.spec,
    );
    let with_address = with_address.await.unwrap();

    given(json!([])).await;
    // A pass that restores the label has observed this Service; the next one has applied the Deployment before.
    let label = Patch::Merge(json!({"metadata": {"labels": {"team": "red"}}}));
    services
        .patch(NAME, &PatchParams::default(), &label)
        .await
        .unwrap();
    let restored = |service: &Service| service.labels().get("team").is_some_and(|team| team == "blue");
    let waiting = wait::until(services.clone(), NAME, "have its label", PATIENCE, restored);
    waiting.await.unwrap();
    scene
        .stage
        .deleted_comes_back(&scene.api::<NetworkPolicy>(), NAME)
        .await;
    given(json!([{"ip": "192.0.2.77"}])).await;
    scene
        .stage
        .deleted_comes_back(&scene.api::<NetworkPolicy>(), NAME)
        .await;
    let after = deployments.get(NAME).await.unwrap();
    assert_eq!(after.metadata.generation, with_address.metadata.generation);
}

/// Everybody reaches the login; the metrics only namespaces that scrape.
fn admits_only_scrapers_to_metrics(policy: &NetworkPolicy) {
    let spec = serde_json::to_value(&policy.spec).unwrap();
    let rules = spec["ingress"].as_array().unwrap();
    let rule = |port: u16| {
        let mut rules = rules.iter();
        rules.find(|rule| rule["ports"][0]["port"] == port).unwrap()
    };
    assert_eq!(rules.len(), 2, "{spec}");
    assert_eq!(rule(5556)["from"], Value::Null);
    let scrapers =
        json!([{"namespaceSelector": {"matchLabels": {"sip.airshipit.org/scrapes-metrics": "true"}}}]);
    assert_eq!(rule(5558)["from"], scrapers);
}

/// The agent has measured the storage and its reconciles, and names no tenant.
async fn is_measured(scene: &Scene) {
    let metrics = metrics_at(&format!("127.0.0.1:{}", scene.agent.health_port())).await;
    assert_eq!(samples(&metrics, "sip_agent_is_leader"), [("", 1.0)], "{metrics}");
    assert_eq!(
        samples(&metrics, "sip_dex_agent_removed_logins_total"),
        [("", 0.0)],
        "{metrics}"
    );
    let of_storage = [
        "sip_dex_agent_storage_in_use_bytes",
        "sip_dex_agent_storage_quota_bytes",
    ]
    .map(|name| samples(&metrics, name));
    let [in_use, quota] = of_storage.map(|samples| samples[0].1);
    assert!(0.0 < in_use && in_use < quota, "{in_use} {quota}\n{metrics}");
    for name in ["sip_agent_reconciles_total", "sip_agent_api_requests_total"] {
        assert!(!samples(&metrics, name).is_empty(), "{name}: {metrics}");
    }
    for name in [NAMESPACE, "shop", "example.org"] {
        assert!(!metrics.contains(name), "{name}: labels must stay few\n{metrics}");
    }
}
