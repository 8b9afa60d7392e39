//! Templates that were accepted, by their digests, in a `ConfigMap` of the agent's own: what load balancers are rendered by
//! outlives a restart, and who may change a tenant's Deployment can at most name another template of the site.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kit::apply;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    core::ObjectMeta,
};
use render::load_balancer::template::Template;
use serde_json::{Value, json};

use super::{Error, MANAGER};

/// Name of the `ConfigMap`.
pub(super) const NAME: &str = "sip-load-balancer-templates";

/// The `ConfigMap`.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    maps: Api<ConfigMap>,
    namespace: String,
}

impl Kept {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        Self {
            maps: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
        }
    }

    /// The agents' own.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The template of a digest, if it is kept, and is that.
    pub(super) async fn get(&self, digest: &str) -> Result<Option<Template>, Error> {
        let found = self.maps.get_opt(NAME).await;
        let found = found.map_err(Error::kubernetes("read the kept templates"))?;
        let text = found.and_then(|map| map.data?.remove(digest));
        let template = text.and_then(|text| Template::parse(&text).ok());
        Ok(template.filter(|template| template.digest() == digest))
    }

    /// Keeps a template, by itself: others are put and removed at the same time. Returns the digests of all.
    pub(super) async fn put(&self, template: &Template) -> kube::Result<Vec<String>> {
        let data = BTreeMap::from([(template.digest().to_owned(), template.text().to_owned())]);
        let patched = match self.patch(&json!(data)).await {
            Err(error) if apply::code(&error) == Some(404) => {
                let first = ConfigMap {
                    metadata: ObjectMeta {
                        name: Some(NAME.to_owned()),
                        ..ObjectMeta::default()
                    },
                    data: Some(data.clone()),
                    ..ConfigMap::default()
                };
                match self.maps.create(&PostParams::default(), &first).await {
                    // Somebody was faster.
                    Err(error) if apply::code(&error) == Some(409) => self.patch(&json!(data)).await?,
                    created => created?,
                }
            }
            patched => patched?,
        };
        Ok(patched.data.unwrap_or_default().into_keys().collect())
    }

    /// Keeps these no more.
    pub(super) async fn remove(&self, digests: &[String]) -> Result<(), Error> {
        if digests.is_empty() {
            return Ok(());
        }
        let gone: serde_json::Map<_, _> = digests
            .iter()
            .map(|digest| (digest.clone(), Value::Null))
            .collect();
        let patched = self.patch(&Value::Object(gone)).await;
        patched
            .map(drop)
            .map_err(Error::kubernetes("remove templates that nobody uses"))
    }

    async fn patch(&self, data: &Value) -> kube::Result<ConfigMap> {
        let params = PatchParams {
            field_manager: Some(MANAGER.0.to_owned()),
            ..PatchParams::default()
        };
        self.maps
            .patch(NAME, &params, &Patch::Merge(json!({"data": data})))
            .await
    }
}
