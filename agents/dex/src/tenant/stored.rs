//! Former kubeconfigs, which stay in their Secrets until they are used: an entry may have several of up to 64 KiB each.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kit::{
    shares::OfNamespaces,
    tenant::{self, MAX_KUBECONFIG_BYTES},
};
use kube::{Api, Client};
use sha2::{Digest as _, Sha256};

use super::Error;

/// A kubeconfig in a Secret, as a pass has found and checked it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoredKubeconfig {
    namespace: String,
    secret: String,
    digest: [u8; 32],
}

/// Reads former kubeconfigs from their Secrets.
#[derive(Clone)]
pub struct SecretReader {
    client: Client,
    /// Limits how many Secrets of each namespace are read at once.
    places: Arc<OfNamespaces>,
}

impl SecretReader {
    /// Reads them with the rights of this client.
    #[must_use]
    pub fn new(client: Client, places: Arc<OfNamespaces>) -> Self {
        Self { client, places }
    }
}

impl StoredKubeconfig {
    /// Identifies this kubeconfig of a Secret.
    #[must_use]
    pub fn new(namespace: &str, secret: &str, kubeconfig: &[u8]) -> Self {
        Self {
            namespace: namespace.to_owned(),
            secret: secret.to_owned(),
            digest: Sha256::digest(kubeconfig).into(),
        }
    }

    pub(super) fn secret(&self) -> &str {
        &self.secret
    }

    /// Reads the kubeconfig from its Secret.
    ///
    /// # Errors
    /// When it is another one by now, which was not checked.
    pub(super) async fn read(&self, secrets: &SecretReader) -> Result<Arc<[u8]>, Error> {
        let Self {
            namespace,
            secret,
            digest,
        } = self;
        let _place = secrets.places.place(namespace).await;
        let found = Api::<Secret>::namespaced(secrets.client.clone(), namespace);
        let found = found
            .get_opt(secret)
            .await
            .map_err(|error| Error::SecretUnreadable {
                secret: secret.clone(),
                reason: tenant::reason(&error),
            })?;
        let kubeconfig = found.and_then(tenant::secret::kubeconfig);
        kubeconfig
            .filter(|kubeconfig| kubeconfig.len() <= MAX_KUBECONFIG_BYTES)
            .filter(|kubeconfig| <[u8; 32]>::from(Sha256::digest(kubeconfig)) == *digest)
            .map(Arc::from)
            .ok_or_else(|| Error::Changed(secret.clone()))
    }
}
