//! The Secret with a tenant's kubeconfig.

use api::{Cluster, annotations, labels};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::ResourceExt as _;

/// Label of the objects that Cluster API creates for a cluster.
const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";
/// Types of Secrets with a kubeconfig.
const TYPES: [&str; 3] = ["", "Opaque", "cluster.x-k8s.io/secret"];
/// Key of the kubeconfig in its Secret, as Cluster API calls it.
const KEY: &str = "value";

/// The `SIPCluster` that uses a kubeconfig.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct User {
    /// Its name.
    name: String,
    /// Name of the Cluster API cluster that it serves.
    served: String,
}

impl User {
    /// One of this name, for this Cluster.
    #[must_use]
    pub fn new(name: &str, served: &str) -> Self {
        Self {
            name: name.to_owned(),
            served: served.to_owned(),
        }
    }

    /// The cluster that has used this Secret before, whichever Cluster it serves now.
    #[must_use]
    pub fn former(cluster: &Cluster, secret: &Secret) -> Self {
        let of = secret.labels().get(CLUSTER_NAME_LABEL).map(String::as_str);
        Self::new(cluster.name(), of.unwrap_or(cluster.name()))
    }

    /// By its spec.
    #[must_use]
    pub fn from_spec(cluster: &Cluster) -> Self {
        Self::new(cluster.name(), cluster.cluster_api_name())
    }
}

/// Why a cluster may not use the kubeconfig in a Secret. Its credentials go only to the server that the kubeconfig names; but the author of the
/// spec decides what is done there, so it must not be the kubeconfig of another cluster. What the `SIPCluster` states about itself proves
/// nothing: if it serves a Cluster of another name, only a user who may write the Secret can allow the use.
#[must_use]
pub fn refusal(secret: &Secret, User { name, served }: &User) -> Option<String> {
    let kind = secret.type_.as_deref().unwrap_or_default();
    if !TYPES.contains(&kind) {
        return Some("must have the type Opaque or cluster.x-k8s.io/secret".to_owned());
    }
    if secret.labels().get(labels::PART_OF).map(String::as_str) == Some(labels::PART_OF_SIP) {
        return Some(
            "must not be a Secret of a service of a SIPCluster (label app.kubernetes.io/part-of: sip)"
                .to_owned(),
        );
    }
    let of = secret.labels().get(CLUSTER_NAME_LABEL)?;
    let allowed = secret.annotations().get(annotations::USED_BY);
    if of == served && (name == served || allowed == Some(name)) {
        return None;
    }
    let of: String = of.chars().take(63).collect();
    let help = if of == *served {
        let allow = annotations::USED_BY;
        format!("; to let this SIPCluster use it, set the annotation {allow}: {name} on the Secret")
    } else {
        String::new()
    };
    Some(format!("must not be a Secret of another Cluster, {of}{help}"))
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
                Some("another Cluster, bank"),
            ),
            ("Opaque", of("sh0p"), Some("another Cluster, sh0p")),
            (
                "Opaque",
                json!({"app.kubernetes.io/part-of": "sip"}),
                Some("a Secret of a service of a SIPCluster"),
            ),
            (
                "kubernetes.io/service-account-token",
                json!({}),
                Some("must have the type"),
            ),
        ] {
            let why = refusal(&secret(kind, labels), &User::new("shop", "shop"));
            match expected {
                Some(expected) => assert!(why.unwrap().contains(expected), "{kind}"),
                None => assert_eq!(why, None),
            }
        }
    }

    #[test]
    fn the_secret_allows_a_cluster_of_another_name() {
        let secret = |used_by: Value| -> Secret {
            serde_json::from_value(json!({
                "metadata": {
                    "name": "bank-kubeconfig",
                    "labels": {"cluster.x-k8s.io/cluster-name": "bank"},
                    "annotations": {"sip.airshipit.org/used-by": used_by},
                },
                "type": "cluster.x-k8s.io/secret",
            }))
            .unwrap()
        };
        assert_eq!(refusal(&secret(json!("shop")), &User::new("shop", "bank")), None);
        let why = refusal(&secret(json!("other")), &User::new("shop", "bank")).unwrap();
        assert!(
            why.ends_with("set the annotation sip.airshipit.org/used-by: shop on the Secret"),
            "{why}"
        );
        // The annotation does not make it that of the Cluster that is served.
        let why = refusal(&secret(json!("shop")), &User::new("shop", "shop")).unwrap();
        assert!(why.ends_with("another Cluster, bank"), "{why}");
    }
}
