//! Whether the agent may make a Service with a name. It would send traffic to pods of its instance's name, so it is not made while another
//! cluster has such pods, or a Deployment that may start some: of an instance that the other cluster has dropped, or that was orphaned.

use api::{SIPCluster, labels};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _, api::ListParams, core::ObjectMeta};

use super::{identity::Identity, kinds::Kind, ownership::foreign_child, site::Site};
use crate::pages;

/// Excludes pods that have ended.
const UNFINISHED_PODS: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// The object of another cluster's instance of this name that still exists, for people; `None` without one.
pub(super) async fn occupant(site: &Site, object: &SIPCluster, name: &str) -> kube::Result<Option<String>> {
    let namespace = object.namespace().unwrap_or_default();
    let (uid, cluster) = (object.uid().unwrap_or_default(), object.name_any());
    // In this order: a Deployment that is deleted before this call starts no pod that the later list could miss.
    let deployment = Kind::Deployment.find(&site.client, &namespace, name).await?;
    let foreign =
        deployment.and_then(|found| foreign_child(site.identity, (&uid, &cluster), Kind::Deployment, &found));
    if foreign.is_some() {
        return Ok(foreign);
    }
    let of_instance = format!("{},{}={name}", site.identity.selector(), labels::INSTANCE);
    let listing = ListParams::default().labels(&of_instance).fields(UNFINISHED_PODS);
    let pods = Api::<Pod>::namespaced(site.client.clone(), &namespace);
    let others = pages::metadata(pods, listing).try_filter_map(|pod| {
        let other = foreign_pod(site.identity, &cluster, name, &pod.metadata);
        std::future::ready(Ok(other))
    });
    std::pin::pin!(others).try_next().await
}

/// Why a pod of an instance of this name is not the cluster's; `None` if it is. The Airship SIP operator did not label its pods with a cluster.
fn foreign_pod(identity: &Identity, cluster: &str, instance: &str, pod: &ObjectMeta) -> Option<String> {
    let of = pod.labels.as_ref().and_then(|all| all.get(labels::CLUSTER_NAME));
    let is_own = of.map_or_else(|| identity.is_sip_name(instance, cluster), |of| of == cluster);
    (!is_own).then(|| {
        let of = of.map_or("another SIPCluster".to_owned(), |of| format!("SIPCluster {of}"));
        let (namespace, name) = (pod.namespace.as_deref(), pod.name.as_deref());
        let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
        format!("Pod {namespace}/{name} of {of} still serves under the name {instance}")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::identity::BALANCERS, *};

    #[test]
    fn only_pods_of_the_cluster_may_be_there() {
        let of = |cluster: Option<&str>, instance: &str| {
            let labels = cluster.map(|cluster| json!({(labels::CLUSTER_NAME): cluster}));
            let pod = json!({"namespace": "tenant", "name": "p", "labels": labels});
            let pod: ObjectMeta = serde_json::from_value(pod).unwrap();
            foreign_pod(BALANCERS, "shop-b", instance, &pod)
        };
        let name = "loadbalancer-worker-shop-b";
        assert_eq!(of(Some("shop-b"), name), None);
        // As SIP made it.
        assert_eq!(of(None, name), None);
        assert_eq!(
            of(Some("shop"), name).as_deref(),
            Some("Pod tenant/p of SIPCluster shop still serves under the name loadbalancer-worker-shop-b")
        );
        assert_eq!(
            of(None, "loadbalancer-worker-shop-b-a").as_deref(),
            Some(
                "Pod tenant/p of another SIPCluster still serves under the name loadbalancer-worker-shop-b-a"
            )
        );
    }
}
