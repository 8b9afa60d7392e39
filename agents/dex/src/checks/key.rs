//! The key of a check.

/// Identifies a provider, also from a later one of the same name in another cluster; or a cluster in which its bindings should not be any more.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Key {
    /// Namespace of the provider.
    pub namespace: String,
    /// The uid of its SIPCluster.
    pub uid: String,
    /// Name of the provider.
    pub name: String,
    /// The Secret of a kubeconfig that its entry named before; `None`: the provider itself.
    pub former: Option<String>,
}

impl Key {
    /// The key of the provider itself.
    pub(super) fn provider(&self) -> Self {
        Self {
            former: None,
            ..self.clone()
        }
    }

    /// The key of the cluster of a kubeconfig that its entry named before.
    pub(super) fn former(&self, secret: &str) -> Self {
        Self {
            former: Some(secret.to_owned()),
            ..self.clone()
        }
    }
}
