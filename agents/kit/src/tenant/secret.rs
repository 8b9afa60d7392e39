//! The Secret with a tenant's kubeconfig.

use api::labels;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::ResourceExt as _;

/// Label of what Cluster API keeps of a cluster.
const CLUSTER_API: &str = "cluster.x-k8s.io/cluster-name";
/// Types of Secrets with a kubeconfig.
const TYPES: [&str; 3] = ["", "Opaque", "cluster.x-k8s.io/secret"];
/// Key of the kubeconfig in its Secret, as Cluster API calls it.
const KEY: &str = "value";

/// Why a Secret cannot be used as the kubeconfig of a cluster. Its credentials go to the server that it names itself; but the author of the
/// spec decides what is done there, so the kubeconfig must not be that of another cluster.
#[must_use]
pub fn refusal(secret: &Secret, cluster: &str) -> Option<String> {
    let kind = secret.type_.as_deref().unwrap_or_default();
    if !TYPES.contains(&kind) {
        return Some("must have the type Opaque or cluster.x-k8s.io/secret".to_owned());
    }
    if secret.labels().get(labels::PART_OF).map(String::as_str) == Some(labels::PART_OF_SIP) {
        return Some("must not be one of a service of a cluster".to_owned());
    }
    let other = secret.labels().get(CLUSTER_API).filter(|of| *of != cluster)?;
    let other: String = other.chars().take(63).collect();
    Some(format!("must not be that of another cluster, {other}"))
}

/// The kubeconfig in a Secret.
#[must_use]
pub fn kubeconfig(secret: Secret) -> Option<Vec<u8>> {
    let value = secret.data.and_then(|mut data| data.remove(KEY));
    value.map(|ByteString(bytes)| bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_kubeconfig_of_another_cluster_is_refused() {
        let secret = |kind: &str, labels: Value| -> Secret {
            serde_json::from_value(json!({"metadata": {"name": "kube", "labels": labels}, "type": kind}))
                .unwrap()
        };
        let of = |cluster: &str| json!({"cluster.x-k8s.io/cluster-name": cluster});
        for (kind, labels, expected) in [
            ("cluster.x-k8s.io/secret", of("shop"), None),
            ("Opaque", json!({}), None),
            (
                "cluster.x-k8s.io/secret",
                of("bank"),
                Some("another cluster, bank"),
            ),
            ("Opaque", of("sh0p"), Some("another cluster, sh0p")),
            (
                "Opaque",
                json!({"app.kubernetes.io/part-of": "sip"}),
                Some("one of a service of a cluster"),
            ),
            (
                "kubernetes.io/service-account-token",
                json!({}),
                Some("must have the type"),
            ),
        ] {
            let why = refusal(&secret(kind, labels), "shop");
            match expected {
                Some(expected) => assert!(why.unwrap().contains(expected), "{kind}"),
                None => assert_eq!(why, None),
            }
        }
    }
}
