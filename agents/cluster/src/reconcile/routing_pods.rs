//! Pods of load balancers whose `SIPCluster` is gone. No agent reports what they run, so their hosts are held until the API
//! server has no such pod, nor a Deployment that would start one.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kit::{
    load_balancers::{belongs_to, is_finished, selector},
    placement::ObjectKey,
};
use kube::{Api, Client, ResourceExt as _, api::ListParams};

/// What may still route to hosts of a cluster, for people; `None` when the API server has nothing that may.
///
/// Both lists are made for this question: a watch may be behind, and one that is not complete would seem empty.
///
/// # Errors
/// What the API server answers: what exists is not known then.
pub(super) async fn find(client: &Client, cluster: &ObjectKey) -> kube::Result<Option<String>> {
    let ObjectKey { namespace, name } = cluster;
    let all = ListParams::default().labels(&selector());
    // Deployments first: one that is gone by then starts no pod that the second list could not have.
    let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
    let deployments = deployments.list_metadata(&all).await?.items;
    let pods = Api::<Pod>::namespaced(client.clone(), namespace)
        .list(&all)
        .await?;
    let deployment = deployments
        .iter()
        .find(|deployment| belongs_to(*deployment, name))
        .map(|deployment| format!("Deployment {namespace}/{}", deployment.name_any()));
    let pod = pods
        .items
        .iter()
        .find(|pod| belongs_to(*pod, name) && !is_finished(pod))
        .map(|pod| format!("pod {namespace}/{}", pod.name_any()));
    Ok(deployment.or(pod))
}
