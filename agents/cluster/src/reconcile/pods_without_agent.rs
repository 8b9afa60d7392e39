//! What remains of load balancers when no agent reports what their pods run: the `SIPCluster` is gone, or the load-balancer agent has no rights in
//! its namespace. The cluster's hosts are held until the API server has no such pod, nor an object that would start one.

use std::{pin::pin, time::Duration};

use api::labels;
use futures::{Stream, TryStreamExt as _, future};
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::{ConfigMap, Pod},
};
use kit::{
    load_balancers::{SIP_PREFIXES, belongs_to, is_finished, selector, starts_pods, starts_pods_of_sip},
    pages,
    placement::ObjectKey,
};
use kube::{Api, Client, ResourceExt, api::ListParams, core::PartialObjectMeta};
use tokio::time::timeout;

/// Timeout for reading the lists of one cluster. A tenant decides how long they are, and few clusters are reconciled at the same time.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// The first object by which a pod may still route to hosts of a cluster whose `SIPCluster` is gone, for messages; `None` when the API server has
/// none. Lists that take too long count as ones with such an object: what is not known is not absent.
///
/// A pass of the load-balancer agent that began before may still apply a Deployment after these lists. It has written what the pods read before it
/// last found the `SIPCluster` (`agents/kit/src/service/apply.rs`). So the configurations are listed first: when there is none, pods of that
/// Deployment have nothing to read.
///
/// # Errors
/// What the API server answers: what exists is not known then.
pub(super) async fn find_of_gone(client: &Client, cluster: &ObjectKey) -> kube::Result<Option<String>> {
    with_timeout(cluster, Box::pin(first_of_gone(client, cluster))).await
}

async fn first_of_gone(client: &Client, cluster: &ObjectKey) -> kube::Result<Option<String>> {
    let ObjectKey { namespace, name } = cluster;
    let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let maps = pages::metadata(maps, ListParams::default().labels(&selector()));
    // What a check of a template reads, no load balancer reads.
    let is_read = |map: &PartialObjectMeta<ConfigMap>| {
        belongs_to(map, name) && !map.labels().contains_key(labels::TEMPLATE_CHECK)
    };
    if let Some(map) = find_first(maps, is_read).await? {
        return Ok(Some(format!("ConfigMap {namespace}/{map}")));
    }
    first_of(client, cluster).await
}

/// The same where the load-balancer agent can start no pod since it has no rights: configurations that no agent may delete do not count.
///
/// The API server is called each time: a watch may be behind, and one whose first list is not complete would seem empty. The lists are read
/// page by page, since tenants write such objects, too.
///
/// # Errors
/// What the API server answers: what exists is not known then.
pub(super) async fn find(client: &Client, cluster: &ObjectKey) -> kube::Result<Option<String>> {
    with_timeout(cluster, Box::pin(first_of(client, cluster))).await
}

async fn first_of(client: &Client, cluster: &ObjectKey) -> kube::Result<Option<String>> {
    let ObjectKey { namespace, name } = cluster;
    let all = || ListParams::default().labels(&selector());
    let deployments = || Api::<Deployment>::namespaced(client.clone(), namespace);
    // In this order: an object that is deleted by the time of a list has created nothing that the next list could miss.
    for prefix in SIP_PREFIXES {
        // The Airship SIP operator labelled pods; its Deployments need not have labels.
        let named = ListParams::default().fields(&format!("metadata.name={prefix}{name}"));
        let named = pages::objects(deployments(), named);
        if let Some(of_sip) = find_first(named, |found| starts_pods_of_sip(found, name)).await? {
            return Ok(Some(format!(
                "Deployment {namespace}/{of_sip} of the Airship SIP operator"
            )));
        }
    }
    let labelled = pages::metadata(deployments(), all());
    let found = find_first(labelled, |deployment| belongs_to(deployment, name)).await?;
    if let Some(deployment) = found {
        return Ok(Some(format!("Deployment {namespace}/{deployment}")));
    }
    let sets = pages::objects(Api::<ReplicaSet>::namespaced(client.clone(), namespace), all());
    let found = find_first(sets, |set| belongs_to(set, name) && starts_pods(set)).await?;
    if let Some(set) = found {
        return Ok(Some(format!("ReplicaSet {namespace}/{set}")));
    }
    let pods = pages::objects(Api::<Pod>::namespaced(client.clone(), namespace), all());
    let found = find_first(pods, |pod| belongs_to(pod, name) && !is_finished(pod)).await?;
    Ok(found.map(|pod| format!("pod {namespace}/{pod}")))
}

async fn with_timeout(
    cluster: &ObjectKey,
    found: impl Future<Output = kube::Result<Option<String>>>,
) -> kube::Result<Option<String>> {
    timeout(LIST_TIMEOUT, found).await.unwrap_or_else(|_| {
        let (namespace, seconds) = (&cluster.namespace, LIST_TIMEOUT.as_secs());
        Ok(Some(format!(
            "an object in {namespace} that was not listed within {seconds} s"
        )))
    })
}

/// The name of the first listed object that `is_meant` selects.
async fn find_first<K: ResourceExt>(
    listed: impl Stream<Item = kube::Result<K>>,
    is_meant: impl Fn(&K) -> bool,
) -> kube::Result<Option<String>> {
    let meant = listed.try_filter(|object| future::ready(is_meant(object)));
    let found = pin!(meant).try_next().await?;
    Ok(found.map(|object| object.name_any()))
}

#[cfg(test)]
mod tests;
