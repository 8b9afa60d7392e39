//! What is checked, by its name.

/// A provider: there may be another of its name later, of another cluster. Or a cluster in which its bindings are not to be any more.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Key {
    /// Its namespace.
    pub namespace: String,
    /// The uid of its cluster.
    pub uid: String,
    /// Its name.
    pub name: String,
    /// The Secret of a kubeconfig that its entry named before; `None`: the provider itself.
    pub former: Option<String>,
}

impl Key {
    /// The provider itself.
    pub(super) fn provider(&self) -> Self {
        Self {
            former: None,
            ..self.clone()
        }
    }

    /// The cluster of a kubeconfig that its entry named before.
    pub(super) fn former(&self, secret: &str) -> Self {
        Self {
            former: Some(secret.to_owned()),
            ..self.clone()
        }
    }
}
