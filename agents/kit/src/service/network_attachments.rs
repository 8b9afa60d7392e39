//! Multus networks of an instance: whether they are defined, and whether its pods have joined them.

use std::collections::BTreeSet;

use api::{Cluster, Service as Entry, annotations};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde::Deserialize;

use super::{
    error::Error,
    pods,
    problem::{NETWORK_ATTACHMENT_MISSING, Problem},
};
use crate::apply;

/// One network that a pod has joined, as Multus reports it.
#[derive(Deserialize)]
struct Joined {
    #[serde(default)]
    name: String,
    #[serde(default)]
    ips: Vec<String>,
}

/// The first network of an entry that is not defined.
pub(super) async fn undefined(
    client: &Client,
    cluster: &Cluster,
    entry: &Entry,
) -> Result<Option<Problem>, Error> {
    let namespace = cluster.namespace();
    let kind = GroupVersionKind::gvk("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition");
    let resource = ApiResource::from_gvk_with_plural(&kind, "network-attachment-definitions");
    let definitions: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    for name in entry.network_attachments() {
        let message = match definitions.get_metadata(name).await {
            Ok(_) => continue,
            Err(error) if apply::code(&error) == Some(404) => {
                if kind_is_known(&error) {
                    format!("there is no NetworkAttachmentDefinition {namespace}/{name}")
                } else {
                    format!(
                        "there is no NetworkAttachmentDefinition {namespace}/{name}: Multus is not installed in this site"
                    )
                }
            }
            Err(error) => return Err(Error::kubernetes("read a NetworkAttachmentDefinition")(error)),
        };
        let message = format!("{}: {message}", entry.object_name());
        return Ok(Some(Problem::new(NETWORK_ATTACHMENT_MISSING, message)));
    }
    Ok(None)
}

/// Whether the API server knows the kind: its answer then names the object that it lacks.
fn kind_is_known(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status
            .details
            .as_ref()
            .is_some_and(|details| !details.name.is_empty()),
        _ => false,
    }
}

/// A working pod that has no address in a network that it should have joined.
pub(super) fn not_joined(pods: &[impl AsRef<Pod>], cluster: &Cluster, entry: &Entry) -> Option<Problem> {
    let namespace = cluster.namespace();
    let working = pods.iter().map(AsRef::as_ref).filter(|pod| pods::is_ready(pod));
    working.into_iter().find_map(|pod| {
        let joined = joined(pod);
        let missing = entry
            .network_attachments()
            .iter()
            .map(|name| format!("{namespace}/{name}"))
            .find(|network| !joined.contains(network))?;
        let message = format!("pod {} has no address in the network {missing}", pod.name_any());
        Some(Problem::new(NETWORK_ATTACHMENT_MISSING, message))
    })
}

/// The networks in which a pod has an address, as `namespace/name`; empty if the annotation cannot be parsed.
fn joined(pod: &Pod) -> BTreeSet<String> {
    let status = pod.annotations().get(annotations::NETWORK_STATUS);
    let joined: Vec<Joined> = status
        .and_then(|status| serde_json::from_str(status).ok())
        .unwrap_or_default();
    joined
        .into_iter()
        .filter(|joined| !joined.ips.is_empty())
        .map(|joined| joined.name)
        .collect()
}
