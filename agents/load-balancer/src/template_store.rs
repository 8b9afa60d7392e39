//! Accepted templates by their digests, in a `ConfigMap` of the agent's own. They survive a restart of the agent, and a tenant who may
//! change a Deployment can at most name another template of the site.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kit::{apply, service::Error};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    core::ObjectMeta,
};
use render::load_balancer::template::Template;
use serde_json::{Value, json};

use crate::identity::MANAGER;

/// Name of the `ConfigMap`.
pub(crate) const CONFIG_MAP_NAME: &str = "sip-load-balancer-templates";

/// Accepted templates.
#[derive(Clone, Debug)]
pub(crate) struct TemplateStore {
    maps: Api<ConfigMap>,
    namespace: String,
}

impl TemplateStore {
    pub(crate) fn new(client: Client, namespace: &str) -> Self {
        Self {
            maps: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
        }
    }

    /// The agents' own.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The template of a digest, if it is stored and has that digest.
    pub(crate) async fn get(&self, digest: &str) -> Result<Option<Template>, Error> {
        let found = self.maps.get_opt(CONFIG_MAP_NAME).await;
        let found = found.map_err(Error::kubernetes("read the stored templates"))?;
        let text = found.and_then(|map| map.data?.remove(digest));
        let template = text.and_then(|text| Template::parse(&text).ok());
        Ok(template.filter(|template| template.digest() == digest))
    }

    /// Stores one template without touching others, which may be put and removed at the same time. Returns the digests of all.
    pub(crate) async fn put(&self, template: &Template) -> kube::Result<Vec<String>> {
        let data = BTreeMap::from([(template.digest().to_owned(), template.text().to_owned())]);
        let patched = match self.patch(&json!(data)).await {
            Err(error) if apply::code(&error) == Some(404) => {
                let first = ConfigMap {
                    metadata: ObjectMeta {
                        name: Some(CONFIG_MAP_NAME.to_owned()),
                        ..ObjectMeta::default()
                    },
                    data: Some(data.clone()),
                    ..ConfigMap::default()
                };
                match self.maps.create(&PostParams::default(), &first).await {
                    // Another writer created it first.
                    Err(error) if apply::code(&error) == Some(409) => self.patch(&json!(data)).await?,
                    created => created?,
                }
            }
            patched => patched?,
        };
        Ok(patched.data.unwrap_or_default().into_keys().collect())
    }

    /// Removes templates.
    pub(crate) async fn remove(&self, digests: &[String]) -> Result<(), Error> {
        if digests.is_empty() {
            return Ok(());
        }
        let removed: serde_json::Map<_, _> = digests
            .iter()
            .map(|digest| (digest.clone(), Value::Null))
            .collect();
        let patched = self.patch(&Value::Object(removed)).await;
        patched
            .map(drop)
            .map_err(Error::kubernetes("remove unused templates"))
    }

    async fn patch(&self, data: &Value) -> kube::Result<ConfigMap> {
        let params = PatchParams {
            field_manager: Some(MANAGER.0.to_owned()),
            ..PatchParams::default()
        };
        self.maps
            .patch(CONFIG_MAP_NAME, &params, &Patch::Merge(json!({"data": data})))
            .await
    }
}
