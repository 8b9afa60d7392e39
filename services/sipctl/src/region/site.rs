//! A site's objects, read from its API server: what `kubectl get -A` would show of hosts, `SIPCluster`s and networkData.

use std::collections::BTreeSet;

use anyhow::Context as _;
use api::{BareMetalHost, SIPCluster};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject, ListParams},
};
use placement::Namespace;
use serde_json::{Value, json};

use super::sip_templates::config_map_names;
use crate::input::{self, Document};

/// Number of objects in one answer.
const PAGE_SIZE: u32 = 500;

/// Every `BareMetalHost` and `SIPCluster`, and the Secrets of the namespaces that hosts name for their networkData.
///
/// # Errors
/// What the API server answers.
pub(crate) async fn documents(client: &Client) -> anyhow::Result<Vec<Document>> {
    let hosts = all::<BareMetalHost>(client, None).await?;
    let text = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_str).map(str::to_owned);
    let namespaces: BTreeSet<String> = hosts
        .iter()
        .filter(|host| host.pointer("/spec/networkData/name").is_some())
        .filter_map(|host| {
            let named = text(host, "/spec/networkData/namespace").filter(|namespace| !namespace.is_empty());
            named.or_else(|| text(host, "/metadata/namespace"))
        })
        .collect();
    let mut objects = hosts;
    objects.extend(all::<SIPCluster>(client, None).await?);
    for namespace in namespaces {
        objects.extend(all::<Secret>(client, Some(&namespace)).await?);
    }
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    Ok(input::documents("the API server", &list.to_string())?)
}

/// The `ConfigMap`s of these namespaces that may hold a template of Airship SIP or of the agents.
///
/// # Errors
/// What the API server answers.
pub(crate) async fn template_config_maps(
    client: &Client,
    namespaces: BTreeSet<&Namespace>,
) -> anyhow::Result<Vec<Document>> {
    let mut objects = Vec::new();
    for namespace in namespaces {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace.as_str());
        for name in config_map_names() {
            let found = maps.get_opt(name).await;
            let found = found.with_context(|| format!("the ConfigMap {namespace}/{name} cannot be read"))?;
            objects.extend(found);
        }
    }
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    Ok(input::documents("the API server", &list.to_string())?)
}

/// Every object of a kind, as it is served.
async fn all<K: Resource<DynamicType = ()>>(
    client: &Client,
    namespace: Option<&str>,
) -> anyhow::Result<Vec<Value>> {
    let resource = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let mut found = Vec::new();
    let mut page = ListParams::default().limit(PAGE_SIZE);
    loop {
        let list = api
            .list(&page)
            .await
            .with_context(|| format!("the API server does not list {}", resource.plural))?;
        for object in list.items {
            let mut object = serde_json::to_value(object)?;
            // The items of a list need not say what they are.
            object["apiVersion"] = json!(resource.api_version);
            object["kind"] = json!(resource.kind);
            found.push(object);
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(found),
        }
    }
}
