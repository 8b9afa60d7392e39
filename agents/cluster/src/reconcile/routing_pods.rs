//! Pods of load balancers whose `SIPCluster` is gone. No agent reports what they run, so their hosts are held until the API
//! server has no such pod, nor a Deployment that would start one.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kit::{
    clusters::{PAGE, next_page},
    load_balancers::{belongs_to, is_finished, selector},
    placement::ObjectKey,
};
use kube::{Api, Client, ResourceExt as _, api::ListParams};

/// What may still route to hosts of a cluster, for people; `None` when the API server has nothing that may.
///
/// Both lists are made for this question: a watch may be behind, and one that is not complete would seem empty. They come page by page:
/// tenants write such objects too.
///
/// # Errors
/// What the API server answers: what exists is not known then.
pub(super) async fn find(client: &Client, cluster: &ObjectKey) -> kube::Result<Option<String>> {
    let ObjectKey { namespace, name } = cluster;
    let all = || ListParams::default().labels(&selector()).limit(PAGE);
    // Deployments first: one that is gone by then starts no pod that the second list could not have.
    let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
    let (mut deployment, mut page) = (None, Some(all()));
    while let Some(params) = page {
        let listed = deployments.list_metadata(&params).await?;
        page = next_page(params, &listed.metadata);
        let mut listed = listed.items.iter();
        let found = listed.find(|deployment| belongs_to(*deployment, name));
        deployment =
            deployment.or_else(|| found.map(|found| format!("Deployment {namespace}/{}", found.name_any())));
    }
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let (mut pod, mut page) = (None, Some(all()));
    while let Some(params) = page {
        let listed = pods.list(&params).await?;
        page = next_page(params, &listed.metadata);
        let mut listed = listed.items.iter();
        let found = listed.find(|pod| belongs_to(*pod, name) && !is_finished(pod));
        pod = pod.or_else(|| found.map(|found| format!("pod {namespace}/{}", found.name_any())));
    }
    Ok(deployment.or(pod))
}
