//! Writes to the API server: server-side apply under the agent's own field manager, and conditional patches.

use std::fmt::Debug;

use api::{SIPCluster, TolerantCluster};
use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::placement::ObjectKey;

/// Name under which an agent owns fields, for example `sip-load-balancer-agent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manager(pub &'static str);

impl Manager {
    fn params(self) -> PatchParams {
        PatchParams::apply(self.0).force()
    }
}

/// An object in a namespace, of a kind that is known when this is compiled.
pub trait Object:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Serialize + DeserializeOwned + Clone + Debug
{
}

impl<K> Object for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug
{
}

/// Applies an object: its fields are set, and fields that this manager set before and that it lacks are removed.
///
/// # Errors
/// What the API server answers.
pub async fn apply<K: Object>(client: &Client, manager: Manager, object: &K) -> kube::Result<K> {
    let api: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    api.patch(&object.name_any(), &manager.params(), &Patch::Apply(object))
        .await
}

/// Creates an object by POST, under this manager: the API server answers 409 when there is one of its name.
///
/// # Errors
/// What the API server answers.
pub async fn create<K: Object>(client: &Client, manager: Manager, object: &K) -> kube::Result<K> {
    let params = PostParams {
        field_manager: Some(manager.0.to_owned()),
        ..PostParams::default()
    };
    let api: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    api.create(&params, object).await
}

/// Applies the part of a cluster's status that this manager owns, all of it since what is left out is removed, to the object as it was
/// observed: the API server answers 409 when it is another one, or has changed since. What others have written there and cannot be read does
/// not make the answer an error.
///
/// # Errors
/// What the API server answers.
pub async fn apply_status_of(
    client: &Client,
    manager: Manager,
    observed: &SIPCluster,
    status: &impl Serialize,
) -> kube::Result<TolerantCluster> {
    let name = observed.name_any();
    let namespace = observed.namespace().unwrap_or_default();
    let clusters = Api::<TolerantCluster>::namespaced(client.clone(), &namespace);
    // A partial object: the typed one would claim every field that serde fills in.
    let partial = json!({
        "apiVersion": SIPCluster::api_version(&()),
        "kind": SIPCluster::kind(&()),
        "metadata": {
            "name": name,
            "uid": observed.uid(),
            "resourceVersion": observed.resource_version().unwrap_or_default(),
        },
        "status": status,
    });
    let (params, patch) = (manager.params(), Patch::Apply(partial));
    clusters.patch_status(&name, &params, &patch).await
}

/// Applies fields of the spec, all that this manager owns, of exactly the object that has this uid and resourceVersion, of a kind that is
/// known by name only: the API server answers 409 when it is another one, or has changed.
///
/// # Errors
/// What the API server answers.
pub async fn apply_spec_of(
    client: &Client,
    manager: Manager,
    (api_version, kind): (&str, &str),
    key: &ObjectKey,
    (uid, resource_version): (&str, &str),
    spec: &Value,
) -> kube::Result<()> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &key.namespace, &resource);
    let partial = json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": { "name": key.name, "uid": uid, "resourceVersion": resource_version },
        "spec": spec,
    });
    let (params, patch) = (manager.params(), Patch::Apply(&partial));
    api.patch(&key.name, &params, &patch).await.map(drop)
}

/// Merges `change` into the metadata of exactly the object that has this uid and resourceVersion: the API server
/// answers 409 when it is another one, or has changed.
///
/// # Errors
/// What the API server answers.
pub async fn merge_metadata<K>(
    api: &Api<K>,
    manager: Manager,
    name: &str,
    (uid, resource_version): (&str, &str),
    change: Value,
) -> kube::Result<kube::core::PartialObjectMeta<K>>
where
    K: DeserializeOwned + Clone + Debug,
{
    let mut metadata = change;
    metadata["uid"] = uid.into();
    metadata["resourceVersion"] = resource_version.into();
    let params = PatchParams {
        field_manager: Some(manager.0.to_owned()),
        ..PatchParams::default()
    };
    api.patch_metadata(name, &params, &Patch::Merge(json!({ "metadata": metadata })))
        .await
}

/// The API server's message, without the debug form of the error around it.
#[must_use]
pub fn reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => runtime::error_chain::chain(other),
    }
}

/// Whether the API server refuses a write as things are: it is not allowed (a quota, an admission policy or webhook, which may answer 400),
/// too large, not valid, or a range is used up. Whoever wrote the spec has to act.
///
/// Ranges of addresses and ports that are used up are answered as internal errors, by these words.
#[must_use]
pub fn is_refusal(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => match status.code {
            400 | 403 | 413 | 422 => true,
            500 => status.message.contains("failed to allocate"),
            _ => false,
        },
        _ => false,
    }
}

/// Status code of an answer, when the API server gave one.
#[must_use]
pub fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}
