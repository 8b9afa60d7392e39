//! Pods of load balancers whose `SIPCluster` is gone. No agent reports what they run, so their hosts are held until the API
//! server has no such pod, nor a Deployment or `ReplicaSet` that would start one.

use std::pin::pin;

use futures::{Stream, TryStreamExt as _, future};
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::Pod,
};
use kit::{
    load_balancers::{belongs_to, is_finished, selector, starts_pods},
    pages,
    placement::ObjectKey,
};
use kube::{Api, Client, ResourceExt, api::ListParams};

/// The first object by which a pod may still route to hosts of a cluster, for people; `None` when the API server has none.
///
/// The API server is asked anew each time: a watch may be behind, and one whose first list is not complete would seem empty. The lists are read
/// page by page, since tenants write such objects, too.
///
/// # Errors
/// What the API server answers: what exists is not known then.
pub(super) async fn find(client: &Client, cluster: &ObjectKey) -> kube::Result<Option<String>> {
    let ObjectKey { namespace, name } = cluster;
    let all = || ListParams::default().labels(&selector());
    // In this order: an object that is deleted by the time of a list has created nothing that the next list could miss.
    let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
    let deployments = pages::metadata(deployments, all());
    let found = first(deployments, |deployment| belongs_to(deployment, name)).await?;
    if let Some(deployment) = found {
        return Ok(Some(format!("Deployment {namespace}/{deployment}")));
    }
    let sets = pages::objects(Api::<ReplicaSet>::namespaced(client.clone(), namespace), all());
    let found = first(sets, |set| belongs_to(set, name) && starts_pods(set)).await?;
    if let Some(set) = found {
        return Ok(Some(format!("ReplicaSet {namespace}/{set}")));
    }
    let pods = pages::objects(Api::<Pod>::namespaced(client.clone(), namespace), all());
    let found = first(pods, |pod| belongs_to(pod, name) && !is_finished(pod)).await?;
    Ok(found.map(|pod| format!("pod {namespace}/{pod}")))
}

/// The name of the first listed object that `is_meant` selects.
async fn first<K: ResourceExt>(
    listed: impl Stream<Item = kube::Result<K>>,
    is_meant: impl Fn(&K) -> bool,
) -> kube::Result<Option<String>> {
    let meant = listed.try_filter(|object| future::ready(is_meant(object)));
    let found = pin!(meant).try_next().await?;
    Ok(found.map(|object| object.name_any()))
}
