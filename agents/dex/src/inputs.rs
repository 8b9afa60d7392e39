//! What of the API server a provider is made of: the Secrets that its entry names, and the one in which the agent keeps its own.

use std::collections::{BTreeMap, BTreeSet};

use api::{
    Auth, SecretKey,
    conditions::auth::{CERTIFICATE_INVALID, SECRET_INVALID, SECRET_MISSING},
    labels,
};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kit::service::{Error, Problem};
use kube::{Api, Client, ResourceExt as _};
use render::dex::Secrets;

use crate::{
    certificates::{Given, Pair},
    identity::IDENTITY,
    kept::{self, Keys},
};

/// Types of Secrets that an entry can name.
const TYPES: [&str; 3] = ["", "Opaque", "kubernetes.io/basic-auth"];
/// Label of what Cluster API keeps of a cluster.
const CLUSTER_API: &str = "cluster.x-k8s.io/cluster-name";

/// The Secrets of one namespace.
pub(crate) struct Inputs {
    secrets: Api<Secret>,
}

impl Inputs {
    pub(crate) fn new(client: &Client, namespace: &str) -> Self {
        Self {
            secrets: Api::namespaced(client.clone(), namespace),
        }
    }

    /// What the agent keeps for an instance.
    pub(crate) async fn keys(&self, instance: &str) -> Result<Keys, Error> {
        let secret = self.get(&format!("{instance}{}", kept::SUFFIX)).await?;
        Ok(kept::read(secret))
    }

    /// The values that an entry names, checked.
    pub(crate) async fn secrets(&self, entry: &Auth) -> Result<Secrets, Error> {
        let provider = entry.provider();
        let keys = provider.secret_keys();
        let names: BTreeSet<&str> = keys.iter().map(|key| key.name()).collect();
        let mut data = BTreeMap::new();
        let mut closed = Vec::new();
        for name in names {
            let secret = self.get(name).await?;
            closed.extend(secret.as_ref().and_then(refusal));
            data.insert(name, secret.map(|secret| secret.data.unwrap_or_default()));
        }
        if !closed.is_empty() {
            return Err(refused(entry, SECRET_INVALID, &closed.join("; ")));
        }
        let mut values: BTreeMap<SecretKey, Vec<u8>> = BTreeMap::new();
        let mut missing = Vec::new();
        for key in keys {
            let secret = data.get_mut(key.name()).and_then(Option::as_mut);
            match secret.map(|data| data.get(key.key())) {
                Some(Some(ByteString(bytes))) => {
                    values.insert(key.clone(), bytes.clone());
                }
                Some(None) => missing.push(format!("Secret {} has no key {}", key.name(), key.key())),
                None => missing.push(format!("Secret {} does not exist", key.name())),
            }
        }
        missing.dedup();
        if !missing.is_empty() {
            return Err(refused(entry, SECRET_MISSING, &missing.join("; ")));
        }
        Secrets::read(provider, &values).map_err(|bad| {
            let bad: Vec<String> = bad.iter().map(ToString::to_string).collect();
            refused(entry, SECRET_INVALID, &bad.join("; "))
        })
    }

    /// The CA that an entry names.
    pub(crate) async fn given(&self, entry: &Auth) -> Result<Option<Given>, Error> {
        let Some(name) = entry.ca_secret() else {
            return Ok(None);
        };
        let Some(secret) = self.get(name).await? else {
            let why = format!("Secret {name} does not exist");
            return Err(refused(entry, SECRET_MISSING, &why));
        };
        let mut data = secret.data.unwrap_or_default();
        let mut text = |key: &str| {
            let bytes = data.remove(key).map(|ByteString(bytes)| bytes);
            bytes.and_then(|bytes| String::from_utf8(bytes).ok())
        };
        let pair = text("tls.crt").zip(text("tls.key"));
        let Some((certificate, key)) = pair else {
            let why = format!("Secret {name} must have the keys tls.crt and tls.key, in PEM");
            return Err(refused(entry, CERTIFICATE_INVALID, &why));
        };
        Ok(Some(Given {
            pair: Pair { certificate, key },
            root: text("ca.crt").filter(|root| root.contains("BEGIN CERTIFICATE")),
        }))
    }

    async fn get(&self, name: &str) -> Result<Option<Secret>, Error> {
        let secret = self.secrets.get_opt(name).await;
        secret.map_err(Error::kubernetes("read a Secret"))
    }
}

/// Why an entry cannot name a Secret. Whoever writes the entry also names the host that a password is sent to, so the entry must not reach
/// what has another use: tokens, and what is kept of clusters.
fn refusal(secret: &Secret) -> Option<String> {
    let name = secret.name_any();
    let labels = secret.labels();
    let kind = secret.type_.as_deref().unwrap_or_default();
    let why = if !TYPES.contains(&kind) {
        "must have the type Opaque or kubernetes.io/basic-auth"
    } else if IDENTITY.owns(&name)
        || labels.get(labels::PART_OF).map(String::as_str) == Some(labels::PART_OF_SIP)
    {
        "must not be one of a service of a cluster"
    } else if labels.contains_key(CLUSTER_API) {
        "must not be one of Cluster API"
    } else {
        return None;
    };
    Some(format!("Secret {name} {why}"))
}

/// An entry that cannot be served as it is.
pub(crate) fn refused(entry: &Auth, reason: api::conditions::Reason, why: &str) -> Error {
    let name = entry.service().object_name();
    Error::Refused(Problem::new(reason, format!("{name}: {why}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_entry_reaches_no_secret_of_another_use() {
        let secret = |name: &str, kind: Option<&str>, label: (&str, &str)| -> Secret {
            let labels = json!({label.0: label.1});
            serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "type": kind}))
                .unwrap()
        };
        let none = ("app", "any");
        for kind in [None, Some("Opaque"), Some("kubernetes.io/basic-auth")] {
            assert_eq!(refusal(&secret("directory", kind, none)), None);
        }
        for bad in [
            secret("directory", Some("kubernetes.io/service-account-token"), none),
            secret("directory", Some("bootstrap.kubernetes.io/token"), none),
            secret("directory", Some("helm.sh/release.v1"), none),
            secret("directory", Some("cluster.x-k8s.io/secret"), none),
            secret("auth-shop.keys", Some("Opaque"), none),
            secret("directory", Some("Opaque"), ("app.kubernetes.io/part-of", "sip")),
            secret(
                "shop-kubeconfig",
                Some("Opaque"),
                ("cluster.x-k8s.io/cluster-name", "shop"),
            ),
        ] {
            let why = refusal(&bad).unwrap();
            assert!(
                why.starts_with(&format!("Secret {} must", bad.name_any())),
                "{why}"
            );
        }
    }
}
