//! What the pods of a site report, to find the cause of a failure.

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _, api::ListParams};

use super::{Error, api_error};
use crate::site::Site;

/// Descriptions of all pods and `SIPClusters` of a site, and the ends of the pods' logs.
///
/// # Errors
/// When the API server does not answer.
pub async fn describe_pods(site: &Site) -> Result<String, Error> {
    let described = site.kubectl(&["describe", "pods,sipclusters", "-A"]).await?;
    let mut texts = vec![described.stdout];
    let pods: Api<Pod> = Api::all(site.client());
    let pods = pods.list(&ListParams::default()).await;
    for pod in pods.map_err(api_error("list the pods"))? {
        let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
        let logs = ["logs", "--all-containers", "--tail=20", "-n", &namespace, &name];
        texts.push(format!("{name}:\n{}", site.kubectl(&logs).await?.stdout));
    }
    Ok(texts.join("\n"))
}
